"""lowtide demo: what it says where bits differ, repeat or not; its numbers are checked in tests/integration."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from typing import Any

import pytest

import lowtide.models
from lowtide.cli import main
from lowtide.cli.demo import DEMO_MODELS
from lowtide.measure import torch_training
from lowtide.measure.numerics import TensorDigest
from lowtide.measure.training_types import StepResult, TrainingResult, TrainingRun

MIB = 2**20


def result_of(run: TrainingRun, *, bits: str, peak_bytes: int) -> TrainingResult:
    step = StepResult(loss=0.0, wall_seconds=0.25, cpu_seconds=0.2, start_bytes=0, peak_bytes=peak_bytes, end_bytes=0)
    report = {"budget_bytes": 60 * MIB, "plan_budget_bytes": 60 * MIB, "tdi_percent": 2.5}
    return TrainingResult(
        run=run,
        steps=(step,) * run.num_steps,
        prepare_seconds=0.0,
        digests={"step0.loss": TensorDigest(dtype="float32", shape=(), sha256=bits)},
        tensors=None,
        report={} if run.report is None else {**report, "plain_curve": [100 * MIB] * 3, "planned_curve": [MIB] * 3},
    )


def trained(monkeypatch: pytest.MonkeyPatch, *bits: str) -> list[TrainingRun]:
    """Let trainings come out with these bits, one after another; return the runs asked for."""
    runs: list[TrainingRun] = []
    coming: Iterator[str] = iter(bits)

    def measure(run: TrainingRun, **_: Any) -> TrainingResult:
        runs.append(run)
        return result_of(run, bits=next(coming), peak_bytes=(59 if run.prepare else 100) * MIB)

    monkeypatch.setattr(torch_training, "measure_training", measure)
    return runs


def row(out: str, model: str) -> list[str]:
    (line,) = [line for line in out.splitlines() if line.startswith(f"{model} ")]
    return line.split()


def test_same_bits(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    runs = trained(monkeypatch, "a", "a")
    assert main(["demo", "--model", "unet", "--budget", "60MiB"]) == 0
    out = capsys.readouterr().out
    assert " ".join(row(out, "unet")) == "unet 100.0 MiB 60.0 MiB 59.0 MiB 0.25 s 0.25 s 2.5 % same"
    assert "<- budget" in out
    assert max(map(len, out.splitlines())) <= 80
    assert [run.prepare for run in runs] == [None, "lowtide:compile"]
    assert runs[1].prepare_options == {"budget": "60MiB", "counts": "compiled"}


def test_other_bits_exit_1(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    trained(monkeypatch, "a", "b", "a")  # the third run: plain again, which repeats
    assert main(["demo", "--model", "unet"]) == 1
    out, err = capsys.readouterr()
    assert row(out, "unet")[-2:] == ["1", "differ"]
    assert "lowtide: not the same bits: unet" in err


def test_plain_torch_that_does_not_repeat_is_no_failure(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    trained(monkeypatch, "a", "b", "c")
    assert main(["demo", "--model", "unet"]) == 0
    assert row(capsys.readouterr().out, "unet")[-2:] == ["plain", "differs"]


def test_all_models_exist_and_without_transformers_gpt2_is_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for model in DEMO_MODELS:
        assert callable(getattr(lowtide.models, model))
    find_spec = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name, *rest: None if name == "transformers" else find_spec(name, *rest)
    )
    runs = trained(monkeypatch, *"aaaa")
    assert main(["demo"]) == 0
    assert [run.model for run in runs][::2] == ["lowtide.models:unet", "lowtide.models:resnet50_like"]
    assert "gpt2 is left out: pip install 'lowtide[demo]'" in capsys.readouterr().err
    assert main(["demo", "--model", "gpt2"]) == 2
    assert "needs the package 'transformers'" in capsys.readouterr().err


def test_unknown_model(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["demo", "--model", "vgg"]) == 2
    assert capsys.readouterr().err == "lowtide: model 'vgg' is not in the demo: use unet, resnet50_like, gpt2\n"
