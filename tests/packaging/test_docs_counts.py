"""What docs/counts.md says of one model holds: which command's peak counts what."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="the page counts a torch model")

import lowtide
from lowtide.cli.simulate import describe
from lowtide.ir import InputKind
from lowtide.models import unet_tiny
from lowtide.planning.facts import gather_facts
from lowtide.units import align_up, format_bytes

PAGE = (Path(__file__).parents[2] / "docs" / "counts.md").read_text(encoding="utf-8")


def test_a_simulation_counts_parameters_beside_what_a_plan_does() -> None:
    """Without scratch, which is another on another machine; the rest of the page's sums is the same everywhere."""
    model, inputs, loss = unet_tiny()
    graph = lowtide.capture(model, inputs, loss=loss, costs="estimated")
    simulation = lowtide.simulate(graph, budget="100%")
    parameter_bytes = sum(align_up(given.size_bytes, 64) for given in graph.inputs if given.kind is InputKind.PARAMETER)
    assert simulation.plain_peak_bytes == gather_facts(graph).baseline.peak_bytes + parameter_bytes
    assert f"1.24 MiB and {format_bytes(parameter_bytes)} of parameters" in PAGE
    told = dict(describe(simulation, "100%"))["plain peak"]
    assert told.startswith(f"{format_bytes(simulation.plain_peak_bytes)} with parameters, without eviction; ")


def test_the_pages_sum_for_compiled_models_is_right() -> None:
    row = re.search(r"peak ([\d.]+) MiB \| ([\d.]+) MiB, ([\d.]+) KiB of parameters, ([\d.]+) KiB of AdamW", PAGE)
    assert row is not None
    peak, step, parameters, state = map(float, row.groups())
    assert peak == pytest.approx(step + (parameters + state) / 1024, abs=0.01)
    model, _, _ = unet_tiny()
    assert format_bytes(sum(given.nbytes for given in model.parameters())) == f"{parameters} KiB"
