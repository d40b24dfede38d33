"""Lets the tests of this folder share the drawings, as reports."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from drawings import HOSTILE, drawn_trace, graph_named, plan_of

from lowtide import api
from lowtide.ir import Graph, Trace
from lowtide.referee import VerifiedPlan
from lowtide.reports.plan_report import report_of_plan
from lowtide.reports.report import Report


@pytest.fixture
def verified() -> tuple[Graph, VerifiedPlan]:
    graph = graph_named()
    return graph, api.verify(graph, plan_of(graph))


@pytest.fixture
def report(verified: tuple[Graph, VerifiedPlan]) -> Report:
    return report_of_plan(*verified)


@pytest.fixture
def hostile_report() -> Report:
    graph = graph_named(HOSTILE)
    return report_of_plan(graph, api.verify(graph, plan_of(graph, HOSTILE)))


@pytest.fixture
def trace() -> Trace:
    return drawn_trace()
