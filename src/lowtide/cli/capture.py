"""``lowtide capture``: a model, made by a function, as a graph file."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from lowtide.cli.exit_codes import ExitCode
from lowtide.cli.output import StdoutKeptClean, check_writable, count_of, print_facts
from lowtide.cli.targets import capture_target
from lowtide.ir.serde import save_graph
from lowtide.referee import baseline
from lowtide.units import format_bytes

__all__ = ["Costs", "capture"]


class Costs(StrEnum):
    """Where durations come from."""

    PROFILED = "profiled"
    ESTIMATED = "estimated"


def capture(
    target: Annotated[
        str,
        typer.Argument(
            metavar="pkg.module:function",
            help="A function that returns (model, example_inputs[, loss_function]), or model:NAME of lowtide.models.",
        ),
    ],
    output: Annotated[Path, typer.Option("--output", "-o", metavar="FILE", help="Write the graph here.")],
    inference: Annotated[bool, typer.Option("--inference", help="The forward pass only.")] = False,
    costs: Annotated[Costs, typer.Option(help="Time each distinct op here, or estimate.")] = Costs.PROFILED,
) -> int:
    """Record one training step of a model (or its inference) as a graph."""
    check_writable(output)
    with StdoutKeptClean():
        graph = capture_target(target, inference=inference, costs=str(costs))
        plain = baseline(graph)
    save_graph(graph, output)
    print_facts(
        [
            ("graph", f"{graph.name or 'unnamed'}, {count_of(len(graph.nodes), 'node')}"),
            ("plain peak", f"{format_bytes(plain.peak_bytes)} = {plain.peak_bytes} bytes"),
            ("written to", str(output)),
        ]
    )
    return ExitCode.DONE
