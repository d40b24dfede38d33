"""What is measured: one planner on one instance, budget and seed, and the bound of one cell."""

from __future__ import annotations

import time
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median

from lowtide.importers.generate import graph_from_spec
from lowtide.ir import Graph, Scope
from lowtide.ir.serde import load_graph
from lowtide.planners.bounds.best import best_bound
from lowtide.planners.protocol import PlanRequest
from lowtide.planners.table import planner_named
from lowtide.referee import baseline, largest_working_set, replay


@dataclass(frozen=True, slots=True)
class Cell:
    """One instance at one budget.

    Attributes:
        instance: A file's stem, or a spec of ``lowtide.importers.generate``.
        percent: Budget in percent of the peak of the given order.
        order: ``fixed`` or ``free``.
        seconds: Time limit.
    """

    instance: str
    percent: int
    order: str = "fixed"
    seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class Run:
    """What a planner did with a cell. TDI and peak in percent of the given order; TDI is None where nothing fits."""

    instance: str
    percent: int
    order: str
    planner: str
    seed: int
    threads: int
    seconds: float
    status: str
    tdi_percent: float | None
    peak_percent: float
    cpu_seconds: float
    wall_seconds: float


@dataclass(frozen=True, slots=True)
class Median:
    """The median over the seeds of a planner on a cell; a seed without a plan counts as the worst."""

    instance: str
    percent: int
    order: str
    planner: str
    num_seeds: int
    num_plans: int
    tdi_percent: float | None
    bound_percent: float | None
    gap_points: float | None
    cpu_seconds: float
    wall_seconds: float


FULL = (
    *(Cell("layered-30", percent) for percent in (80,)),
    *(Cell("layered-50", percent) for percent in (80,)),
    *(Cell("layered-250", percent, seconds=20.0) for percent in (90, 80, 60, 50)),
    *(Cell("layered-1000", percent, seconds=20.0) for percent in (90, 80, 60, 50)),
    Cell("transformer-2", 70),
    Cell("transformer-4", 70),
    *(Cell("transformer-40", percent) for percent in (90, 80, 60, 50)),
    *(Cell("transformer-80", percent) for percent in (80, 60, 50)),
    *(Cell("transformer-400", percent, seconds=30.0) for percent in (80, 50)),
    *(Cell("unet-5x8", percent) for percent in (80, 60, 50)),
    *(Cell("resnet-144", percent) for percent in (80, 60, 50)),
    *(Cell(f"generate:layered?n=250&seed={seed}", 60, order="free", seconds=20.0) for seed in range(10)),
    Cell("layered-250", 60, order="free", seconds=20.0),
    Cell("layered-1000", 80, order="free", seconds=20.0),
)
"""Every cell that lowtide says something about."""

SHORT = (
    Cell("generate:layered?n=60&seed=1", 80, seconds=2.0),
    Cell("generate:transformer?layers=8", 50, seconds=2.0),
    Cell("generate:layered?n=120&seed=1", 55, order="free", seconds=2.0),
)
"""Half a minute, without files."""


def load_instance(name: str, folder: Path | None) -> Graph | None:
    """The graph of a name; None for a file that is not there."""
    if name.startswith("generate:"):
        return graph_from_spec(name)
    path = None if folder is None else folder / f"{name}.json"
    return load_graph(path) if path is not None and path.is_file() else None


def budget_bytes_of(graph: Graph, percent: int) -> int:
    """A budget in percent of the peak of the given order, rounded down."""
    return baseline(graph).peak_bytes * percent // 100


def is_hopeless(graph: Graph, cell: Cell) -> bool:
    """Whether a generated graph has too large a working set to say anything about planners at this budget."""
    limit = 0.55 * baseline(graph).peak_bytes
    return (
        cell.order == "free"
        and cell.instance.startswith("generate:")
        and largest_working_set(graph).size_bytes >= limit
    )


def measure(graph: Graph, cell: Cell, *, planner: str, seed: int, threads: int) -> Run:
    """Let a planner plan a cell once, and replay what it proposes."""
    base, budget_bytes = baseline(graph), budget_bytes_of(graph, cell.percent)
    chosen = planner_named(planner)
    is_free = cell.order == "free" and getattr(chosen, "searches_order", False)
    request = PlanRequest(
        graph=graph,
        budget_bytes=budget_bytes,
        scope=Scope(order="free" if is_free else "fixed"),
        seed=seed,
        threads=threads,
        time_limit_seconds=cell.seconds,
    )
    cpu_started, started = time.process_time(), time.perf_counter()
    proposal = chosen.propose(request)
    cpu_seconds, wall_seconds = time.process_time() - cpu_started, time.perf_counter() - started
    replayed = base if proposal.steps is None else replay(graph, proposal.steps)
    fits = replayed.peak_bytes <= budget_bytes
    return Run(
        instance=cell.instance,
        percent=cell.percent,
        order=cell.order,
        planner=planner,
        seed=seed,
        threads=threads,
        seconds=cell.seconds,
        status=str(proposal.status),
        tdi_percent=round(100 * (replayed.duration / base.duration - 1), 4) if fits else None,
        peak_percent=round(100 * replayed.peak_bytes / base.peak_bytes, 3),
        cpu_seconds=round(cpu_seconds, 3),
        wall_seconds=round(wall_seconds, 3),
    )


def bound_percent(graph: Graph, cell: Cell, *, seconds: float) -> float | None:
    """The best lower bound on the TDI of a cell, in percent; none for free orders."""
    if cell.order != "fixed" or seconds <= 0:
        return None
    found = best_bound(graph, budget_bytes_of(graph, cell.percent), time_limit_seconds=seconds)
    if found is None or found.is_infeasible:
        return None
    return round(100 * (found.duration / graph.baseline_duration - 1), 4)


def median_of(runs: Sequence[Run], bound: float | None) -> Median:
    """The median over seeds."""
    worst = float("inf")
    tdi = median(worst if run.tdi_percent is None else run.tdi_percent for run in runs)
    has_plan = tdi < worst
    first = runs[0]
    return Median(
        instance=first.instance,
        percent=first.percent,
        order=first.order,
        planner=first.planner,
        num_seeds=len(runs),
        num_plans=sum(run.tdi_percent is not None for run in runs),
        tdi_percent=round(tdi, 4) if has_plan else None,
        bound_percent=bound,
        gap_points=round(tdi - bound, 4) if has_plan and bound is not None else None,
        cpu_seconds=round(median(run.cpu_seconds for run in runs), 3),
        wall_seconds=round(median(run.wall_seconds for run in runs), 3),
    )


def as_record(kind: str, item: Run | Median) -> dict[str, object]:
    """A JSON object for one line of results."""
    return {"record": kind, **asdict(item)}


def table(medians: Iterable[Median]) -> str:
    """One line per cell and planner, for people."""
    header = f"{'instance':34} {'budget':>6} {'order':5} {'planner':9} {'TDI %':>8} {'bound':>8} {'gap':>7}"
    lines = [f"{header} {'plans':>6} {'CPU s':>6} {'wall s':>6}"]
    lines += [
        f"{one.instance:34} {one.percent:>5}% {one.order:5} {one.planner:9} {_shown(one.tdi_percent, 8)} "
        f"{_shown(one.bound_percent, 8)} {_shown(one.gap_points, 7)} {one.num_plans:>4}/{one.num_seeds} "
        f"{one.cpu_seconds:6.1f} {one.wall_seconds:6.1f}"
        for one in medians
    ]
    return "\n".join(lines)


def _shown(number: float | None, width: int) -> str:
    return f"{'-':>{width}}" if number is None else f"{number:{width}.3f}"
