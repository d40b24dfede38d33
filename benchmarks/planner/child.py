"""``python -m benchmarks.planner.child``: measure one cell; a request on stdin, an outcome on stdout, both JSON.

A process of its own, so that memory and CPU time are this cell's alone, and a planner that does not end can be ended.
"""

from __future__ import annotations

import json
import sys
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from benchmarks.planner.cells import BOUND, Cell, Outcome, cell_from_dict, load_instance, reordered
from lowtide.errors import LowtideError
from lowtide.ir import Graph, Incumbent, Scope
from lowtide.ir.plan import increase_percent
from lowtide.planners.bounds import Bound
from lowtide.planners.protocol import Planner, PlanRequest
from lowtide.planners.table import planner_named
from lowtide.referee import baseline, largest_working_set, replay


class Clock:
    """CPU and wall seconds since it was made."""

    def __init__(self) -> None:
        self._cpu, self._wall = time.process_time(), time.perf_counter()

    def seconds(self) -> float:
        return time.perf_counter() - self._wall

    def both(self) -> dict[str, Any]:
        """The two of them, as an outcome holds them."""
        return {
            "cpu_seconds": round(time.process_time() - self._cpu, 3),
            "wall_seconds": round(self.seconds(), 3),
        }


def main() -> int:
    request = json.loads(sys.stdin.read())
    cell = cell_from_dict(request["cell"])
    graph = load_instance(cell.instance, Path(request["folder"]) if request["folder"] else None)
    if graph is None:
        print(json.dumps(asdict(Outcome(status="failed", message=f"no graph {cell.instance!r}"))))
        return 0
    print(json.dumps(asdict(measure(graph, cell))))
    return 0


def measure(graph: Graph, cell: Cell) -> Outcome:
    """Measure a cell in this process."""
    own = baseline(graph)
    budget_bytes = own.peak_bytes * cell.percent // 100
    facts = measure_facts(graph)
    given = reordered(graph, cell.input_order)
    try:
        if cell.contender == BOUND:
            return _bound(given, budget_bytes, cell, facts)
        return _plan(given, budget_bytes, own.peak_bytes, cell, facts)
    except LowtideError as error:
        return Outcome(status="refused", message=" ".join(str(error).split()), **facts)


def measure_facts(graph: Graph) -> dict[str, Any]:
    """What holds of a graph whoever plans it."""
    working_set_percent = 100 * largest_working_set(graph).size_bytes / baseline(graph).peak_bytes
    return {"num_nodes": len(graph.nodes), "working_set_percent": round(working_set_percent, 2)}


def _plan(graph: Graph, budget_bytes: int, own_peak_bytes: int, cell: Cell, facts: dict[str, Any]) -> Outcome:
    planner = planner_named(cell.contender)
    scope = Scope(_order(planner, cell), cell.max_copies)
    course: list[tuple[float, float | None, float | None]] = []
    rss_before_bytes = resident_bytes("VmRSS")
    clock = Clock()

    def note(incumbent: Incumbent) -> None:
        tdi, bound = (_tdi(graph, number) for number in (incumbent.duration, incumbent.lower_bound_duration))
        course.append((round(clock.seconds(), 3), tdi, bound))

    proposal = planner.propose(
        PlanRequest(
            graph=graph,
            budget_bytes=budget_bytes,
            scope=scope,
            seed=cell.seed,
            threads=cell.threads,
            time_limit_seconds=cell.seconds,
            on_progress=note,
        )
    )
    took = clock.both()
    replayed = None if proposal.steps is None else replay(graph, proposal.steps)
    fits = replayed is not None and replayed.peak_bytes <= budget_bytes
    return Outcome(
        status=str(proposal.status),
        tdi_percent=_tdi(graph, replayed.duration) if replayed is not None and fits else None,
        bound_percent=_tdi(graph, proposal.lower_bound_duration),
        scope={"order": scope.order, "max_copies": scope.max_copies},
        peak_percent=None if replayed is None else round(100 * replayed.peak_bytes / own_peak_bytes, 3),
        num_recomputes=replayed.num_recomputes if replayed is not None and fits else None,
        rss_before_bytes=rss_before_bytes,
        rss_peak_bytes=resident_bytes("VmHWM"),
        course=tuple(course),
        **took,
        **facts,
    )


def _order(planner: Planner, cell: Cell) -> str:
    """The widest order of the cell that the planner searches."""
    if getattr(planner, "searches_staged_only", False):
        return "staged"
    return cell.order if getattr(planner, "searches_order", False) else "fixed"


def _bound(graph: Graph, budget_bytes: int, cell: Cell, facts: dict[str, Any]) -> Outcome:
    rss_before_bytes = resident_bytes("VmRSS")
    clock = Clock()
    found = _found_bound(graph, budget_bytes, cell)
    took = clock.both()
    is_infeasible = found is not None and found.is_infeasible
    return Outcome(
        status="infeasible" if is_infeasible else "timeout",
        bound_percent=None if found is None or is_infeasible else _tdi(graph, found.duration),
        scope={"order": cell.order, "max_copies": None},
        rss_before_bytes=rss_before_bytes,
        rss_peak_bytes=resident_bytes("VmHWM"),
        message="" if found is None else found.method,
        **took,
        **facts,
    )


def _found_bound(graph: Graph, budget_bytes: int, cell: Cell) -> Bound | None:
    """What ``lowtide plan`` would prove for the order of the cell."""
    from lowtide.planners.bounds import best_bound, order_free_bound
    from lowtide.planners.cpsat import small_graph_bound

    if cell.order != "fixed":
        return order_free_bound(graph, budget_bytes, time_limit_seconds=cell.seconds)
    ends = time.monotonic() + cell.seconds
    relaxed = best_bound(graph, budget_bytes, time_limit_seconds=cell.seconds)
    if relaxed is not None and (relaxed.is_infeasible or relaxed.method == "baseline"):
        return relaxed
    closed = small_graph_bound(graph, budget_bytes, time_limit_seconds=ends - time.monotonic())
    found = [bound for bound in (relaxed, closed) if bound is not None]
    return max(found, key=lambda bound: (bound.is_infeasible, bound.duration), default=None)


def _tdi(graph: Graph, duration: int | None) -> float | None:
    return None if duration is None else round(increase_percent(duration, graph.baseline_duration), 4)


def resident_bytes(field: str) -> int:
    """Memory of this process: ``VmRSS`` now, ``VmHWM`` at most so far; 0 where the system does not say."""
    status = Path("/proc/self/status")
    if not status.is_file():
        return 0
    for line in status.read_text(encoding="utf-8").splitlines():
        if line.startswith(f"{field}:"):
            return int(line.split()[1]) * 1024
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
