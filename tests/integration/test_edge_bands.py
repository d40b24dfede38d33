"""Row bands on the stock TensorFlow Lite Micro and LiteRT: the same bits, in the planned arena."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from ai_edge_litert import interpreter as litert
from tflite_micro.python.tflite_micro import runtime as micro

from lowtide import api
from lowtide.cli import main
from lowtide.emit.bands.planned import plan_bands
from lowtide.emit.bands.search import BandOptions
from lowtide.emit.bands.stretch import Stretch
from lowtide.emit.bands.tflite_operators import banded_operator
from lowtide.emit.bands.tflite_rewrite import with_bands
from lowtide.emit.tflite import TfliteExport
from lowtide.emit.tflite_bands import (
    choose_tflite_bands,
    export_bands,
    import_bands,
    is_same_within_rounding,
    ops_of,
)
from lowtide.emit.tflite_builder import TfliteBuilder
from lowtide.emit.tflite_check import check_tflite
from lowtide.emit.tflite_run import MicroRun, random_inputs
from lowtide.emit.tflite_writer import pack_model
from lowtide.importers.tflite_arena import micro_arena
from lowtide.importers.tflite_file import TfliteFile, op_name, parse_tflite, text_of
from lowtide.importers.tflite_tensors import shape_of
from lowtide.ir import Graph, PlanResult

_SAME, _VALID = 0, 1


class Net:
    """Builds a net of one type: tensors are (1, rows, columns, channels); in int8 their zero point is not 0."""

    def __init__(self, dtype: str, *, rows: int = 13, columns: int = 9, depth: int = 3) -> None:
        self.builder = TfliteBuilder()
        self.dtype = dtype
        self.rng = np.random.default_rng(4)
        self.shape_by_tensor: dict[int, tuple[int, ...]] = {}
        self.x = self.tensor((1, rows, columns, depth))

    def tensor(self, shape: tuple[int, ...], data: Any = None) -> int:
        quantised: dict[str, Any] = {"scale": 0.05, "zero_point": 7} if self.dtype == "INT8" else {}
        name = f"t{len(self.shape_by_tensor)}"
        index = self.builder.tensor(name, shape, dtype=self.dtype, data=data, **quantised)
        self.shape_by_tensor[index] = shape
        return index

    def constant(self, shape: tuple[int, ...]) -> int:
        values = self.rng.standard_normal(shape)
        return self.tensor(shape, np.round(20 * values).astype(np.int8 if self.dtype == "INT8" else np.float32))

    def integers(self, elements: list[Any]) -> int:
        array = np.array(elements, np.int32)
        name = f"integers{self.rng.integers(1 << 30)}"
        return self.builder.tensor(name, array.shape, dtype="INT32", data=array)

    def op(self, op: str, inputs: list[int], shape: tuple[int, ...], options: str | None = None, **fields: Any) -> int:
        target = self.tensor(shape)
        version = 1 if op in ("PRELU", "HARD_SWISH") else 2
        self.builder.operator(op, inputs, [target], options=options, version=version, **fields)
        return target

    def unary(self, op: str, source: int, options: str | None = None, **fields: Any) -> int:
        return self.op(op, [source], self.shape_by_tensor[source], options, **fields)

    def add(self, first: int, second: int) -> int:
        return self.op("ADD", [first, second], self.shape_by_tensor[first], "AddOptions")

    def conv(
        self, source: int, depth: int, *, size: int = 3, stride: int = 1, dilation: int = 1, padding: int = _SAME,
        is_depthwise: bool = False,
    ) -> int:  # fmt: skip
        """A convolution; in int8 with one scale per channel unless it is depthwise."""
        _, rows, columns, depth_in = self.shape_by_tensor[source]
        shape = (1, size, size, depth) if is_depthwise else (depth, size, size, depth_in)
        weights = self.rng.standard_normal(shape).astype(np.float32)
        if self.dtype == "INT8":
            scales = [0.01] if is_depthwise else [0.01 + 0.001 * channel for channel in range(depth)]
            levels = np.clip(np.round(40 * weights), -127, 127).astype(np.int8)
            kernel = self.builder.tensor(f"w{source}_{depth}", shape, dtype="INT8", data=levels, scale=scales)
            bias = self.builder.tensor(
                f"b{source}_{depth}", (depth,), dtype="INT32", data=np.arange(depth, dtype=np.int32),
                scale=[0.05 * scale for scale in scales],
            )  # fmt: skip
        else:
            kernel = self.builder.tensor(f"w{source}_{depth}", shape, data=weights)
            bias = self.builder.tensor(f"b{source}_{depth}", (depth,), data=np.arange(depth, dtype=np.float32))
        extent = (size - 1) * dilation + 1 if padding == _VALID else 1
        target = self.tensor((1, -(-(rows - extent + 1) // stride), -(-(columns - extent + 1) // stride), depth))
        kind, options, extra = "CONV_2D", "Conv2DOptions", {}
        if is_depthwise:
            kind, options, extra = "DEPTHWISE_CONV_2D", "DepthwiseConv2DOptions", {"depthMultiplier": depth // depth_in}
        self.builder.operator(
            kind, [source, kernel, bias], [target], options=options, version=3, padding=padding, strideH=stride,
            strideW=stride, dilationHFactor=dilation, dilationWFactor=dilation, fusedActivationFunction=1, **extra,
        )  # fmt: skip
        return target

    def pool(self, kind: str, source: int, *, size: int = 2, padding: int = _VALID) -> int:
        _, rows, columns, depth = self.shape_by_tensor[source]
        return self.op(
            kind, [source], (1, rows // size, columns // size, depth), "Pool2DOptions", padding=padding, strideW=size,
            strideH=size, filterWidth=size, filterHeight=size,
        )  # fmt: skip

    def pad(self, source: int, before: int, after: int) -> int:
        batch, rows, columns, depth = self.shape_by_tensor[source]
        amounts = self.integers([[0, 0], [before, after], [1, 2], [0, 0]])
        return self.op("PAD", [source, amounts], (batch, rows + before + after, columns + 3, depth), "PadOptions")

    def double(self, source: int) -> int:
        batch, rows, columns, depth = self.shape_by_tensor[source]
        size = self.integers([2 * rows, 2 * columns])
        shape = (batch, 2 * rows, 2 * columns, depth)
        return self.op("RESIZE_NEAREST_NEIGHBOR", [source, size], shape, "ResizeNearestNeighborOptions")

    def concat(self, parts: list[int], axis: int = 3) -> int:
        shape = list(self.shape_by_tensor[parts[0]])
        shape[axis] = sum(self.shape_by_tensor[part][axis] for part in parts)
        return self.op("CONCATENATION", parts, tuple(shape), "ConcatenationOptions", axis=axis)

    def build(self, y: int, *more: int) -> bytes:
        return self.builder.build(inputs=[self.x], outputs=[y, *more], signature="serve", metadata={"note": b"kept"})


def dense_block(net: Net) -> int:
    """Values of several heights of halo meet in concatenations, and the input comes back at the end."""
    parts = [net.x]
    for _ in range(3):
        parts.append(net.unary("LEAKY_RELU", net.conv(net.concat(parts), 2), "LeakyReluOptions", alpha=0.2))
    return net.add(net.conv(net.concat(parts), 3), net.x)


def mobile_front(net: Net) -> int:
    y = net.conv(net.x, 4, stride=2)
    y = net.conv(net.conv(net.conv(y, 12, size=1), 12, stride=2, is_depthwise=True), 4, size=1)
    return net.add(y, net.conv(net.conv(net.conv(y, 12, size=1), 12, is_depthwise=True), 4, size=1))


OPERATORS: dict[str, Callable[[Net], int]] = {
    "conv": lambda net: net.conv(net.x, 5),
    "conv of 5, stride 2": lambda net: net.conv(net.x, 5, size=5, stride=2),
    "conv, stride 3": lambda net: net.conv(net.x, 5, stride=3),
    "conv, dilated": lambda net: net.conv(net.x, 5, dilation=2),
    "conv, VALID": lambda net: net.conv(net.x, 5, stride=2, padding=_VALID),
    "conv of 1, stride 2": lambda net: net.conv(net.x, 5, size=1, stride=2),
    "depthwise": lambda net: net.conv(net.x, 6, is_depthwise=True),
    "depthwise, stride 2": lambda net: net.conv(net.x, 3, stride=2, is_depthwise=True),
    "max pool": lambda net: net.pool("MAX_POOL_2D", net.x),
    "average pool": lambda net: net.pool("AVERAGE_POOL_2D", net.x, size=3),
    "pad": lambda net: net.conv(net.pad(net.x, 2, 3), 4, padding=_VALID),
    "pad alone": lambda net: net.pad(net.x, 1, 0),
    "nearest": lambda net: net.double(net.x),
    "nearest between": lambda net: net.conv(net.double(net.conv(net.x, 4)), 2),
    "add": lambda net: net.add(net.conv(net.x, 3), net.x),
    "mul by a number": lambda net: net.op("MUL", [net.x, net.constant((1,))], (1, 13, 9, 3), "MulOptions"),
    "prelu": lambda net: net.op("PRELU", [net.x, net.constant((1, 1, 3))], (1, 13, 9, 3)),
    "sub by column": lambda net: net.op("SUB", [net.x, net.constant((1, 1, 9, 3))], (1, 13, 9, 3), "SubOptions"),
    "concat of columns": lambda net: net.concat([net.x, net.conv(net.x, 3)], axis=2),
    "relu": lambda net: net.unary("RELU", net.x),
    "hard swish": lambda net: net.unary("HARD_SWISH", net.x, "HardSwishOptions"),
    "leaky relu": lambda net: net.unary("LEAKY_RELU", net.x, "LeakyReluOptions", alpha=0.2),
    "dense block": dense_block,
    "mobile front": mobile_front,
}


def whole_stretch(file: TfliteFile) -> Stretch:
    """All operators of a file."""
    operators = [banded_operator(file, position) for position in range(len(file.subgraph.operators))]
    rows = shape_of(file.subgraph.tensors[int(file.subgraph.outputs[0])])[1]
    return Stretch(tuple(operator for operator in operators if operator is not None), rows)


def in_bands(data: bytes, num_bands: int) -> bytes:
    file = parse_tflite(data, "m")
    stretch = whole_stretch(file)
    assert len(stretch.operators) == len(file.subgraph.operators)
    return pack_model(with_bands(file, [(stretch, num_bands)]).model)


def plan_smallest(graph: Graph, *, keep_order: bool, max_copies: int | None) -> PlanResult:
    return api.plan(
        graph, budget="min", keep_order=keep_order, max_copies=max_copies, bound=False, threads=1,
        time_limit_seconds=10.0,
    )  # fmt: skip


def exported(data: bytes, options: BandOptions | None = None) -> TfliteExport:
    file = parse_tflite(data, "m")
    banded = import_bands(file, choose_tflite_bands(file, options))
    result = plan_bands(banded.source.graph, banded.choice, plan_smallest)
    return export_bands(banded, api.require_plan(result, banded.source.graph))


def infer_on_micro(data: bytes, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    interpreter = micro.Interpreter.from_bytes(data, arena_size=1 << 24)
    interpreter.set_input(array, 0)
    interpreter.invoke()
    return np.array(interpreter.get_output(0))


def infer_on_litert(data: bytes, array: npt.NDArray[Any]) -> npt.NDArray[Any]:
    kernels = litert.OpResolverType.BUILTIN_WITHOUT_DEFAULT_DELEGATES
    interpreter = litert.Interpreter(model_content=data, num_threads=1, experimental_op_resolver_type=kernels)
    interpreter.allocate_tensors()
    interpreter.set_tensor(interpreter.get_input_details()[0]["index"], array)
    interpreter.invoke()
    return np.array(interpreter.get_tensor(interpreter.get_output_details()[0]["index"]))


@pytest.mark.parametrize("num_bands", [2, 3, 4])
@pytest.mark.parametrize("dtype", ["FLOAT32", "INT8"])
@pytest.mark.parametrize("name", OPERATORS)
def test_every_operator_gives_the_same_bits_in_bands(name: str, dtype: str, num_bands: int) -> None:
    """On LiteRT floats are the same up to rounding: its own convolution sums as the number of rows has it."""
    net = Net(dtype)
    data = net.build(OPERATORS[name](net))
    banded = in_bands(data, num_bands)
    array = random_inputs(parse_tflite(data, "m"), num_sets=1)["0_0"]
    assert infer_on_micro(banded, array).tobytes() == infer_on_micro(data, array).tobytes()
    expected, found = infer_on_litert(data, array), infer_on_litert(banded, array)
    if dtype == "INT8":
        assert found.tobytes() == expected.tobytes()
    else:
        np.testing.assert_allclose(found, expected, rtol=0, atol=1e-5 * float(np.abs(expected).max()))


@pytest.mark.parametrize("num_bands", [2, 5, 10])
def test_any_number_of_bands_gives_the_same_bits(num_bands: int) -> None:
    net = Net("INT8", rows=24)
    data = net.build(dense_block(net))
    array = random_inputs(parse_tflite(data, "m"), num_sets=1)["0_0"]
    assert infer_on_micro(in_bands(data, num_bands), array).tobytes() == infer_on_micro(data, array).tobytes()


def wide_front(dtype: str) -> bytes:
    """Small, large, small: (32, 32, 3) to (32, 32, 32) to (16, 16, 4)."""
    net = Net(dtype, rows=32, columns=32, depth=3)
    return net.build(net.conv(net.conv(net.conv(net.x, 32), 32, is_depthwise=True), 4, size=1, stride=2))


@pytest.mark.parametrize("dtype", ["FLOAT32", "INT8"])
def test_an_op_bound_front_needs_a_fraction(dtype: str) -> None:
    data = wide_front(dtype)
    export = exported(data)
    checked = check_tflite(data, export.data, repeats=0)
    assert is_same_within_rounding(checked)
    assert checked.is_passed or dtype == "FLOAT32"
    before, after = checked.micro.before, checked.micro.after
    assert isinstance(before, MicroRun)
    assert isinstance(after, MicroRun)
    assert after.head_bytes == export.after.head_bytes
    added_bytes = choose_tflite_bands(parse_tflite(data, "m")).added_persistent_bytes
    planned_bytes = export.after.head_bytes + before.tail_bytes + added_bytes
    assert after.total_bytes == pytest.approx(planned_bytes, rel=0.02)
    assert export.before.head_bytes == 2 * 32 * 32 * 32 * (4 if dtype == "FLOAT32" else 1)
    assert export.after.head_bytes < 0.4 * export.before.head_bytes
    assert set(export.new_ops) == {"CONCATENATION", "PAD", "SLICE"} == set(checked.new_ops)
    assert export.helps


def test_what_is_not_in_a_stretch_stays_as_it_was() -> None:
    data = wide_front("INT8")
    file = parse_tflite(exported(data).data, "m")
    names = [text_of(file.subgraph.tensors[index].name) for index in (*file.subgraph.inputs, *file.subgraph.outputs)]
    before = parse_tflite(data, "m")
    assert names == [
        text_of(before.subgraph.tensors[index].name) for index in (*before.subgraph.inputs, *before.subgraph.outputs)
    ]
    (signature,) = file.model.signatureDefs
    assert signature.inputs[0].tensorIndex == file.subgraph.inputs[0]
    assert signature.outputs[0].tensorIndex == file.subgraph.outputs[0]
    assert "note" in {text_of(entry.name) for entry in file.model.metadata}
    weights = sum(len(buffer.data) for buffer in before.model.buffers if buffer.data is not None)
    assert sum(len(buffer.data) for buffer in file.model.buffers if buffer.data is not None) < weights + 4096


def test_quantisation_of_pieces_is_that_of_their_tensors() -> None:
    file = parse_tflite(exported(wide_front("INT8")).data, "m")
    tensors = file.subgraph.tensors
    for operator in file.subgraph.operators:
        if op_name(file.model, operator) in ("SLICE", "PAD", "CONCATENATION"):
            kinds = [tensors[int(index)].quantization for index in (operator.inputs[0], operator.outputs[0])]
            assert [list(kind.scale) for kind in kinds] == [kinds[0].scale.tolist()] * 2
            assert [list(kind.zeroPoint) for kind in kinds] == [[7]] * 2


def test_the_original_file_is_not_changed() -> None:
    data = wide_front("INT8")
    file = parse_tflite(data, "m")
    import_bands(file, choose_tflite_bands(file))
    assert pack_model(file.model) == pack_model(parse_tflite(data, "m").model)


def test_more_time_never_needs_more_memory() -> None:
    file = parse_tflite(wide_front("FLOAT32"), "m")
    bytes_by_time = [
        choose_tflite_bands(file, BandOptions(most_added_time_percent=percent)).after_bytes
        for percent in (-100, 0, 10, 100)
    ]
    assert bytes_by_time == sorted(bytes_by_time, reverse=True)
    assert bytes_by_time[0] == micro_arena(file).live_bytes


def test_no_bands_where_none_help() -> None:
    net = Net("FLOAT32")
    file = parse_tflite(net.build(net.unary("RELU", net.x)), "m")
    assert choose_tflite_bands(file).bands == ()


def test_only_allowed_operators() -> None:
    file = parse_tflite(wide_front("FLOAT32"), "m")
    assert choose_tflite_bands(file, BandOptions(only_ops=ops_of(file))).bands == ()
    assert choose_tflite_bands(file, BandOptions(only_ops=ops_of(file) | {"SLICE", "PAD", "CONCATENATION"})).bands


def test_values_that_leave_a_stretch_keep_it_whole() -> None:
    """Both large tensors are outputs of the model: no stretch may end them."""
    net = Net("FLOAT32", rows=32, columns=32)
    wide = net.conv(net.x, 32)
    y = net.conv(net.conv(wide, 32, is_depthwise=True), 4, size=1)
    file = parse_tflite(net.build(y, wide), "m")
    for stretch, _ in choose_tflite_bands(file).bands:
        assert all(operator.output != wide for operator in stretch.operators[:-1])


# ------------------------------------------------------------------ lowtide export --bands


def written(folder: Path, data: bytes) -> str:
    path = folder / "model.tflite"
    path.write_bytes(data)
    return str(path)


def test_export_in_bands_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, smaller = written(tmp_path, wide_front("INT8")), tmp_path / "smaller.tflite"
    assert main(["export", model, "-o", str(smaller), "--bands", "auto", "--check"]) == 0
    printed = capsys.readouterr().out
    assert printed.count("identical to the bit") == 2
    assert re.search(r"bands +operators 0 to \d of 3 in \d+ bands", printed)
    assert "new operators: CONCATENATION, PAD, SLICE" in printed
    assert "constexpr int kTensorArenaSize" in printed
    before, after = (parse_tflite(path.read_bytes(), "m") for path in (Path(model), smaller))
    assert micro_arena(after).head_bytes < 0.4 * micro_arena(before).head_bytes


def test_export_in_a_given_number_of_bands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, smaller = written(tmp_path, wide_front("FLOAT32")), tmp_path / "smaller.tflite"
    assert main(["export", model, "-o", str(smaller), "--bands", "4"]) == 0
    assert "in 4 bands" in capsys.readouterr().out
    assert smaller.exists()


def test_nothing_is_written_where_bands_do_not_help(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = Net("FLOAT32")
    model, smaller = written(tmp_path, net.build(net.unary("RELU", net.x))), tmp_path / "smaller.tflite"
    assert main(["export", model, "-o", str(smaller), "--bands", "auto"]) == 1
    assert "nothing is written: no row bands were found" in capsys.readouterr().err
    assert not smaller.exists()


def test_no_new_ops_forbids_bands(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    model, smaller = written(tmp_path, wide_front("FLOAT32")), tmp_path / "smaller.tflite"
    assert main(["export", model, "-o", str(smaller), "--bands", "auto", "--no-new-ops"]) == 1
    assert "bands need SLICE, CONCATENATION" in " ".join(capsys.readouterr().err.split())
    assert not smaller.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["m.tflite"], "PLAN is missing"),
        (["m.tflite", "plan.json", "--bands", "auto"], "leave one out"),
        (["m.json", "--bands", "auto"], "only .tflite and .onnx files are cut into bands"),
        (["m.tflite", "--bands", "1"], "write auto, off, or a number from 2 to 10"),
        (["m.tflite", "--bands", "eleven"], "write auto, off, or a number from 2 to 10"),
    ],
)
def test_what_cannot_be_asked_for(
    arguments: list[str], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    smaller = tmp_path / "smaller.tflite"
    assert main(["export", *arguments, "-o", str(smaller)]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not smaller.exists()


# ------------------------------------------------------------------ benchmark


@pytest.mark.slow
def test_the_benchmark_measures_a_mobile_net(tmp_path: Path) -> None:
    output = tmp_path / "results.jsonl"
    options = ("--offline", "--only", "mobilenet_v2_like_float32", "--seconds", "3", "--repeats", "1")
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.edge.bands", *options, "-o", str(output)],
        cwd=Path(__file__).parents[2], capture_output=True, text=True, check=False, timeout=280,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    run, row = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert run["format"] == "lowtide.benchmark.edge_bands"
    before, after = row["micro"]["before"], row["micro"]["after"]
    assert after["head_bytes"] == row["planned_bytes"] < 0.4 * before["head_bytes"]
    assert after["total_bytes"] < 0.4 * before["total_bytes"]
    assert row["micro"]["num_different_outputs"] == 0
    assert row["litert"]["largest_difference"] < 1e-5
    assert row["estimated_added_time_percent"] <= 50
