"""``lowtide plan``: a plan within a budget, or without a budget what holds the memory and what could help."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from lowtide import api
from lowtide.api import Analysis
from lowtide.cli.bands import (
    BANDS_HELP,
    NO_BANDS,
    BandsAsked,
    check_bands_can_be,
    choose_banded_model,
    describe_other_means,
    keep_bands_in_plan,
    lower_next_to_nothing,
    print_chosen_bands,
)
from lowtide.cli.executorch import say_what_executorch_needs
from lowtide.cli.exit_codes import ExitCode
from lowtide.cli.figures import print_analysis, print_result
from lowtide.cli.output import (
    StdoutKeptClean,
    check_writable,
    print_error,
    print_json,
    print_line,
    print_note,
    print_text,
)
from lowtide.cli.progress import AnalysisLine, Interruption, ProgressLine
from lowtide.cli.report import REPORT_HELP, check_report
from lowtide.cli.sources import (
    DIM_HELP,
    EXECUTORCH,
    SOURCE_HELP,
    is_onnx,
    is_tflite,
    load_source,
)
from lowtide.cli.targets import add_working_folder_to_path
from lowtide.cli.tflite import plan_smallest_within, say_what_tflite_needs
from lowtide.errors import InputError
from lowtide.ir import Graph, Plan, PlanResult
from lowtide.ir.serde import save_plan
from lowtide.planners.table import PLANNERS
from lowtide.planning.addresses import AUTO_LAYOUT, NO_LAYOUT, choose_layouter
from lowtide.planning.facts import gather_facts, read_budget
from lowtide.planning.options import build_request, choose_planner
from lowtide.reports.files import save_report
from lowtide.reports.plan_report import report_of_plan
from lowtide.units import Budget, Bytes, format_bytes

__all__ = ["plan"]

_ANALYSIS_SECONDS = 30.0
_NUM_MEANS = 3  # offsets, order, recomputation: a search each


def plan(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help=SOURCE_HELP)],
    budget: Annotated[
        str | None,
        typer.Option(metavar="B", help="Bytes, 1.5GiB, 60% of the plain peak, or min. Without it: an analysis."),
    ] = None,
    planner: Annotated[str, typer.Option(metavar="NAME", help=f"{', '.join(PLANNERS)}, or pkg.mod:Class.")] = "search",
    time_limit: Annotated[
        float | None,
        typer.Option(
            metavar="S",
            help="Seconds for planner and bound. By default 30 without --budget; with it the planner takes what it "
            "needs, bound and addresses about 10 each at most.",
        ),
    ] = None,
    seed: Annotated[int, typer.Option(metavar="N", help="Same seed and threads, same plan.")] = 0,
    threads: Annotated[int | None, typer.Option(metavar="N", help="Threads; all by default.")] = None,
    keep_order: Annotated[bool, typer.Option("--keep-order", help="Refuse plans that leave the given order.")] = False,
    max_copies: Annotated[int | None, typer.Option(metavar="C", help="Most executions of one node.")] = None,
    layout: Annotated[
        str,
        typer.Option(
            metavar="NAME",
            help="best_fit, exact: addresses within the budget; none: live bytes; auto: best_fit, else none.",
        ),
    ] = AUTO_LAYOUT,
    output: Annotated[Path | None, typer.Option("--output", "-o", metavar="FILE", help="Write the plan here.")] = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help=REPORT_HELP)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON object.")] = False,
    dim: Annotated[list[str] | None, typer.Option(metavar="NAME=SIZE", help=DIM_HELP)] = None,
    bands: Annotated[str, typer.Option(metavar="auto|off|N", help=BANDS_HELP)] = NO_BANDS,
) -> int:
    """Plan SOURCE within a budget, or say what holds its memory."""
    _check_output(output, budget)
    _check_bands(bands, budget, source)
    _check_report(report, budget)
    add_working_folder_to_path()
    if budget is None and is_tflite(source):
        say_what_tflite_needs(
            source,
            planner=planner,
            time_limit_seconds=_ANALYSIS_SECONDS if time_limit is None else time_limit,
            seed=seed,
            threads=threads,
            as_json=as_json,
        )
        return ExitCode.DONE
    if budget is None and source.startswith(tuple(EXECUTORCH)):
        seconds = (_ANALYSIS_SECONDS if time_limit is None else time_limit) / _NUM_MEANS
        say_what_executorch_needs(
            source, plan_smallest_within(seconds, planner=planner, seed=seed, threads=threads), as_json=as_json
        )
        return ExitCode.DONE
    layouter = _layouter_for(source, layout)
    with StdoutKeptClean():
        original = load_source(source, dims=dim or ())
        if bands != NO_BANDS:
            _check_before_bands(
                original, budget or "", planner, layouter, max_copies=max_copies, seed=seed, threads=threads,
                time_limit_seconds=time_limit,
            )  # fmt: skip
        asked = BandsAsked(source, bands, dim or ())
        banded = None if bands == NO_BANDS else choose_banded_model(asked)
    graph = original if banded is None else banded.source.graph
    if bands != NO_BANDS and not as_json:
        print_chosen_bands(banded)
    outcome: Analysis | PlanResult
    with StdoutKeptClean(), Interruption() as interruption:
        if budget is None:
            with AnalysisLine() as analysis_line:
                outcome = api.analyze(
                    graph,
                    planner=planner,
                    seed=seed,
                    threads=threads,
                    layout=layouter,
                    on_point=analysis_line.update,
                    should_stop=interruption.should_stop,
                    time_limit_seconds=_ANALYSIS_SECONDS if time_limit is None else time_limit,
                )
        else:
            with ProgressLine(graph.baseline_duration) as progress_line:
                outcome = api.plan(
                    graph,
                    budget=_budget_of(original, budget) if banded is not None else budget,
                    planner=planner,
                    keep_order=keep_order,
                    max_copies=max_copies,
                    time_limit_seconds=time_limit,
                    seed=seed,
                    threads=threads,
                    layout=layouter,
                    on_progress=progress_line.update,
                    should_stop=interruption.should_stop,
                )
    if isinstance(outcome, Analysis):
        code = _finish_analysis(outcome, as_json=as_json)
        if not as_json:
            _point_beyond_plans(outcome, source, dim or ())
    else:
        kept = None
        if outcome.plan is not None:
            kept = outcome.plan if banded is None else keep_bands_in_plan(outcome.plan, banded, original, asked)
        without_bands_bytes = None if banded is None else gather_facts(original).baseline.peak_bytes
        said = _describe_budget(budget or "", without_bands_bytes)
        code = _finish_plan(
            graph, outcome, output, kept=kept, budget=said, without_bands_bytes=without_bands_bytes, as_json=as_json
        )
        if bands == NO_BANDS:
            _point_beyond_plan(outcome, source, is_smallest=budget == "min", as_json=as_json)
        _write_report(original, kept, report, as_json=as_json)
    return ExitCode.INTERRUPTED if interruption.is_requested else code


def _layouter_for(source: str, layout: str) -> str:
    """Who gives addresses, as far as the runtime of SOURCE takes any."""
    if is_onnx(source):  # ONNX Runtime takes every tensor from malloc
        return NO_LAYOUT
    needs_addresses = source.startswith(tuple(EXECUTORCH))
    return "best_fit" if needs_addresses and layout == AUTO_LAYOUT else layout


def _check_output(output: Path | None, budget: str | None) -> None:
    """Find out before a long search whether its result can be written."""
    if output is None:
        return
    if budget is None:
        raise InputError(f"-o {output}: without --budget there is no plan to write: add --budget, or leave out -o")
    check_writable(output)


def _check_bands(bands: str, budget: str | None, source: str) -> None:
    if bands == NO_BANDS:
        return
    check_bands_can_be(source, bands, called="SOURCE")
    if budget is None:
        raise InputError(f"--bands {bands}: without --budget there is nothing to plan: add --budget")


def _budget_of(original: Graph, budget: str) -> Budget:
    """A percentage is of the model without bands, since that is what it would be compared with."""
    return budget if budget == "min" else read_budget(gather_facts(original), budget)


def _describe_budget(budget: str, without_bands_bytes: Bytes | None) -> str:
    if without_bands_bytes is None or "%" not in budget:
        return budget
    return f"{budget.strip()} of {format_bytes(without_bands_bytes)}, the plain peak without bands"


def _check_before_bands(
    original: Graph,
    budget: str,
    planner: str,
    layout: str | None,
    *,
    max_copies: int | None,
    seed: int,
    threads: int | None,
    time_limit_seconds: float | None,
) -> None:
    """Find out before bands are chosen, which may take long, whether the other options are right."""
    _budget_of(original, budget)
    choose_planner(planner)
    choose_layouter(layout)
    build_request(
        original,
        max_copies=max_copies,
        seed=seed,
        threads=threads,
        time_limit_seconds=time_limit_seconds,
        on_progress=None,
        should_stop=None,
    )


def _check_report(report: Path | None, budget: str | None) -> None:
    if report is not None and budget is None:
        raise InputError(f"--report {report}: without --budget there is no plan to show: add --budget")
    check_report(report)


def _write_report(original: Graph, plan: Plan | None, report: Path | None, *, as_json: bool) -> None:
    """What ``lowtide report`` makes of the plan, too: row bands beside the model without them."""
    if report is None or plan is None:
        return
    save_report(report_of_plan(original, api.verify(original, plan)), report)
    if not as_json:
        print_text(f"Report written to {report}")


def _finish_analysis(analysis: Analysis, *, as_json: bool) -> ExitCode:
    if as_json:
        print_json(analysis.as_dict())
    else:
        print_analysis(analysis)
    return ExitCode.DONE


def _point_beyond_plans(analysis: Analysis, source: str, dims: Sequence[str]) -> None:
    """Name what else may help where no plan lowers the peak, or by next to nothing."""
    others = describe_other_means(source, dims=dims, has_budget=False)
    is_little = lower_next_to_nothing(analysis.baseline_peak_bytes, analysis.smallest_known_peak_bytes)
    if others and is_little and not _is_input_bound(analysis):
        print_line(others)


def _point_beyond_plan(result: PlanResult, source: str, *, is_smallest: bool, as_json: bool) -> None:
    """The same where a budget has no plan, or the smallest one is about the plain peak."""
    others = describe_other_means(source, has_budget=True)
    if not others or _is_input_bound(result):
        return
    if result.plan is None:
        print_note(others)
    elif is_smallest and not as_json and lower_next_to_nothing(result.baseline_peak_bytes, result.plan.peak_bytes):
        print_line(others)


def _is_input_bound(found: Analysis | PlanResult) -> bool:
    """Whether inputs alone need the whole peak, which no bands split either."""
    return found.bottleneck_node is None and found.largest_working_set_bytes >= found.baseline_peak_bytes


def _finish_plan(
    graph: Graph,
    result: PlanResult,
    output: Path | None,
    *,
    kept: Plan | None,
    budget: str,
    without_bands_bytes: Bytes | None,
    as_json: bool,
) -> ExitCode:
    """Write the plan that is kept, print the figures, choose the exit code."""
    is_written = kept is not None and output is not None
    if kept is not None and output is not None:
        save_plan(kept, output)
    if as_json:
        print_json(result.as_dict())
    else:
        print_result(graph, result, budget, without_bands_bytes=without_bands_bytes)
    if is_written and not as_json:
        print_text(f"Plan written to {output}")
    if result.plan is None:
        print_error(api.explain_missing_plan(result))
    elif result.unplaced_footprint_bytes is not None:
        print_note("no addresses within the budget were found: --layout best_fit insists on them, more time may help")
    return ExitCode.DONE if result.plan is not None else ExitCode.NO_PLAN
