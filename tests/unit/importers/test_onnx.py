""".onnx models as graphs: what is a node, what shares bytes, what is refused."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lowtide.errors import FormatError, InputError
from lowtide.importers.onnx import capture_onnx, import_onnx
from lowtide.importers.onnx_file import parse_dims, read_onnx
from lowtide.ir import Graph, InputKind, Value
from lowtide.ir.serde import graph_sha256

sys.path.insert(0, str(Path(__file__).parent))
from onnx_models import (
    FLOAT,
    constant,
    model,
    node,
    onnx,
    save,
    two_branches,
    value,
    weight,
    with_branch,
)

BYTES = 4 * 4 * 16 * 16


def output_of(graph: Graph, name: str) -> Value:
    found = graph.value_by_name[name]
    assert isinstance(found, Value)
    return found


def test_nodes_sizes_and_kinds(tmp_path: Path) -> None:
    graph = capture_onnx(save(two_branches(), tmp_path))
    assert [entry.op for entry in graph.nodes] == ["Conv"] * 4 + ["Mul"]
    assert graph.order == tuple(f"make_{name}" for name in ("large_a", "large_b", "small_a", "small_b", "y"))
    assert output_of(graph, "large_a").size_bytes == 64 * BYTES
    assert graph.input_by_name["x"].kind is InputKind.USER
    assert not graph.input_by_name["x"].evictable  # the caller holds it
    assert graph.input_by_name["wide_a"].kind is InputKind.CONSTANT
    assert graph.outputs == ("y",)
    assert all(entry.duration > 0 for entry in graph.nodes)
    assert graph.nodes[0].workspace_bytes > 0
    assert graph.nodes[2].workspace_bytes == 0  # one by one: no columns


def test_the_same_file_is_the_same_graph(tmp_path: Path) -> None:
    path = save(two_branches(), tmp_path)
    assert graph_sha256(capture_onnx(path)) == graph_sha256(capture_onnx(path))


def test_nodes_without_a_name_of_their_own_are_numbered(tmp_path: Path) -> None:
    made = two_branches()
    for entry in made.graph.node:
        entry.name = ""
    made.graph.node[0].name = "op3"
    assert capture_onnx(save(made, tmp_path)).order == tuple(f"op{position}" for position in range(5))


def test_views_share_bytes_unless_they_are_outputs(tmp_path: Path) -> None:
    nodes = [
        node("Exp", ["x"], ["a"]),
        node("Reshape", ["a", "flat"], ["v"]),
        node("Sin", ["v"], ["b"]),
        node("Reshape", ["b", "flat"], ["y"]),
    ]
    made = model(nodes, [value("x")], [value("y", (1024,))], [constant("flat", np.array([-1], np.int64))])
    graph = capture_onnx(save(made, tmp_path))
    assert output_of(graph, "v").alias_of == "a"
    assert output_of(graph, "y").alias_of is None
    assert output_of(graph, "y").size_bytes == BYTES


def overwritten_in(nodes: list[Any], weights: list[Any], folder: Path) -> dict[str, str]:
    """Which value overwrites which, in a net that makes the large ``a`` first and the small ``y`` last."""
    first = node("Expand", ["x", "shape"], ["a"])
    shape = constant("shape", np.array([1, 16, 32, 32], np.int64))
    made = model([first, *nodes], [value("x", (1, 1, 1, 32))], [value("y", ())], [shape, *weights])
    graph = capture_onnx(save(made, folder), level="none")
    assert all(entry.size_bytes == 0 for operator in graph.nodes for entry in operator.outputs if entry.overwrites)
    return {entry.name: entry.overwrites for each in graph.nodes for entry in each.outputs if entry.overwrites}


def test_in_place_where_nobody_else_reads(tmp_path: Path) -> None:
    nodes = [node("Tanh", ["a"], ["b"]), node("Relu", ["b"], ["c"]), node("ReduceMax", ["c"], ["y"], keepdims=0)]
    assert overwritten_in(nodes, [], tmp_path) == {"b": "a", "c": "b"}


def test_in_place_where_all_others_have_read_before(tmp_path: Path) -> None:
    nodes = [
        node("ReduceMax", ["a"], ["b"], axes=[1]),
        node("FusedConv", ["b", "w", "", "a"], ["c"], domain="com.microsoft", activation="Relu"),
        node("ReduceMax", ["c"], ["y"], keepdims=0),
    ]
    assert overwritten_in(nodes, [weight("w", (16, 1, 1, 1))], tmp_path) == {"c": "a"}


@pytest.mark.parametrize("op", ["Neg", "Exp"])
def test_operators_that_are_never_in_place(op: str, tmp_path: Path) -> None:
    nodes = [node(op, ["a"], ["b"]), node("ReduceMax", ["b"], ["y"], keepdims=0)]
    assert overwritten_in(nodes, [], tmp_path) == {}


def test_not_in_place_where_another_may_read_later(tmp_path: Path) -> None:
    nodes = [
        node("ReduceMax", ["a"], ["small"], keepdims=0),
        node("Tanh", ["a"], ["b"]),
        node("ReduceMax", ["b"], ["other"], keepdims=0),
        node("Mul", ["small", "other"], ["y"]),
    ]
    assert overwritten_in(nodes, [], tmp_path) == {}


def test_not_in_place_over_views_inputs_or_into_outputs(tmp_path: Path) -> None:
    nodes = [
        node("Flatten", ["a"], ["v"]),
        node("Tanh", ["v"], ["b"]),  # v shares the bytes of a
        node("ReduceMax", ["b"], ["y"], keepdims=0),
    ]
    assert overwritten_in(nodes, [], tmp_path) == {}
    made = model([node("Tanh", ["x"], ["b"]), node("Tanh", ["b"], ["y"])], [value("x")], [value("y")])
    graph = capture_onnx(save(made, tmp_path), level="none")
    assert [entry.overwrites for operator in graph.nodes for entry in operator.outputs] == [None, None]


def test_in_place_is_told_only_of_what_would_be_largest(tmp_path: Path) -> None:
    """Planners keep overwritten storages whole: others are left free."""
    nodes = [node("Tanh", ["a"], ["b"]), node("Sin", ["b"], ["c"]), node("ReduceMax", ["c"], ["y"], keepdims=0)]
    assert overwritten_in(nodes, [], tmp_path) == {}  # Sin needs two blocks anyway


def test_subgraphs_are_one_node_that_reads_what_they_capture(tmp_path: Path) -> None:
    graph = capture_onnx(save(with_branch(), tmp_path))
    branch = graph.node_by_name["make_b"]
    assert (branch.op, branch.recomputable) == ("If", False)
    assert branch.inputs == ("is_large", "a")


def test_random_operators_run_once_in_order(tmp_path: Path) -> None:
    nodes = [
        node("RandomNormalLike", ["x"], ["a"]),
        node("RandomUniformLike", ["x"], ["b"]),
        node("Mul", ["a", "b"], ["y"]),
    ]
    graph = capture_onnx(save(model(nodes, [value("x")], [value("y")]), tmp_path))
    assert [entry.recomputable for entry in graph.nodes] == [False, False, True]
    assert graph.nodes[1].after == ("make_a",)


def test_contributed_domains_are_named(tmp_path: Path) -> None:
    made = model([node("QuickGelu", ["x"], ["y"], domain="com.microsoft")], [value("x")], [value("y")])
    assert capture_onnx(save(made, tmp_path)).nodes[0].op == "com.microsoft.QuickGelu"


def test_shapes_that_only_a_run_tells(tmp_path: Path) -> None:
    nodes = [node("NonZero", ["x"], ["where"]), node("Cast", ["where"], ["y"], to=FLOAT)]
    graph = capture_onnx(save(model(nodes, [value("x")], [value("y", (4, "n"))]), tmp_path))
    assert output_of(graph, "where").size_bytes == 4 * 1024 * 8  # normal numbers are never 0


def test_dimensions_are_fixed_by_name_or_axis(tmp_path: Path) -> None:
    made = model([node("Exp", ["x"], ["y"])], [value("x", ("batch", 8))], [value("y", ("batch", 8))])
    path = save(made, tmp_path)
    assert output_of(capture_onnx(path, dims={"batch": 32}), "y").size_bytes == 32 * 8 * 4
    assert output_of(capture_onnx(path, dims={"x.0": 16}), "y").size_bytes == 16 * 8 * 4
    with pytest.raises(InputError, match=r"dimensions are open.*--dim batch=1"):
        capture_onnx(path)
    with pytest.raises(InputError, match=r"no input has a dimension 'bach'; dimensions are open.*--dim batch=1"):
        capture_onnx(path, dims={"bach": 1})
    with pytest.raises(InputError, match=r"--dim rows: no input has a dimension of that name$"):
        capture_onnx(path, dims={"batch": 1, "rows": 2})
    with pytest.raises(InputError, match=r"--dim x\.1: the file fixes it to 8"):
        capture_onnx(path, dims={"batch": 1, "x.1": 9})


def test_a_dimension_for_a_file_that_leaves_none_open(tmp_path: Path) -> None:
    path = save(model([node("Exp", ["x"], ["y"])], [value("x", (1, 8))], [value("y", (1, 8))]), tmp_path)
    with pytest.raises(InputError, match=r"no input has a .* name; all dimensions of this file are fixed: leave --dim"):
        capture_onnx(path, dims={"batch": 1})
    with pytest.raises(InputError, match=r"the file fixes it to 1"):
        capture_onnx(path, dims={"x.0": 2})


@pytest.mark.parametrize("text", ["batch", "batch=", "batch=0", "=3", "batch=-1", "batch=1.5"])
def test_dims_of_another_form_are_refused(text: str) -> None:
    with pytest.raises(InputError, match=r"write NAME=SIZE or INPUT\.AXIS=SIZE"):
        parse_dims([text])


def test_weights_of_another_file_are_read(tmp_path: Path) -> None:
    onnx.save(two_branches(), str(tmp_path / "net.onnx"), save_as_external_data=True, size_threshold=0, location="w")
    assert len(capture_onnx(tmp_path / "net.onnx").nodes) == 5
    (tmp_path / "w").unlink()
    with pytest.raises(FormatError, match=r"lies in 'w', which is missing: put it beside the model"):
        capture_onnx(tmp_path / "net.onnx")


def test_a_file_of_several_weights_counts_once(tmp_path: Path) -> None:
    """Of a large file, here with holes, each of four weights is a small part."""
    onnx.save(two_branches(), str(tmp_path / "net.onnx"), save_as_external_data=True, size_threshold=0, location="w")
    os.truncate(tmp_path / "w", 2**30)
    assert read_onnx(tmp_path / "net.onnx").size_bytes == 2**30 + (tmp_path / "net.onnx").stat().st_size
    os.truncate(tmp_path / "w", 2**31)
    with pytest.raises(FormatError, match="2147483648 bytes of weights in other files"):
        read_onnx(tmp_path / "net.onnx")


def test_weights_outside_the_folder_are_refused(tmp_path: Path) -> None:
    onnx.save(two_branches(), str(tmp_path / "net.onnx"), save_as_external_data=True, size_threshold=0, location="w")
    (tmp_path / "w").rename(tmp_path.parent / "outside")
    made = onnx.load(str(tmp_path / "net.onnx"), load_external_data=False)
    for tensor in made.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = "../outside"
    with pytest.raises(FormatError, match=r"weights in other files cannot be read"):
        capture_onnx(save(made, tmp_path))


def test_truncated_files_are_refused_in_one_line(tmp_path: Path) -> None:
    data = two_branches().SerializeToString()
    path = tmp_path / "net.onnx"
    for length in (0, 1, 7, len(data) // 2, len(data) - 1):
        path.write_bytes(data[:length])
        with pytest.raises(FormatError) as caught:
            read_onnx(path)
        assert "\n" not in str(caught.value)


def test_noise_never_crashes(tmp_path: Path) -> None:
    data = bytearray(with_branch().SerializeToString())
    rng = np.random.default_rng(0)
    path, messages = tmp_path / "net.onnx", []
    for _ in range(200):
        broken = bytearray(data)
        for position in rng.integers(0, len(data), size=4):
            broken[position] = rng.integers(0, 256)
        path.write_bytes(broken)
        messages.append(refusal_of(path))
    assert any(messages)
    assert not any("\n" in message for message in messages)


def refusal_of(path: Path) -> str:
    try:
        read_onnx(path)
    except InputError as error:
        return str(error)
    return ""


def test_cycles_are_refused(tmp_path: Path) -> None:
    made = model([node("Mul", ["x", "b"], ["a"]), node("Exp", ["a"], ["b"])], [value("x")], [value("b")])
    with pytest.raises(FormatError, match=r"onnx.checker refuses it: .*topologically"):
        capture_onnx(save(made, tmp_path))


def test_huge_tensors_are_refused(tmp_path: Path) -> None:
    made = model([node("Exp", ["x"], ["y"])], [value("x", (2**20, 2**20))], [value("y", (2**20, 2**20))])
    with pytest.raises(FormatError, match=r"input 'x' has 1099511627776 elements: too large to run"):
        capture_onnx(save(made, tmp_path))


def test_tensors_that_grow_huge_inside_are_refused(tmp_path: Path) -> None:
    shape = constant("shape", np.array([2**20, 2**20, 1, 1], np.int64))
    made = model([node("Expand", ["x", "shape"], ["y"])], [value("x", (1, 1, 1, 1))], [value("y", "abcd")], [shape])
    with pytest.raises(FormatError, match="ONNX Runtime refuses the model"):
        capture_onnx(save(made, tmp_path))


def test_unknown_operators_are_refused(tmp_path: Path) -> None:
    made = model([node("Teleport", ["x"], ["y"], domain="com.microsoft")], [value("x")], [value("y")])
    with pytest.raises(FormatError, match=r"ONNX Runtime refuses the model.*Teleport") as caught:
        capture_onnx(save(made, tmp_path))
    assert "\n" not in str(caught.value)


def test_sequences_are_refused(tmp_path: Path) -> None:
    nodes = [
        node("SplitToSequence", ["x"], ["parts"], axis=1),
        node("ConcatFromSequence", ["parts"], ["y"], axis=1),
    ]
    with pytest.raises(FormatError, match=r"'parts' is no tensor of numbers"):
        capture_onnx(save(model(nodes, [value("x")], [value("y")]), tmp_path))


def test_constants_are_what_initializers_say(tmp_path: Path) -> None:
    made = model([node("Conv", ["x", "w"], ["y"])], [value("x")], [value("y")], [weight("w", (4, 4, 1, 1))])
    source = import_onnx(read_onnx(save(made, tmp_path)))
    assert source.graph.input_by_name["w"].size_bytes == 64
    assert source.position_by_node == {"make_y": 0}
