"""What ``lowtide plan`` says of a .tflite model without a budget."""

from __future__ import annotations

from lowtide import api
from lowtide.cli.bands import describe_other_means, lower_next_to_nothing
from lowtide.cli.means import describe_bound, describe_size, means_row, means_rows
from lowtide.cli.output import count_of, print_facts, print_json, print_line, print_table, print_text
from lowtide.cli.sources import IN_PLACE
from lowtide.emit.means import PlanSmallest
from lowtide.emit.tflite_analysis import TfliteAnalysis, analyze_tflite
from lowtide.importers.tflite import import_tflite
from lowtide.importers.tflite_file import read_tflite
from lowtide.ir import Graph, PlanResult
from lowtide.planning.addresses import AUTO_LAYOUT

__all__ = ["plan_smallest_within", "print_tflite_analysis", "say_what_tflite_needs"]

_MOST_SHARE = 4  # four searches share the time


def say_what_tflite_needs(
    source: str, *, planner: str, time_limit_seconds: float, seed: int, threads: int | None, as_json: bool
) -> None:
    """Analyse a .tflite model and print it.

    Raises:
        FormatError: The file is broken or of a kind that is not taken.
        MissingDependency: The extra ``tflite`` is not installed.
    """
    plan_smallest = plan_smallest_within(time_limit_seconds / _MOST_SHARE, planner=planner, seed=seed, threads=threads)
    analysis = analyze_tflite(import_tflite(read_tflite(source.removeprefix(IN_PLACE))), plan_smallest)
    if as_json:
        print_json(analysis.as_dict())
    else:
        print_tflite_analysis(analysis, source.removeprefix(IN_PLACE))


def plan_smallest_within(
    time_limit_seconds: float,
    *,
    planner: str = "search",
    seed: int = 0,
    threads: int | None = None,
    layout: str | None = AUTO_LAYOUT,
) -> PlanSmallest:
    """What plans for the smallest footprint, each time within a time limit."""

    def plan_smallest(graph: Graph, *, keep_order: bool, max_copies: int | None) -> PlanResult:
        return api.plan(
            graph,
            budget="min",
            planner=planner,
            keep_order=keep_order,
            max_copies=max_copies,
            time_limit_seconds=time_limit_seconds,
            seed=seed,
            threads=threads,
            bound=False,
            layout=layout,
        )

    return plan_smallest


def print_tflite_analysis(analysis: TfliteAnalysis, source: str) -> None:
    """Print where the arena goes and what could make it smaller."""
    bottleneck = f"{analysis.bottleneck_op} {analysis.bottleneck_node}" if analysis.bottleneck_node else "the inputs"
    print_facts(
        [
            ("model", f"{analysis.model}, {count_of(analysis.num_operators, 'operator')}"),
            ("arena now", f"{describe_size(analysis.arena_bytes)}, as TensorFlow Lite Micro packs it"),
            ("largest op", f"{describe_size(analysis.largest_working_set_bytes)}: {bottleneck}"),
        ]
    )
    print_text()
    print_table(
        ("bytes", "arena", "saved", "by"),
        [
            *means_rows(analysis, now_bytes=analysis.arena_bytes, costs="estimated"),
            means_row("order and elementwise operators in place", analysis.in_place_bytes, analysis.arena_bytes),
        ],
        right=(0, 1, 2),
    )
    print_text()
    _print_advice(analysis, source)


def _print_advice(analysis: TfliteAnalysis, source: str) -> None:
    if analysis.is_op_bound:
        print_text(describe_bound(analysis.bottleneck_node))
    if _may_bands_help(analysis):
        print_line(describe_other_means(source, has_budget=False))
    if analysis.in_place_bytes < min(analysis.best_bytes, analysis.arena_bytes):
        print_text(
            f"In place: plan {IN_PLACE}{source} instead. Reference kernels give the same bits then (--check shows it); "
            "no document promises it for optimised ones, so compare outputs on your target."
        )
    if analysis.best_bytes < analysis.arena_bytes:
        print_line(f"lowtide plan {source} --budget min -o plan.json")
        print_line(f"lowtide export {source} plan.json -o smaller.tflite --check")
    elif not analysis.is_op_bound:
        print_text("Nothing smaller than the arena now was found. More time (--time-limit) may find it.")
    if analysis.missing_ops:
        print_text(f"The stock TensorFlow Lite Micro has no kernel for: {', '.join(analysis.missing_ops)}.")


def _may_bands_help(analysis: TfliteAnalysis) -> bool:
    if analysis.is_op_bound:
        return analysis.bottleneck_node is not None  # inputs stay whole
    return lower_next_to_nothing(analysis.arena_bytes, analysis.best_bytes)
