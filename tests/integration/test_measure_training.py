"""Peaks as the meter sees them, in fresh processes."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="measures torch models")

from lowtide.measure import ChildFailed  # noqa: E402
from lowtide.measure.torch_training import (  # noqa: E402
    TrainingRun,
    compare_results,
    compare_with_plain,
    measure_training,
    run_training,
)

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the meter is preloaded by the Linux loader")

EXAMPLES = Path(__file__).parents[1] / "unit" / "measure"


@pytest.fixture(autouse=True)
def _importable_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(EXAMPLES))


def test_peak_of_a_known_model() -> None:
    """exp retains its output (one tensor); its backward makes grad * output beside it (two tensors), and no more."""
    size_bytes = 40_000_000
    run = TrainingRun(model="training_examples:retain", model_options={"size_bytes": size_bytes}, record="none")
    result = measure_training(run)
    for step in result.steps[1:]:
        assert step.peak_bytes == pytest.approx(2 * size_bytes, abs=50_000)
        assert step.end_bytes is not None
        assert step.end_bytes < 50_000
    assert result.peak_bytes() == max(step.peak_bytes or 0 for step in result.steps[1:])


def test_peak_repeats_within_a_few_kilobytes_and_bits_repeat_between_processes() -> None:
    run = TrainingRun(model="lowtide.models:unet_tiny", num_steps=3, optimizer="adamw")
    first, second = measure_training(run), measure_training(run)
    assert compare_results(first, second) == ()
    assert compare_results(first, run_training(run)) == (), "a fresh process computes what this one does"
    peaks = [step.peak_bytes for result in (first, second) for step in result.steps[1:]]
    assert all(peak is not None and peak > 1_000_000 for peak in peaks)
    assert max(peaks) - min(peaks) < 16_384


def test_tensors_come_back_from_the_child() -> None:
    run = TrainingRun(model="training_examples:scale_with_loss", num_steps=1, record="tensors")
    measured, here = measure_training(run), run_training(run)
    assert measured.tensors is not None
    assert compare_results(measured, here) == ()
    assert measured.tensors["step0.gradient.weight"].tolist() == [1.0] * 4
    assert measured.digests == here.digests


def test_comparison_under_the_meter() -> None:
    run = TrainingRun(
        model="lowtide.models:resnet50_like_tiny",
        num_steps=2,
        prepare="lowtide.measure.torch_training:compile_with_backend",
        prepare_options={"backend": "aot_eager"},
    )
    comparison = compare_with_plain(run, train=measure_training)
    assert comparison.differences == ()
    plain, prepared = comparison.plain.peak_bytes(), comparison.prepared.peak_bytes()
    assert plain is not None
    assert prepared is not None
    assert prepared == pytest.approx(plain, rel=0.2)
    first = comparison.prepared.steps[0].peak_bytes
    assert first is not None
    assert first > prepared, "compiling itself takes memory, in the first step"


def test_child_error_names_the_cause() -> None:
    run = TrainingRun(model="training_examples:two_outputs", num_steps=1)
    with pytest.raises(ChildFailed, match="raised InputError in the child process: the model returns a tuple"):
        measure_training(run)
