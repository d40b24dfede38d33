"""What a .tflite model is as a Graph, worked out by hand."""

import itertools
from pathlib import Path

import numpy as np
import pytest

from lowtide.emit.tflite_builder import TfliteBuilder
from lowtide.importers.tflite import TfliteImport, capture_tflite, import_tflite
from lowtide.importers.tflite_file import parse_tflite
from lowtide.ir import Graph, InputKind
from lowtide.ir.serde import graph_from_document, graph_sha256, graph_to_document


def imported(builder: TfliteBuilder, inputs: list[int], outputs: list[int]) -> TfliteImport:
    return import_tflite(parse_tflite(builder.build(inputs=inputs, outputs=outputs), "folder/small.tflite"))


def relu_and_reshape() -> Graph:
    builder = TfliteBuilder()
    x = builder.tensor("x", (1, 3, 3, 1))
    y = builder.tensor("y", (1, 3, 3, 1))
    shape = builder.tensor("shape", (2,), dtype="INT32", data=np.array([1, 9], np.int32))
    flat = builder.tensor("flat", (1, 9))
    builder.operator("RELU", [x], [y])
    builder.operator("RESHAPE", [y, shape], [flat])
    return imported(builder, [x], [flat]).graph


def test_sizes_are_those_of_the_arena() -> None:
    graph = relu_and_reshape()
    assert graph.alignment == 16
    assert graph.value_by_name["x"].size_bytes == 48  # 9 floats are 36 bytes
    assert graph.value_by_name["y"].size_bytes == 48


def test_names_order_and_outputs() -> None:
    graph = relu_and_reshape()
    assert graph.name == "small"
    assert graph.order == ("y", "flat")  # operators have no names: those of their first outputs
    assert [node.op for node in graph.nodes] == ["RELU", "RESHAPE"]
    assert graph.outputs == ("flat",)
    assert graph.nodes[1].meta["operator"] == 1
    assert graph.value_by_name["y"].meta["dtype"] == "FLOAT32"


def test_inputs_by_kind() -> None:
    graph = relu_and_reshape()
    assert graph.input_by_name["x"].kind is InputKind.USER
    assert graph.input_by_name["x"].evictable
    assert graph.input_by_name["shape"].kind is InputKind.CONSTANT


def test_reshape_is_a_view() -> None:
    graph = relu_and_reshape()
    flat = graph.producer_by_value["flat"]
    assert flat.is_view
    assert flat.outputs[0].alias_of == "y"
    assert flat.duration == 0


def test_the_document_gives_the_same_graph() -> None:
    graph = relu_and_reshape()
    assert graph_from_document(graph_to_document(graph), "here") == graph
    assert graph_sha256(relu_and_reshape()) == graph_sha256(graph)


def test_reshape_of_a_constant_is_no_view() -> None:
    builder = TfliteBuilder()
    weights = builder.tensor("weights", (2, 2), data=np.ones((2, 2), np.float32))
    shape = builder.tensor("shape", (1,), dtype="INT32", data=np.array([4], np.int32))
    flat = builder.tensor("flat", (4,))
    builder.operator("RESHAPE", [weights, shape], [flat])
    graph = imported(builder, [], [flat]).graph
    assert graph.value_by_name["flat"].size_bytes == 16
    assert not graph.nodes[0].is_view


def test_repeated_and_empty_names_are_numbered() -> None:
    builder = TfliteBuilder()
    tensors = [builder.tensor(name, (4,)) for name in ("same", "same", "", "value0", "op2")]
    for source, target in itertools.pairwise(tensors):
        builder.operator("RELU", [source], [target])
    graph = imported(builder, [tensors[0]], [tensors[-1]]).graph
    assert list(graph.value_by_name) == ["value0", "value1", "value2", "value3", "op2"]
    assert graph.order == ("op0", "op1", "op2", "op3")
    assert graph.value_by_name["value1"].meta["source"] == "same"


def test_a_name_that_is_no_utf8(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    x, y = builder.tensor("x", (4,)), builder.tensor("name", (4,))
    builder.operator("RELU", [x], [y])
    path = tmp_path / "m.tflite"
    path.write_bytes(builder.build(inputs=[x], outputs=[y]).replace(b"name", b"n\xff\xfee"))
    assert capture_tflite(path).order == ("n\\xff\\xfee",)


def test_float16_weights_are_unpacked_once() -> None:
    builder = TfliteBuilder()
    x, y = builder.tensor("x", (1, 2)), builder.tensor("y", (1, 2))
    half = builder.tensor("half", (2, 2), dtype="FLOAT16", data=np.ones((2, 2), np.float16))
    weights = builder.tensor("weights", (2, 2))
    builder.operator("DEQUANTIZE", [half], [weights])
    builder.operator("FULLY_CONNECTED", [x, weights, -1], [y], options="FullyConnectedOptions")
    source = imported(builder, [x], [y])
    assert source.folded == (0,)
    assert source.graph.order == ("y",)
    assert source.graph.input_by_name["weights"].kind is InputKind.CONSTANT


def test_int8_weights_are_unpacked_in_the_arena() -> None:
    builder = TfliteBuilder()
    x, y = builder.tensor("x", (1, 2)), builder.tensor("y", (1, 2))
    packed = builder.tensor("packed", (2, 2), dtype="INT8", data=np.ones((2, 2), np.int8), scale=0.5)
    weights = builder.tensor("weights", (2, 2))
    builder.operator("DEQUANTIZE", [packed], [weights])
    builder.operator("FULLY_CONNECTED", [x, weights, -1], [y], options="FullyConnectedOptions")
    source = imported(builder, [x], [y])
    assert source.folded == ()
    assert source.graph.order == ("weights", "y")
    assert source.graph.value_by_name["weights"].size_bytes == 16


def test_variable_tensors_are_state_and_keep_their_order() -> None:
    builder = TfliteBuilder()
    x = builder.tensor("x", (1, 4))
    state = builder.tensor("state", (1, 8), is_variable=True)
    features = builder.tensor("features", (4, 4), data=np.ones((4, 4), np.float32))
    times = builder.tensor("times", (4, 2), data=np.ones((4, 2), np.float32))
    middle, last = builder.tensor("middle", (1, 4)), builder.tensor("last", (1, 4))
    for source, target in ((x, middle), (middle, last)):
        builder.operator("SVDF", [source, features, times, -1, state], [target], options="SVDFOptions", rank=1)
    graph = imported(builder, [x], [last]).graph
    assert graph.input_by_name["state"].kind is InputKind.STATE
    assert [node.recomputable for node in graph.nodes] == [False, False]
    assert graph.nodes[1].after == ("middle",)


def test_custom_operators_run_once_and_in_order() -> None:
    builder = TfliteBuilder()
    x, y, z = (builder.tensor(name, (4,)) for name in "xyz")
    builder.operator("CUSTOM:Mine", [x], [y])
    builder.operator("CUSTOM:Mine", [x], [z])
    graph = imported(builder, [x], [y, z]).graph
    assert [node.op for node in graph.nodes] == ["CUSTOM:Mine", "CUSTOM:Mine"]
    assert graph.nodes[1].after == ("y",)
    assert not graph.nodes[0].recomputable


def test_scratch_of_kernels_is_workspace() -> None:
    builder = TfliteBuilder()
    x = builder.tensor("x", (1, 4, 4, 8), dtype="INT8", scale=0.1)
    axes = builder.tensor("axes", (2,), dtype="INT32", data=np.array([1, 2], np.int32))
    y = builder.tensor("y", (1, 8), dtype="INT8", scale=0.1)
    builder.operator("MEAN", [x, axes], [y], options="ReducerOptions")
    assert imported(builder, [x], [y]).graph.nodes[0].workspace_bytes == 32  # 8 sums of 4 bytes


@pytest.mark.parametrize(
    ("op", "shape", "weights", "expected"),
    [
        ("CONV_2D", (1, 4, 4, 8), (8, 3, 3, 2), 4 * 4 * 8 * 3 * 3 * 2),
        ("DEPTHWISE_CONV_2D", (1, 4, 4, 2), (1, 3, 3, 2), 4 * 4 * 2 * 3 * 3),
    ],
)
def test_durations_count_multiplications_and_bytes(
    op: str, shape: tuple[int, ...], weights: tuple[int, ...], expected: int
) -> None:
    builder = TfliteBuilder()
    x, y = builder.tensor("x", (1, 4, 4, 2)), builder.tensor("y", shape)
    builder.conv(x, y, np.ones(weights), kind=op)
    num_elements = 4 * 4 * 2 + np.prod(shape) + np.prod(weights) + shape[3]
    assert imported(builder, [x], [y]).graph.nodes[0].duration == expected + num_elements


def test_an_input_that_is_passed_through() -> None:
    builder = TfliteBuilder()
    x, y = builder.tensor("x", (4,)), builder.tensor("y", (4,))
    builder.operator("RELU", [x], [y])
    assert imported(builder, [x], [y, x]).graph.outputs == ("y", "x")


def test_in_place_only_where_nobody_misses_the_input() -> None:
    builder = TfliteBuilder()
    x, a, b, c, d = (builder.tensor(name, (1, 4, 4, 4)) for name in "xabcd")
    row = builder.tensor("row", (4,), data=np.ones(4, np.float32))
    builder.operator("RELU", [x], [a])
    builder.operator("LOGISTIC", [a], [b])  # a is read again
    builder.operator("ADD", [a, b], [c], options="AddOptions")  # over a, the first that is read no more
    builder.operator("MUL", [row, c], [d], options="MulOptions")  # over c: row has another shape, and is constant
    file = parse_tflite(builder.build(inputs=[x], outputs=[d]), "m.tflite")
    graph = import_tflite(file, in_place=True).graph
    overwritten = {node.name: node.outputs[0].overwrites for node in graph.nodes}
    assert overwritten == {"a": "x", "b": None, "c": "a", "d": "c"}
    assert graph.value_by_name["d"].size_bytes == 0
    assert all(node.outputs[0].overwrites is None for node in import_tflite(file).graph.nodes)


def test_outputs_and_views_are_not_overwritten() -> None:
    builder = TfliteBuilder()
    x, a, b, c = (builder.tensor(name, (1, 4)) for name in "xabc")
    shape = builder.tensor("shape", (2,), dtype="INT32", data=np.array([1, 4], np.int32))
    builder.operator("RESHAPE", [x, shape], [a])
    builder.operator("RELU", [a], [b])  # a shares the bytes of x
    builder.operator("RELU", [b], [c])  # b is an output
    file = parse_tflite(builder.build(inputs=[x], outputs=[b, c]), "m.tflite")
    assert [node.outputs[0].overwrites for node in import_tflite(file, in_place=True).graph.nodes] == [None] * 3
