"""``lowtide report``: what a plan or a trace does, as a page, a picture, or a file for other viewers."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from lowtide import api
from lowtide.cli.bands import check_planned_bands
from lowtide.cli.exit_codes import ExitCode
from lowtide.cli.output import StdoutKeptClean, check_writable, print_text
from lowtide.cli.sources import DIM_HELP, load_source, load_trace
from lowtide.errors import InputError
from lowtide.ir.serde import load_plan
from lowtide.reports.files import ENDINGS, check_report_file, save_report
from lowtide.reports.plan_report import report_of_plan
from lowtide.reports.report import Report
from lowtide.reports.trace_report import report_of_trace

__all__ = ["REPORT_HELP", "check_report", "report"]

REPORT_HELP = f"Write a report here: {', '.join(ENDINGS[:-1])} or {ENDINGS[-1]}."


def report(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="plan.json, or a trace (.jsonl) or op log.")],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help=REPORT_HELP)],
    graph: Annotated[
        str | None,
        typer.Option(metavar="SOURCE", help="What a plan is for: SOURCE of lowtide plan. A trace needs none."),
    ] = None,
    dim: Annotated[list[str] | None, typer.Option(metavar="NAME=SIZE", help=DIM_HELP)] = None,
) -> int:
    """Show a plan or a trace: memory, retention intervals, addresses, the largest tensors."""
    check_report(output)
    with StdoutKeptClean():
        made = _report_of(file, graph, dims=dim or ())
        save_report(made, output)
    print_text(f"Report written to {output}")
    return ExitCode.DONE


def check_report(path: Path | None) -> None:
    """Find out before long work whether a report can be written.

    Raises:
        InputError: Its ending is none of a report's, or the place cannot be written to.
    """
    if path is not None:
        check_report_file(path)
        check_writable(path)


def _report_of(file: Path, source: str | None, *, dims: Sequence[str]) -> Report:
    trace = load_trace(str(file))
    if trace is not None:
        if source is not None:
            raise InputError(f"{file} is a trace, which needs no graph: leave out --graph")
        return report_of_trace(trace, title=_title(file))
    plan = load_plan(file)
    if source is None:
        raise InputError(f"{file}: a plan holds no sizes of tensors: add --graph SOURCE, what it was planned for")
    graph = load_source(source, dims=dims)
    verified = api.verify(graph, plan)
    check_planned_bands(source, plan, dims=dims)
    return report_of_plan(graph, verified)


def _title(file: Path) -> str:
    return file.stem if file.stem.isprintable() else "trace"
