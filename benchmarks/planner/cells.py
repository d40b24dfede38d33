"""One cell: a contender on a graph, within a budget, for so long; and what came of it."""

from __future__ import annotations

from dataclasses import asdict, dataclass, fields, replace
from pathlib import Path
from random import Random
from typing import Any

from lowtide.importers.generate import GENERATE_PREFIX, graph_from_spec
from lowtide.importers.instances import load_any_graph
from lowtide.ir import Graph

BOUND = "bound"
"""The contender that proposes no plan: the lower bound of the order, ``lowtide.planners.bounds``."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """What is measured.

    Attributes:
        part: Of the benchmark; see ``parts``.
        instance: A spec of ``lowtide.importers.generate``, or a file's stem in the part's folder.
        percent: Budget in percent of the peak of the graph's own order, rounded down to whole bytes.
        contender: A planner's name, or ``bound``.
        seconds: Time limit on the clock.
        seed: Of the planner.
        threads: Of the planner.
        order: ``fixed``, or ``free`` where the planner may leave the given order.
        max_copies: Most executions of a node, or None.
        input_order: 0: the graph's own order; else the seed of a random topological order in its place.
    """

    part: str
    instance: str
    percent: int
    contender: str
    seconds: float = 10.0
    seed: int = 0
    threads: int = 2
    order: str = "fixed"
    max_copies: int | None = None
    input_order: int = 0

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a cell. Percents are of the graph's own order: TDI, bound, peak.

    Attributes:
        status: Claimed by the planner; or ``refused``, ``failed``, ``killed`` (ran far beyond its limit).
        num_nodes: Of the graph.
        working_set_percent: Largest working set.
        tdi_percent: Of the plan, replayed by the referee; None without a plan within the budget.
        bound_percent: Proven by the contender within ``scope``, or None.
        scope: Order and copies of which status and bound speak, as in plan.json.
        peak_percent: Of the plan, or of the best try.
        num_recomputes: Of the plan, or None.
        cpu_seconds: Of all threads, planning only.
        wall_seconds: Likewise, on the clock.
        rss_before_bytes: Resident memory of the process before planning (Python, libraries, the graph).
        rss_peak_bytes: Most resident memory of the process.
        course: [seconds, TDI or None, bound or None] whenever one became better.
        message: Why there is nothing more, or "".
    """

    status: str
    num_nodes: int = 0
    working_set_percent: float | None = None
    tdi_percent: float | None = None
    bound_percent: float | None = None
    scope: dict[str, Any] | None = None
    peak_percent: float | None = None
    num_recomputes: int | None = None
    cpu_seconds: float = 0.0
    wall_seconds: float = 0.0
    rss_before_bytes: int = 0
    rss_peak_bytes: int = 0
    course: tuple[tuple[float, float | None, float | None], ...] = ()
    message: str = ""

    @property
    def is_settled(self) -> bool:
        """Whether more time changes nothing."""
        return self.status in ("optimal", "infeasible", "refused")


def cell_from_dict(document: dict[str, Any]) -> Cell:
    return Cell(**{field.name: document[field.name] for field in fields(Cell)})


def outcome_from_dict(document: dict[str, Any]) -> Outcome:
    course = tuple((float(at), tdi, bound) for at, tdi, bound in document["course"])
    return Outcome(**{**document, "course": course})


def load_instance(name: str, folder: Path | None) -> Graph | None:
    """The graph of a name; None for a file that is not there."""
    if name.startswith(GENERATE_PREFIX):
        return graph_from_spec(name)
    path = None if folder is None else folder / f"{name}.json"
    return load_any_graph(path) if path is not None and path.is_file() else None


def reordered(graph: Graph, seed: int) -> Graph:
    """The same graph with a random topological order as the given one; seed 0: as it is.

    Every node that can go next is as likely as any other.
    """
    if seed == 0:
        return graph
    producer_by_value = {value.name: node.name for node in graph.nodes for value in node.outputs}
    sources_by_node = {
        node.name: {*node.after, *(producer_by_value[name] for name in node.inputs if name in producer_by_value)}
        for node in graph.nodes
    }
    readers_by_node: dict[str, list[str]] = {name: [] for name in graph.order}
    for name in graph.order:
        for source in sources_by_node[name]:
            readers_by_node[source].append(name)
    num_waiting = {name: len(sources) for name, sources in sources_by_node.items()}
    ready = [name for name in graph.order if not num_waiting[name]]
    rng, order = Random(seed), []
    while ready:
        position = rng.randrange(len(ready))
        ready[position], ready[-1] = ready[-1], ready[position]
        order.append(ready.pop())
        for reader in sorted(readers_by_node[order[-1]]):
            num_waiting[reader] -= 1
            if not num_waiting[reader]:
                ready.append(reader)
    return replace(graph, order=tuple(order))
