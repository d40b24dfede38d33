"""Which trainings there are, and what becomes of those that end badly; no process is started."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from lowtide.comparison import measured
from lowtide.comparison.measured import measured_cells, run_measured
from lowtide.comparison.options import ComparisonOptions, choose_options
from lowtide.comparison.peers import PEERS
from lowtide.comparison.rows import Cell, Kind, Outcome, Row
from lowtide.measure.errors import ChildFailed, MeterUnavailable
from lowtide.measure.numerics import TensorDigest
from lowtide.measure.training_types import StepResult, TrainingResult, TrainingRun

EAGER = Row(
    cell=Cell(kind=Kind.MEASURED, method="eager"),
    outcome=Outcome.COMPLETED,
    budget_bytes=None,
    baseline_peak_bytes=10_000,
    baseline_duration=1_000_000_000,
    peak_bytes=10_000,
    duration=1_000_000_000,
)


@pytest.fixture
def options() -> ComparisonOptions:
    return choose_options(num_nodes=1, planners=[], policies=[], model="my.module:function", seed=7)


def cell(method: str, budget: str = "") -> Cell:
    return Cell(kind=Kind.MEASURED, method=method, budget=budget)


def train_as(
    monkeypatch: pytest.MonkeyPatch, *, peaks: tuple[int, ...], report: dict[str, Any] | None = None
) -> list[Any]:
    """Trainings whose steps take 2 s of CPU and those peaks; returns the runs asked for."""
    runs: list[TrainingRun] = []

    def train(run: TrainingRun, _: object) -> TrainingResult:
        runs.append(run)
        steps = tuple(
            StepResult(loss=1.0, wall_seconds=9.0, cpu_seconds=2.0, start_bytes=0, peak_bytes=peak, end_bytes=0)
            for peak in peaks
        )
        return TrainingResult(run=run, steps=steps, prepare_seconds=0.0, digests={}, tensors=None, report=report or {})

    monkeypatch.setattr(measured, "_train", train)
    return runs


def test_eager_comes_first_then_what_takes_no_budget(options: ComparisonOptions) -> None:
    cells = [(one.method, one.budget) for one in measured_cells(options, ("80%", "60%"))]
    assert cells[:4] == [("eager", ""), ("checkpoint", ""), ("amb-aot_eager", ""), ("amb-inductor", "")]
    within = ["amb-aot_eager", "amb-inductor", "lowtide.compile", "lowtide.budget"]
    assert cells[4:] == [(name, budget) for budget in ("80%", "60%") for name in within]


def test_without_a_model_there_are_none() -> None:
    assert measured_cells(choose_options(num_nodes=1, planners=[], policies=[]), ("80%",)) == ()


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("amb-aot_eager", {"backend": "aot_eager", "ratio": 0.6}),
        ("amb-inductor", {"backend": "inductor", "ratio": 0.6}),
        ("lowtide.compile", {"budget": 6000, "counts": "compiled"}),
        ("lowtide.budget", {"budget_bytes": 6000}),
    ],
)
def test_everybody_gets_the_same_bytes(
    options: ComparisonOptions, monkeypatch: pytest.MonkeyPatch, method: str, settings: dict[str, object]
) -> None:
    runs = train_as(monkeypatch, peaks=(9_999, 6_000, 5_000))
    row = run_measured(cell(method, "60%"), options, EAGER)
    assert (runs[0].model, runs[0].seed, runs[0].prepare) == ("my.module:function", 7, PEERS[method].prepare)
    assert runs[0].prepare_options == settings
    assert (row.budget_bytes, row.peak_bytes, row.outcome) == (6_000, 6_000, Outcome.COMPLETED)
    assert (row.duration, row.increase_percent, row.memory_percent) == (2_000_000_000, 100.0, 60.0)


def test_more_than_the_budget_is_said(options: ComparisonOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    train_as(monkeypatch, peaks=(0, 6_001))
    assert run_measured(cell("amb-aot_eager", "60%"), options, EAGER).outcome is Outcome.OVER


def test_bytes_in_an_arena_count(options: ComparisonOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    train_as(monkeypatch, peaks=(0, 10), report={"arena_peak_bytes": 5_900})
    assert run_measured(cell("lowtide.budget", "60%"), options, EAGER).peak_bytes == 5_910


def train_in_arenas(
    monkeypatch: pytest.MonkeyPatch, *, outside: list[int], smallest: int = 0, error_type: str = "LowtideOutOfMemory"
) -> list[Any]:
    """Trainings that fill the arena they are given, with that many bytes outside, one run after the other."""
    runs: list[TrainingRun] = []

    def train(run: TrainingRun, _: object) -> TrainingResult:
        arena_bytes = run.prepare_options["budget_bytes"]
        step = StepResult(
            loss=1.0, wall_seconds=9.0, cpu_seconds=2.0, start_bytes=0, peak_bytes=outside[len(runs)], end_bytes=0
        )
        runs.append(run)
        if arena_bytes < smallest:
            raise ChildFailed("no", target="t", error_type=error_type, child_traceback="", return_code=0)
        report = {"arena_peak_bytes": arena_bytes}
        return TrainingResult(run=run, steps=(step, step), prepare_seconds=0.0, digests={}, tensors=None, report=report)

    monkeypatch.setattr(measured, "_train", train)
    return runs


def test_the_arena_makes_room_for_what_was_outside(options: ComparisonOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = train_in_arenas(monkeypatch, outside=[100, 130, 130])
    row = run_measured(cell("lowtide.budget", "60%"), options, EAGER)
    assert [run.prepare_options["budget_bytes"] for run in runs] == [6_000, 5_900, 5_870]
    assert (row.outcome, row.peak_bytes) == (Outcome.COMPLETED, 6_000)


def test_no_more_tries_than_three(options: ComparisonOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = train_in_arenas(monkeypatch, outside=[100, 200, 300])
    row = run_measured(cell("lowtide.budget", "60%"), options, EAGER)
    assert len(runs) == 3
    assert (row.outcome, row.peak_bytes) == (Outcome.OVER, 6_000 + 100)


def test_of_tries_that_all_are_over_the_lowest_counts(
    options: ComparisonOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = train_in_arenas(monkeypatch, outside=[20, 400, 900])
    row = run_measured(cell("lowtide.budget", "60%"), options, EAGER)
    assert [run.prepare_options["budget_bytes"] for run in runs] == [6_000, 5_980, 5_600]
    assert (row.outcome, row.peak_bytes) == (Outcome.OVER, 6_020)


def test_a_try_that_crashes_is_no_result(options: ComparisonOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    train_in_arenas(monkeypatch, outside=[100, 0], smallest=5_950, error_type="ZeroDivisionError")
    assert run_measured(cell("lowtide.budget", "60%"), options, EAGER).outcome is Outcome.FAILED


@pytest.mark.parametrize(("is_same", "bits"), [(True, True), (False, False)])
def test_eager_is_trained_in_two_processes_to_see_whether_it_repeats(
    options: ComparisonOptions, monkeypatch: pytest.MonkeyPatch, *, is_same: bool, bits: bool
) -> None:
    hashes = iter(("same", "same" if is_same else "other"))
    seconds = iter((100.0, 8.0, 7.0, 100.0, 4.0, 5.0))

    def train(run: TrainingRun, _: object) -> TrainingResult:
        digests = {"loss": TensorDigest(dtype="float32", shape=(), sha256=next(hashes))}
        steps = tuple(
            StepResult(loss=1.0, wall_seconds=9.0, cpu_seconds=next(seconds), start_bytes=0, peak_bytes=10, end_bytes=0)
            for _ in range(3)
        )
        return TrainingResult(run=run, steps=steps, prepare_seconds=0.0, digests=digests, tensors=None, report={})

    monkeypatch.setattr(measured, "_train", train)
    row = run_measured(cell("eager"), options, None)
    assert (row.outcome, row.bits is not None) == (Outcome.COMPLETED, bits)
    assert row.duration == 6_000_000_000  # median of all steps but each process's first
    assert next(hashes, None) is None


def test_where_a_smaller_arena_does_not_do_the_row_is_over_the_budget(
    options: ComparisonOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = train_in_arenas(monkeypatch, outside=[100, 0], smallest=5_950)
    row = run_measured(cell("lowtide.budget", "60%"), options, EAGER)
    assert len(runs) == 2
    assert (row.outcome, row.peak_bytes) == (Outcome.OVER, 6_100)


def test_an_arena_that_would_be_gone_is_not_tried(options: ComparisonOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    runs = train_in_arenas(monkeypatch, outside=[7_000])
    assert run_measured(cell("lowtide.budget", "60%"), options, EAGER).outcome is Outcome.OVER
    assert len(runs) == 1


@pytest.mark.parametrize(
    ("error_type", "outcome"),
    [
        ("InfeasibleBudget", Outcome.INFEASIBLE),
        ("NoPlanFound", Outcome.TIMEOUT),
        ("LowtideOutOfMemory", Outcome.GAVE_UP),
        ("ZeroDivisionError", Outcome.FAILED),
        (None, Outcome.FAILED),
    ],
)
def test_a_training_that_ends_badly_is_a_row(
    options: ComparisonOptions, monkeypatch: pytest.MonkeyPatch, error_type: str | None, outcome: Outcome
) -> None:
    def fail(run: TrainingRun, should_stop: object) -> TrainingResult:
        raise ChildFailed(
            f"'t' raised {error_type} in the child process: so and so\nand more",
            target="t",
            error_type=error_type,
            child_traceback="",
            return_code=0,
        )

    monkeypatch.setattr(measured, "_train", fail)
    row = run_measured(cell("lowtide.compile", "60%"), options, EAGER)
    assert (row.outcome, row.reason, row.needed_bytes) == (outcome, "so and so", None)


def test_a_line_that_announces_the_next_is_told_with_it(
    options: ComparisonOptions, monkeypatch: pytest.MonkeyPatch
) -> None:
    told = "found no compiled frames. Skipped frames:\n  - forward of Sequential: in a file that is skipped\n  - and"

    def fail(run: TrainingRun, should_stop: object) -> TrainingResult:
        message = f"'t' raised RuntimeError in the child process: {told}"
        raise ChildFailed(message, target="t", error_type="RuntimeError", child_traceback="", return_code=0)

    monkeypatch.setattr(measured, "_train", fail)
    assert run_measured(cell("amb-inductor", "60%"), options, EAGER).reason == (
        "found no compiled frames. Skipped frames: forward of Sequential: in a file that is skipped"
    )


def test_without_eager_there_is_nothing_to_compare_with(options: ComparisonOptions) -> None:
    failed = replace(EAGER, peak_bytes=None, duration=None)
    row = run_measured(cell("checkpoint"), options, failed)
    assert row.reason == "eager could not be trained, so there is nothing to compare with"


def test_a_missing_meter_ends_it(options: ComparisonOptions, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(run: TrainingRun, should_stop: object) -> TrainingResult:
        raise MeterUnavailable("not built")

    monkeypatch.setattr(measured, "_train", fail)
    with pytest.raises(MeterUnavailable):
        run_measured(cell("checkpoint"), options, EAGER)
