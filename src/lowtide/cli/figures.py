"""Plans and analyses as small tables for people."""

from __future__ import annotations

from collections.abc import Sequence

from lowtide import api
from lowtide.api import Analysis, Holding
from lowtide.cli.means import describe_less
from lowtide.cli.output import count_of, print_facts, print_table, print_text
from lowtide.ir import Graph, Plan, PlanResult, Scope, Status
from lowtide.referee import VerifiedPlan
from lowtide.units import Bytes, format_bytes

__all__ = ["print_analysis", "print_result"]

_NUM_HOLDINGS = 3


def print_result(graph: Graph, result: PlanResult, budget: str, *, without_bands_bytes: Bytes | None = None) -> None:
    """Print what came of planning.

    Args:
        graph: What was planned.
        result: What came of it.
        budget: What the user wrote.
        without_bands_bytes: Of a graph in row bands the plain peak of the model without them, else None.
    """
    has_bands = without_bands_bytes is not None
    plain_bytes = result.baseline_peak_bytes if without_bands_bytes is None else without_bands_bytes
    in_bands = f" without bands, {format_bytes(result.baseline_peak_bytes)} with them" if has_bands else ""
    echoed = f"{format_bytes(result.budget_bytes)} = {result.budget_bytes} bytes"
    facts = [
        ("graph", f"{graph.name or 'unnamed'}, {count_of(len(graph.nodes), 'node')}"),
        ("status", f"{result.status}, {_describe_scope(result.scope)}"),
        ("planner", f"{result.planner}, {result.solve_seconds:.2f} s"),
        ("budget", echoed if budget.strip().isdigit() else f"{budget.strip()}: {echoed}"),
        ("plain peak", f"{format_bytes(plain_bytes)}{in_bands}"),
    ]
    if result.plan is None:
        print_facts(
            [
                *facts,
                (
                    "largest node",
                    f"{result.bottleneck_node or 'none'}: {format_bytes(result.largest_working_set_bytes)}",
                ),
                ("smallest peak", f"{format_bytes(result.smallest_known_peak_bytes)}, of the plans met"),
            ]
        )
        return
    verified = api.require_plan(result, graph)
    share_percent = 100 * result.plan.peak_bytes / plain_bytes if plain_bytes else 100.0
    of_what = "the plain peak without bands" if has_bands else "the plain peak"
    bound = result.plan.lower_bound_tdi_percent
    print_facts(
        [
            *facts,
            ("planned peak", f"{format_bytes(result.plan.peak_bytes)}, {share_percent:.1f} % of {of_what}"),
            ("footprint", _describe_footprint(result.plan, result.unplaced_footprint_bytes)),
            *([("in all", _describe_gain(result.plan, plain_bytes))] if has_bands else []),
            ("TDI", f"{result.plan.tdi_percent:.3f} %, {count_of(result.num_recomputes, 'recomputation')}"),
            ("bound", "none" if bound is None else f"{bound:.3f} %, {_describe_scope(result.scope)}"),
            ("gap", "unknown" if bound is None else _gap_text(result.plan.tdi_percent - bound)),
            ("at the peak", _describe_holdings(verified)),
        ]
    )


def _describe_footprint(plan: Plan, unplaced_bytes: int | None) -> str:
    if unplaced_bytes is not None:
        return f"none fits, the least found is {format_bytes(unplaced_bytes)}: the budget holds for live bytes"
    if plan.footprint_bytes is None:
        return "no addresses: the budget is for live bytes"
    unused_bytes = plan.footprint_bytes - plan.peak_bytes
    if not unused_bytes:
        return f"{format_bytes(plan.footprint_bytes)}, nothing lost between addresses"
    share_percent = 100 * unused_bytes / plan.footprint_bytes
    return f"{format_bytes(plan.footprint_bytes)}, {share_percent:.1f} % lost between addresses"


def _describe_gain(plan: Plan, before_bytes: Bytes) -> str:
    after_bytes = plan.peak_bytes if plan.footprint_bytes is None else plan.footprint_bytes
    change = describe_less(before_bytes, after_bytes)
    return f"{format_bytes(before_bytes)} without bands -> {format_bytes(after_bytes)} with bands: {change}"


def _describe_holdings(verified: VerifiedPlan) -> str:
    holdings = api.holdings_at_peak(verified.graph, verified.replay)
    named = [
        f"{holding.name}{f' ({holding.module})' if holding.module else ''} {format_bytes(holding.size_bytes)}"
        for holding in holdings[:_NUM_HOLDINGS]
    ]
    rest = holdings[_NUM_HOLDINGS:]
    if rest:
        named.append(f"{count_of(len(rest), 'other')} {format_bytes(sum(holding.size_bytes for holding in rest))}")
    return ", ".join(named) or "nothing"


def _describe_scope(scope: Scope) -> str:
    order = {"fixed": "given order", "staged": "staged plans in the given order"}.get(scope.order, "free order")
    copies = "any number of copies" if scope.max_copies is None else f"at most {scope.max_copies} copies"
    return f"{order}, {copies}"


def print_analysis(analysis: Analysis) -> None:
    """Print where the memory goes and what could help."""
    print_facts(
        [
            ("graph", f"{analysis.graph or 'unnamed'}, {count_of(analysis.num_nodes, 'node')}"),
            ("plain peak", f"{format_bytes(analysis.baseline_peak_bytes)}, at node {analysis.peak_node}"),
            (
                "largest node",
                f"{analysis.bottleneck_node or 'none'}: {format_bytes(analysis.largest_working_set_bytes)}",
            ),
            ("smallest peak", _describe_smallest(analysis)),
        ]
    )
    print_text()
    _print_holdings(analysis.holdings)
    if analysis.points:
        print_text()
        print_table(
            ("budget", "", "planned peak", "TDI"),
            [
                (
                    f"{point.budget_percent}%",
                    format_bytes(point.budget_bytes),
                    str(point.status) if point.peak_bytes is None else format_bytes(point.peak_bytes),
                    "" if point.tdi_percent is None else f"{point.tdi_percent:.3f} %",
                )
                for point in analysis.points
            ],
            right=(0, 1, 2, 3),
        )
    print_text()
    if any(point.status is Status.FEASIBLE for point in analysis.points):
        print_text("Each budget got a share of the time: --budget B plans longer.")
    print_text(_advise(analysis))


def _print_holdings(holdings: Sequence[Holding]) -> None:
    has_modules = any(holding.module for holding in holdings)
    print_table(
        ("held at the plain peak", "made by", *(["in"] if has_modules else []), "size"),
        [
            (holding.name, holding.op, *([holding.module] if has_modules else []), format_bytes(holding.size_bytes))
            for holding in holdings
        ],
        right=(3 if has_modules else 2,),
    )


def _advise(analysis: Analysis) -> str:
    if analysis.is_node_bound and analysis.bottleneck_node is None:
        return "The graph's inputs alone need the whole peak, before anything is computed: make them smaller."
    if analysis.is_node_bound:
        return (
            f"Node {analysis.bottleneck_node!r} alone needs the whole peak: neither order nor recomputation can lower "
            "it. Make its inputs, outputs or workspace smaller, or split it."
        )
    if analysis.smallest_known_peak_bytes >= analysis.baseline_peak_bytes:
        return "No plan below the plain peak was found. Another planner or more time may find one."
    smallest_bytes = analysis.smallest_known_peak_bytes
    less = "none can have less" if _is_smallest_possible(analysis) else "--budget min looks for less"
    return f"Recomputation helps: --budget {smallest_bytes} has a plan ({format_bytes(smallest_bytes)}), {less}."


def _describe_smallest(analysis: Analysis) -> str:
    size = format_bytes(analysis.smallest_known_peak_bytes)
    if _is_smallest_possible(analysis):
        return f"{size}, what {'inputs' if analysis.bottleneck_node is None else 'the largest node'} alone must have"
    return f"{size} so far, planner {analysis.planner}"


def _is_smallest_possible(analysis: Analysis) -> bool:
    return analysis.smallest_known_peak_bytes <= analysis.largest_working_set_bytes


def _gap_text(points: float) -> str:
    """A gap that is not closed is never printed as nothing."""
    return "less than 0.001 points" if 0.0 < points < 0.0005 else f"{points:.3f} points"
