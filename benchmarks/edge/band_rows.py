"""What the benchmarks of row bands share: how their models are planned, and how stretches are written down."""

from __future__ import annotations

import argparse
from collections.abc import Sequence

from benchmarks.edge.runs import Row
from lowtide import api
from lowtide.emit.bands.search import BandChoice
from lowtide.emit.means import PlanSmallest
from lowtide.ir import Graph, PlanResult
from lowtide.planning.addresses import AUTO_LAYOUT

_MOST_NAMED = 4


def smallest_planner(options: argparse.Namespace, *, layout: str | None = AUTO_LAYOUT) -> PlanSmallest:
    """What plans for the smallest footprint, or peak where the runtime takes no addresses."""

    def plan_smallest(graph: Graph, *, keep_order: bool, max_copies: int | None) -> PlanResult:
        return api.plan(
            graph,
            budget="min",
            layout=layout,
            keep_order=keep_order,
            max_copies=max_copies,
            bound=False,
            threads=1,
            time_limit_seconds=options.seconds,
            seed=options.seed,
        )

    return plan_smallest


def stretches_of(choice: BandChoice) -> list[Row]:
    """The first and the last operator of each stretch, and its number of bands."""
    return [
        {"first": stretch.positions.start, "last": stretch.positions.end - 1, "num_bands": num_bands}
        for stretch, num_bands in choice.bands
    ]


def stretches_cell(stretches: Sequence[Row]) -> str:
    """Operators and bands of each, or of many how many there are."""
    if len(stretches) <= _MOST_NAMED:
        return ", ".join(f"{each['first']}–{each['last']}: {each['num_bands']}" for each in stretches)
    numbers = [each["num_bands"] for each in stretches]
    return f"{len(stretches)} stretches: {min(numbers)} to {max(numbers)}"
