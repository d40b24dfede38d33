"""Nodes of an optimised model in the order of the file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

from lowtide.importers.onnx_order import in_order_of_file
from lowtide.importers.onnx_run import OptimisedModel

sys.path.insert(0, str(Path(__file__).parent))
from onnx_models import model, node, onnx, value


def optimised(*nodes: Any) -> OptimisedModel:
    """A node takes as many nanoseconds as its number in what was written."""
    durations = dict(enumerate(range(len(nodes))))
    return OptimisedModel(model(nodes, [value("x")], [value("y")]), {}, durations, "1")


def outputs(found: OptimisedModel) -> list[str]:
    return [entry.output[0] for entry in found.model.graph.node]


A, B = node("Relu", ["x"], ["a"]), node("Neg", ["x"], ["b"])
Y = node("Add", ["a", "b"], ["y"])
FILE = model([A, B, Y], [value("x")], [value("y")])


def test_the_order_of_the_file() -> None:
    found = in_order_of_file(FILE, optimised(B, A, Y))
    assert outputs(found) == ["a", "b", "y"]
    assert found.duration_by_node == {0: 1, 1: 0, 2: 2}
    assert outputs(in_order_of_file(FILE, optimised(A, B, Y))) == ["a", "b", "y"]


def test_what_the_file_does_not_make_comes_after_what_it_reads() -> None:
    new = node("Abs", ["a"], ["new"])
    last = node("Add", ["new", "b"], ["y"])
    assert outputs(in_order_of_file(FILE, optimised(B, A, new, last))) == ["a", "new", "b", "y"]


def test_nothing_comes_before_what_it_reads() -> None:
    """A fusion may have turned the order of the file round."""
    late = node("Relu", ["b"], ["a"])
    assert outputs(in_order_of_file(FILE, optimised(B, late, Y))) == ["b", "a", "y"]


def test_the_same_whatever_order_it_is_given() -> None:
    first, second = node("Abs", ["x"], ["r1"]), node("Abs", ["x"], ["r0"])
    last = node("Sum", ["r0", "r1", "a", "b"], ["y"])
    expected = outputs(in_order_of_file(FILE, optimised(A, B, first, second, last)))
    assert outputs(in_order_of_file(FILE, optimised(second, B, first, A, last))) == expected


def test_the_optimised_model_stays_as_it_was() -> None:
    given = optimised(B, A, Y)
    in_order_of_file(FILE, given)
    assert outputs(given) == ["b", "a", "y"]


def test_what_graphs_within_read_comes_before_them() -> None:
    inner = onnx.helper.make_graph([node("Neg", ["b"], ["chosen"])], "inner", [], [value("chosen")])
    branch = node("If", ["x"], ["a"], then_branch=inner, else_branch=inner)
    assert outputs(in_order_of_file(FILE, optimised(B, branch, Y))) == ["b", "a", "y"]
