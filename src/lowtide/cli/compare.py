"""``lowtide compare``: everybody within the same budgets, as a table, rows and a picture."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Annotated

import typer

from lowtide.cli.compare_progress import ComparisonLine
from lowtide.cli.compare_table import print_comparison
from lowtide.cli.exit_codes import ExitCode
from lowtide.cli.output import StdoutKeptClean, check_writable, print_json, print_text
from lowtide.cli.progress import Interruption
from lowtide.cli.sources import (
    DIM_HELP,
    SOURCE_HELP,
    is_existing,
    is_onnx,
    load_source,
)
from lowtide.cli.targets import add_working_folder_to_path, full_name, is_target
from lowtide.comparison.comparing import Comparison, compare_graph
from lowtide.comparison.options import ALL, ComparisonOptions, choose_options
from lowtide.comparison.peers import PEERS
from lowtide.errors import InputError, MissingDependency
from lowtide.importers.generate import GENERATE_PREFIX
from lowtide.planning.addresses import NO_LAYOUT
from lowtide.reports.comparison_files import COMPARISON_ENDINGS, check_comparison_file, save_comparison
from lowtide.units import parse_budget

__all__ = ["compare"]

_ANY_PEAK_BYTES = 2**40
_REPORT_HELP = f"Draw memory against time here: {', '.join(COMPARISON_ENDINGS[:-1])} or {COMPARISON_ENDINGS[-1]}."


def compare(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help=SOURCE_HELP)],
    budgets: Annotated[
        str, typer.Option(metavar="B,B,...", help="Each: bytes, 1.5GiB, or 60% of the plain peak.")
    ] = "80%,60%,40%",
    planners: Annotated[
        str | None, typer.Option(metavar="P,P,...", help="Names, pkg.mod:Class, or all; default: those that suit.")
    ] = None,
    policies: Annotated[
        str, typer.Option(metavar="P,P,...", help="Online policies: names, pkg.mod:Class, or all.")
    ] = ALL,
    measure: Annotated[
        bool, typer.Option("--measure", help="Really train the model, too, beside what PyTorch offers.")
    ] = False,
    peers: Annotated[
        str | None,
        typer.Option(metavar="P,P,...", help=f"Beside planners, on a model: {', '.join(PEERS)}; default: all."),
    ] = None,
    time_limit: Annotated[
        float, typer.Option(metavar="S", help="Seconds for each planner and bound within each budget.")
    ] = 10.0,
    seed: Annotated[int, typer.Option(metavar="N", help="Of all that draws.")] = 0,
    threads: Annotated[int | None, typer.Option(metavar="N", help="Of planners; all by default.")] = None,
    layout: Annotated[
        str, typer.Option(metavar="NAME", help="Addresses by best_fit or exact; none: budgets for live bytes.")
    ] = "best_fit",
    output: Annotated[
        Path | None, typer.Option("--output", "-o", metavar="FILE", help="Rows as JSON lines; those in it are kept.")
    ] = None,
    report: Annotated[Path | None, typer.Option(metavar="FILE", help=_REPORT_HELP)] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print a list of flat rows.")] = False,
    dim: Annotated[list[str] | None, typer.Option(metavar="NAME=SIZE", help=DIM_HELP)] = None,
) -> int:
    """Compare planners, the proven bound and online policies on SOURCE; with --measure also what is really run."""
    _check_files(output, report)
    wanted = _budgets(budgets)
    add_working_folder_to_path()
    target = _target_of(source)
    if measure:
        _check_measurable(source, target)
    chosen_planners = None if planners is None else _names(planners, "--planners")
    chosen_policies = _names(policies, "--policies")
    chosen_peers = None if peers is None else _names(peers, "--peers")

    def options_for(num_nodes: int | None) -> ComparisonOptions:
        return choose_options(
            num_nodes=num_nodes,
            planners=chosen_planners,
            policies=chosen_policies,
            peers=chosen_peers,
            model=target if measure else None,
            source_model=target,
            time_limit_seconds=time_limit,
            seed=seed,
            threads=threads,
            layout=NO_LAYOUT if is_onnx(source) else layout,
        )

    with StdoutKeptClean():
        options_for(None)  # before the graph is there: capturing one may take long
        graph = load_source(source if target is None else target, dims=dim or ())
        options = options_for(len(graph.nodes))
    with StdoutKeptClean(), Interruption(kept="the rows so far are kept") as interruption, ComparisonLine() as line:
        compared = compare_graph(
            graph,
            budgets=wanted,
            options=options,
            output=output,
            on_progress=line.update,
            should_stop=interruption.should_stop,
        )
    if report is not None:
        save_comparison(compared, report)
    if as_json:
        print_json([row.as_dict() for row in compared.rows])
    else:
        print_comparison(compared)
        _print_files(compared, output, report, is_model=target is not None)
    return ExitCode.INTERRUPTED if interruption.is_requested else ExitCode.DONE


def _print_files(compared: Comparison, output: Path | None, report: Path | None, *, is_model: bool) -> None:
    if is_model and not compared.is_measured:
        print_text(f"Not measured: {', '.join(PEERS)}. Add --measure to really train with each of them.")
    if output is not None:
        print_text(f"Rows written to {output}")
    if report is not None:
        print_text(f"Report written to {report}")


def _check_files(output: Path | None, report: Path | None) -> None:
    """Find out before long work whether what comes of it can be written."""
    if output is not None:
        if output.suffix.lower() in COMPARISON_ENDINGS:
            raise InputError(f"-o {output}: rows are JSON lines; for a picture write --report {output}")
        check_writable(output)
    if report is not None:
        check_comparison_file(report)
        check_writable(report)


def _budgets(text: str) -> list[str]:
    """The budgets as they are written, as far as they can be understood without a graph."""
    budgets = _names(text, "--budgets")
    for budget in budgets:
        parse_budget(budget, baseline_peak_bytes=_ANY_PEAK_BYTES, smallest_bytes=1)
    return budgets


def _names(text: str, option: str) -> list[str]:
    names = [name.strip() for name in text.split(",") if name.strip()]
    if not names:
        raise InputError(f"{option} {text!r}: write at least one, with commas between")
    return names


def _target_of(source: str) -> str | None:
    """``pkg.module:function`` where the source is a model that can be trained."""
    is_other = source.startswith(GENERATE_PREFIX) or is_existing(source)
    return full_name(source) if is_target(source) and not is_other else None


def _check_measurable(source: str, target: str | None) -> None:
    if target is None:
        raise InputError(
            f"--measure: SOURCE {source!r} is no model that can be trained: give pkg.module:function or model:NAME"
        )
    if importlib.util.find_spec("torch") is None:
        raise MissingDependency("torch", extra="torch", needed_for="--measure")
