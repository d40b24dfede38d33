"""lowtide demo: what it says of bytes and bits, kept or not; its numbers are checked in tests/integration."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import lowtide.measure
import lowtide.models
from lowtide.cli import main
from lowtide.cli.demo import DEMO_MODELS
from lowtide.measure.numerics import TensorDigest
from lowtide.measure.training_types import StepResult, TrainingResult, TrainingRun

MIB = 2**20


def document_of(model: str, *, bits: str, peak_bytes: int, budget: str | None = None) -> dict[str, Any]:
    step = StepResult(loss=0.0, wall_seconds=9.0, cpu_seconds=0.25, start_bytes=0, peak_bytes=peak_bytes, end_bytes=0)
    report = {"budget_bytes": 60 * MIB, "tdi_percent": 2.5, "plan_seconds": 0.3}
    curves = {"plain_curve": [100 * MIB] * 3 + [0] * 53, "planned_curve": [MIB] * 56}
    return TrainingResult(
        run=TrainingRun(model=f"lowtide.models:{model}"),
        steps=(step,) * 3,
        prepare_seconds=0.0,
        digests={"step0.loss": TensorDigest(dtype="float32", shape=(), sha256=bits)},
        tensors=None,
        report={} if budget is None else {**report, **curves},
    ).to_json()


def trained(monkeypatch: pytest.MonkeyPatch, *bits: str, peak_mib: int = 59) -> list[tuple[str, tuple[str, ...]]]:
    """Let trainings come out with these bits, one after another; return the models and budgets asked for."""
    asked: list[tuple[str, tuple[str, ...]]] = []
    coming: Iterator[str] = iter(bits)

    def measure(target: str, *, kwargs: dict[str, Any], timeout_seconds: float) -> dict[str, Any]:
        assert target == "lowtide.cli.demo:train_model"
        model, budgets = kwargs["model"], kwargs["budgets"]
        asked.append((model, tuple(budgets)))
        return {
            "plain": document_of(model, bits=next(coming), peak_bytes=100 * MIB),
            "planned": [
                document_of(model, bits=next(coming), peak_bytes=peak_mib * MIB, budget=budget) for budget in budgets
            ],
        }

    monkeypatch.setattr(lowtide.measure, "measure_in_subprocess", measure)
    return asked


def rows(out: str, model: str) -> list[str]:
    return [" ".join(line.split()) for line in out.splitlines() if line.startswith(f"{model} ")]


def test_same_bits_within_the_budget(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    asked = trained(monkeypatch, *"aaa")
    assert main(["demo", "--model", "unet"]) == 0
    out, err = capsys.readouterr()
    assert "…" not in out
    assert rows(out, "unet") == [
        "unet 100.0 MiB 60% 60.0 MiB 59.0 MiB 0.25 s 0.25 s same",
        "unet 100.0 MiB 45% 60.0 MiB 59.0 MiB 0.25 s 0.25 s same",
    ]
    (header,) = [line for line in out.splitlines() if line.startswith("model ")]
    assert header.split() == ["model", "plain", "peak", "budget", "peak", "plain", "step", "step", "bits"]
    assert "<- budget" in out
    assert max(map(len, out.splitlines())) <= 80
    assert asked == [("unet", ("60%", "45%"))]
    assert "lowtide:" not in err


def test_it_ends_with_commands_for_the_users_own_model(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(monkeypatch, *"aa", peak_mib=1000)
    assert main(["demo", "--model", "unet", "--budget", "60%"]) == 1
    before, _, after = capsys.readouterr().out.partition("\nNext, your own model; make() in train.py returns")
    assert "1000.0 MiB" in before
    assert max(map(len, after.splitlines())) <= 80
    commands = [line.split()[1] for line in after.splitlines() if line.startswith("  lowtide ")]
    assert commands == ["plan", "compare", "run"]
    for command in commands:
        assert main([command, "--help"]) == 0


def test_other_bits_exit_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    trained(monkeypatch, *"aba")  # the third: plain again, which repeats
    assert main(["demo", "--model", "unet", "--budget", "60MiB"]) == 1
    out, err = capsys.readouterr()
    assert rows(out, "unet")[0].endswith("s no")
    assert "lowtide: unet within 60MiB: not the same bits, 1 tensor\n" in err


def test_a_peak_above_the_budget_exits_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    trained(monkeypatch, *"aa", peak_mib=61)
    assert main(["demo", "--model", "unet", "--budget", "60%"]) == 1
    assert "lowtide: unet within 60%: the measured peak is 1.00 MiB above the budget\n" in capsys.readouterr().err


def test_plain_torch_that_does_not_repeat_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(monkeypatch, *"abc")
    assert main(["demo", "--model", "unet", "--budget", "60%"]) == 0
    out, err = capsys.readouterr()
    assert rows(out, "unet")[0].endswith("s ?")
    assert "unet within 60%: plain PyTorch itself does not repeat to the bit here" in err


def test_all_models_exist_and_without_transformers_gpt2_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for model in DEMO_MODELS:
        assert callable(getattr(lowtide.models, model))
    without(monkeypatch, "transformers")
    asked = trained(monkeypatch, *"aaaaaa")
    assert main(["demo"]) == 0
    assert [model for model, _ in asked] == ["unet", "resnet50_like"]
    out, err = capsys.readouterr()
    assert len(rows(out, "resnet50_like")) == 2  # the longest name, whole
    assert max(map(len, out.splitlines())) <= 80
    assert "gpt2 is left out, as it needs transformers: pip install -c constraints.txt '.[demo]' in a clone of" in err
    assert main(["demo", "--model", "gpt2"]) == 2
    assert "needs the package 'transformers'" in capsys.readouterr().err


def test_picture(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    trained(monkeypatch, *"aaa")
    assert main(["demo", "--model", "unet", "--picture", str(tmp_path / "demo.png")]) == 0
    assert (tmp_path / "demo.png").read_bytes().startswith(b"\x89PNG")
    assert "Picture written to" in capsys.readouterr().out


def test_picture_is_refused_before_anything_is_trained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked = trained(monkeypatch)
    assert main(["demo", "--picture", str(tmp_path / "missing" / "demo.png")]) == 2
    assert "there is no folder" in capsys.readouterr().err
    without(monkeypatch, "matplotlib")
    assert main(["demo", "--picture", str(tmp_path / "demo.png")]) == 2
    assert "needs the package 'matplotlib'" in capsys.readouterr().err
    assert asked == []


def without(monkeypatch: pytest.MonkeyPatch, package: str) -> None:
    find_spec = importlib.util.find_spec

    def find(name: str, *rest: str | None) -> Any:
        return None if name == package else find_spec(name, *rest)

    monkeypatch.setattr(importlib.util, "find_spec", find)


def test_unknown_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--model", "vgg"]) == 2
    assert capsys.readouterr().err == "lowtide: model 'vgg' is not in the demo: use unet, resnet50_like, gpt2\n"
