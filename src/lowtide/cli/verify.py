"""``lowtide verify``: whether a plan keeps every rule and every promise in it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from lowtide import api
from lowtide.cli.bands import check_planned_bands
from lowtide.cli.exit_codes import ExitCode
from lowtide.cli.output import StdoutKeptClean, count_of, print_facts
from lowtide.cli.sources import DIM_HELP, SOURCE_HELP, load_source
from lowtide.ir.serde import load_plan
from lowtide.units import format_bytes

__all__ = ["verify"]


def verify(
    source: Annotated[str, typer.Argument(metavar="SOURCE", help=SOURCE_HELP)],
    plan_file: Annotated[Path, typer.Argument(metavar="PLAN", help="plan.json")],
    dim: Annotated[list[str] | None, typer.Option(metavar="NAME=SIZE", help=DIM_HELP)] = None,
) -> int:
    """Check a plan from scratch: exit 0, or 1 with the first broken rule."""
    plan = load_plan(plan_file)
    with StdoutKeptClean():
        graph = load_source(source, dims=dim or ())
        verified = api.verify(graph, plan)
        check_planned_bands(source, plan, dims=dim or ())
    checked = verified.plan
    print_facts(
        [
            ("plan", f"{plan_file}: accepted"),
            ("peak", f"{format_bytes(checked.peak_bytes)} within the budget {format_bytes(checked.budget_bytes)}"),
            ("TDI", f"{checked.tdi_percent:.3f} %, {count_of(verified.replay.num_recomputes, 'recomputation')}"),
        ]
    )
    return ExitCode.DONE
