"""Gap cover: what overloads a stage must be evicted across it, and what is evicted must come back.

For every stage whose load exceeds the budget, the sizes of the families evicted across it cover the excess; one 0/1
variable for each execution of a node between two of its outputs' uses, at the cost of the node. Seconds for a thousand
nodes, but loose at tight budgets: a cheap node counts as cheap even where its inputs are long dead.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

from lowtide.ir import Graph, Interval, Scope
from lowtide.planners.bounds.bound import Bound
from lowtide.planners.bounds.covering import CoverProgram
from lowtide.planners.bounds.families import Stages, fullest_stages, stages_from_graph, stages_within

__all__ = ["gap_cover_bound"]


def gap_cover_bound(
    graph: Graph,
    budget_bytes: int,
    *,
    are_whole: bool = True,
    max_stages: int | None = None,
    time_limit_seconds: float | None = None,
) -> Bound:
    """Bound the duration of any plan of a graph in its given order.

    Args:
        graph: What is planned.
        budget_bytes: Most bytes resident at any step.
        are_whole: Whether to solve with whole variables (MIP, tighter) or without (LP, faster).
        max_stages: Use only so many overloaded stages, spread out and the fullest of their neighbourhoods; None: all
            (tightest).
        time_limit_seconds: Wall-clock time of the solver, or None; the bound reached by then holds.
    """
    stages = stages_from_graph(graph)
    overloaded = fullest_stages(stages, stages.overloaded(budget_bytes), max_stages=max_stages)
    program = _program(stages, budget_bytes, overloaded)
    solve = program.solve_mip if are_whole else program.solve_lp
    proven = solve(time_limit_seconds=time_limit_seconds)
    method = "gap-cover-mip" if are_whole else "gap-cover-lp"
    return Bound(stages.baseline_duration + proven.cost, Scope(), method, is_infeasible=proven.is_infeasible)


def _program(stages: Stages, budget_bytes: int, overloaded: Sequence[int]) -> CoverProgram:
    program = CoverProgram()
    cover: dict[int, list[tuple[int, int]]] = {stage: [] for stage in overloaded}
    for node, indices in enumerate(stages.families_by_node):
        families = [stages.families[index] for index in indices if stages.families[index].can_return]
        points = sorted({stage for family in families for stage in family.uses})
        runs = {Interval(*pair): program.add_variable(cost=stages.duration_by_node[node]) for pair in pairwise(points)}
        for family in families:
            for gap in family.gaps():
                within_gap = stages_within(overloaded, gap) if family.size_bytes else ()
                evicted_at = [stage for stage in within_gap if not family.is_pinned_at(stage)]
                within = [run for span, run in runs.items() if gap.start - 1 <= span.start and span.end <= gap.end]
                if not evicted_at:
                    continue
                is_evicted = within[0]
                if len(within) > 1:
                    is_evicted = program.add_variable()
                    program.add_implication(is_evicted, needs_one_of=within)
                for stage in evicted_at:
                    cover[stage].append((is_evicted, family.size_bytes))
    for stage, terms in cover.items():
        program.add_row(terms, least=stages.load_bytes[stage] - budget_bytes)
    return program
