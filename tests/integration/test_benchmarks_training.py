"""The benchmark measures what it says, and its pages say what it measured."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks.training.matrix_report import render_section

ROOT = Path(__file__).parents[2]


def run_module(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=280)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("model", "different"),
    [("unet_tiny", {}), ("resnet50_like_tiny", {"buffer"})],
    ids=["same bits", "BatchNorm twice"],
)
def test_checkpoint_beside_eager(model: str, different: set[str], tmp_path: Path) -> None:
    output = tmp_path / "results.jsonl"
    peer = ("--peer", "checkpoint per block")
    done = run_module("benchmarks.training", "--model", model, *peer, "--rounds", "2", "-o", str(output))
    assert done.returncode == 0, done.stderr
    run, eager, checkpoint, *rounds = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert (run["record"], run["num_threads"], run["seed"]) == ("run", 1, 0)
    assert (eager["peer"], checkpoint["peer"]) == ("eager", "checkpoint per block")
    assert 0.3 * eager["peak_bytes"] < checkpoint["peak_bytes"] < eager["peak_bytes"]
    assert set(checkpoint["num_tensors_different"]) == set(different)
    assert [item["record"] for item in rounds] == ["round", "round"]
    for item in rounds:
        assert list(item["cpu_seconds"]) == ["checkpoint per block|"]
        assert all(0 < seconds < 10 for seconds in [*item["eager_cpu_seconds"], *item["cpu_seconds"].values()])


@pytest.mark.slow
def test_matrix_passes_dropout_to_the_models_that_have_one() -> None:
    code = (
        "import json; from benchmarks.training import matrix; p = [0.0, 0.3]; "
        "print(json.dumps({m: matrix.dropouts_of(m, p) for m in matrix.MODELS})); "
        "[print(json.dumps(record)) for record in matrix.measure_matrix(models=['gpt2_tiny'], optimizers=['sgd'],"
        "dtypes=['float32'], percents=[200], dropouts=p, time_limit_seconds=5.0)]"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=280
    )
    dropouts, none, some = [json.loads(line) for line in done.stdout.splitlines()]
    without, with_dropout = [None], [0.0, 0.3]
    assert dropouts == {
        "unet": without,
        "resnet50_like": without,
        "gpt2": with_dropout,
        "bert": with_dropout,
        "swin": with_dropout,
    }
    assert (none["dropout"], some["dropout"]) == (0.0, 0.3)
    assert none["plain_peak_bytes"] < some["plain_peak_bytes"], "dropout keeps its noise for backward"
    for record in (none, some):
        assert record["num_different"] == 0 < record["num_compared"]
        assert record["is_within_budget"]


@pytest.mark.parametrize("text", ["1", "-0.1", "half"])
def test_matrix_refuses_what_is_no_probability(text: str) -> None:
    done = run_module("benchmarks.training.matrix", f"--dropout={text}")
    assert done.returncode == 2
    assert "argument --dropout: " in done.stderr


def contender(peer: str, setting: str, *, peak_mib: int, **more: Any) -> dict[str, Any]:
    figures = {"peak_bytes": peak_mib * 2**20, "num_tensors_different": {}, "num_tensors_compared": 9}
    names = {"record": "contender", "model": "unet", "peer": peer, "setting": setting}
    return {**names, **figures, "first_step_cpu_seconds": 1.0, **more}


def results(*, lowtide_seconds: float) -> str:
    """Checkpoint takes 1.4 times eager's time at 50 MiB; lowtide is given 50 MiB."""
    at_peak = "at checkpoint's peak"
    records: list[dict[str, Any]] = [
        {
            "record": "run",
            "started": "now",
            "commit": "abc",
            "system": "Linux",
            "processor": "a CPU",
            "num_cores": 2,
            "load_average_at_start": [0.0, 0.0, 0.0],
            "python": "3.11",
            "packages": {"torch": "2.13"},
            "num_threads": 1,
            "seed": 0,
            "num_rounds": 1,
            "optimizer": "sgd",
            "dtype": "float32",
        },
        contender("eager", "", peak_mib=100),
        contender("checkpoint per block", "", peak_mib=50, num_tensors_different={"buffer": 3}),
        contender("lowtide", "60%", peak_mib=61, budget_bytes=60 * 2**20),
        {**contender("lowtide", "45%", peak_mib=0), "error": "no plan for it"},
        contender("lowtide", at_peak, peak_mib=50, budget_bytes=50 * 2**20),
        {
            "record": "round",
            "model": "unet",
            "round": 0,
            "eager_cpu_seconds": [0.9, 1.0, 1.1],
            "cpu_seconds": {
                "checkpoint per block|": 1.4,
                "lowtide|60%": 1.0,
                f"lowtide|{at_peak}": lowtide_seconds,
            },
        },
    ]
    return "".join(json.dumps(record) + "\n" for record in records)


def render(text: str, function: str, folder: Path) -> str:
    (folder / "results.jsonl").write_text(text, encoding="utf-8")
    code = (
        f"import sys; from benchmarks.training import report; "
        f"print(report.{function}(report.read_results(open({str(folder / 'results.jsonl')!r}))))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True, timeout=120
    )
    return done.stdout


def test_page_publishes_losses_beside_wins(tmp_path: Path) -> None:
    won = render(results(lowtide_seconds=1.19), "render_page", tmp_path)
    assert "Reached on 1 of 1 models." in won
    lost = render(results(lowtide_seconds=1.21), "render_page", tmp_path)
    assert "Reached on 0 of 1 models; missed on U-Net (GroupNorm)." in lost
    assert "| lowtide, 60% | 60.0 MiB | 61.0 MiB (above its budget) | 61 % | ×1.00 (1.00-1.00) | yes | 1.0 s |" in lost
    assert "| checkpoint per block |  | 50.0 MiB | 50 % | ×1.40 (1.40-1.40) | no: 3 of buffer | 1.0 s |" in lost
    assert "No plan for lowtide, 45%: no plan for it" in lost


def test_readme_block(tmp_path: Path) -> None:
    block = render(results(lowtide_seconds=1.1), "render_readme_block", tmp_path)
    assert (
        "| U-Net (GroupNorm) | 100.0 MiB | 61.0 MiB (above its budget), ×1.00 | no plan "
        "| 50.0 MiB, ×1.40, bits differ | 50.0 MiB, ×1.10 |"
    ) in block
    assert "2 of 2 lowtide runs are equal to plain PyTorch to the bit" in block


def matrix_record(**different: object) -> dict[str, object]:
    record = {"model": "unet", "optimizer": "sgd", "dtype": "float32", "dropout": None, "percent": 60}
    figures = {"num_different": 0, "num_compared": 10, "is_within_budget": True}
    return {**record, **figures, "planned_peak_bytes": 1024, "peak_bytes": 2048, **different}


def test_matrix_page_says_what_differs_and_what_is_over() -> None:
    records = [
        matrix_record(),
        matrix_record(optimizer="adamw", num_different=3, is_within_budget=False, peak_bytes=512),
        matrix_record(planner="search", percent=40, dropout=0.1),
        matrix_record(model="bert", error="no plan"),
    ]
    section = render_section(records)
    assert "of 30 losses, gradients" in section
    assert " 3 differ in a bit, and 2 of 3 trainings stay within their budget." in section
    assert "| U-Net (GroupNorm) | `greedy` | sgd, adamw | float32 | own | 60 % | 2 | 20 | 3 | 1 of 2 |" in section
    assert "| -512 B to 1.00 KiB |" in section
    assert "| U-Net (GroupNorm) | `search` | sgd | float32 | 0.1 | 40 % | 1 | 10 | 0 | 1 of 1 |" in section
    assert "- BERT, 6 layers, sgd, float32, 60 %: no plan" in section


def test_matrix_page_is_that_of_the_result_file() -> None:
    done = run_module("benchmarks.training.matrix_report", "--check")
    assert done.returncode == 0, done.stderr


@pytest.mark.slow
def test_matrix_keeps_what_it_does_not_measure(tmp_path: Path) -> None:
    output = tmp_path / "matrix.jsonl"
    kept, replaced = matrix_record(), matrix_record(model="gpt2-24", percent=101)
    output.write_text("".join(json.dumps(record) + "\n" for record in (kept, replaced)), encoding="utf-8")
    choice = ("--model", "gpt2-24", "--optimizer", "sgd", "--dtype", "float32", "--percent", "101")
    command = "import sys; from benchmarks.training import matrix; matrix.VARIANTS['gpt2-24'] = ('gpt2_tiny', {}); "
    command += f"sys.argv[1:] = {[*choice, '-o', str(output)]!r}; raise SystemExit(matrix.main())"
    done = subprocess.run(
        [sys.executable, "-c", command], cwd=ROOT, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stderr
    first, second = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert first == kept
    assert (second["model"], second["planner"], second["num_different"]) == ("gpt2-24", "greedy", 0)
    assert second["num_compared"] > 10
