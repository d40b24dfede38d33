"""What a compiled model allocates, counted by malloc in a fresh process, against its budget and its plan."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="compiles torch models")
pytest.importorskip("transformers", reason="compiles models of transformers")

from lowtide.measure import measure_in_subprocess  # noqa: E402
from lowtide.measure.torch_training import TrainingRun, compare_with_plain, measure_training  # noqa: E402

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="the meter is preloaded by the Linux loader"),
    pytest.mark.slow,
]

MEGABYTE = 10**6


@pytest.fixture(autouse=True)
def _importable_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


@pytest.mark.parametrize(
    ("model", "optimizer", "percent"),
    [
        ("unet", "sgd", 60),
        ("resnet50_like", "adamw", 60),
        ("gpt2", "adamw", 45),
        ("bert", "sgd", 60),
        ("swin", "adamw", 70),
    ],
)
def test_peak_is_as_planned_and_within_the_budget(model: str, optimizer: str, percent: int) -> None:
    run = TrainingRun(
        model=f"lowtide.models:{model}",
        optimizer=optimizer,
        num_steps=3,
        prepare="lowtide:compile",
        prepare_options={"budget": f"{percent}%", "counts": "compiled", "time_limit_seconds": 8.0},
        report="peak_child:report",
    )
    comparison = compare_with_plain(run, train=measure_training)
    assert [str(difference) for difference in comparison.differences[:5]] == []
    report = comparison.prepared.report
    planned, budget = report["planned_peak_bytes"], report["budget_bytes"]
    assert report["num_recomputes"] > 0
    plain = comparison.plain.peak_bytes()
    assert plain is not None
    for step in comparison.prepared.steps[1:]:
        assert step.peak_bytes is not None
        assert step.peak_bytes <= budget
        assert step.peak_bytes == pytest.approx(planned, abs=planned // 100 + MEGABYTE)
        assert step.peak_bytes < 0.9 * plain


def test_everything_on_the_device_is_within_the_budget() -> None:
    """Counted from before the model is built: parameters, gradients, optimizer state, the step, the optimizer's step.

    Beside tensors the process comes to hold what libraries cache (plain torch does, too) and the compiled Python of
    the model. Neither is on the device, so what is live between the steps beyond tensors is taken off.
    """
    result = measure_in_subprocess("peak_child:train_counting_everything", kwargs={"budget_percent": 70})
    report = result["compilation"]
    standing = report["parameter_bytes"] + report["buffer_bytes"] + report["optimizer_bytes"]
    assert report["optimizer_bytes"] == pytest.approx(2 * report["parameter_bytes"], rel=0.001), "AdamW has two moments"
    for step in result["steps"][1:]:
        residue = step["start"] - standing
        assert 0 < residue < 20 * MEGABYTE
        everything = step["forward_backward"] - residue
        assert everything <= report["budget_bytes"]
        assert everything == pytest.approx(report["planned_peak_bytes"], rel=0.01)
        gradients = step["before_optimizer"] - step["start"]
        # some hundred bytes for the objects around each gradient come on top
        assert gradients == pytest.approx(report["parameter_bytes"], abs=100_000)
        # not counted by a plan: AdamW, which goes over one parameter after the other, takes two of its size
        temporary = step["optimizer"] - step["before_optimizer"]
        assert temporary == pytest.approx(2 * result["largest_parameter_bytes"], rel=0.01)
        assert step["optimizer"] - residue < report["budget_bytes"]
