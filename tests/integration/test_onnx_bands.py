"""Row bands on the stock ONNX Runtime: the same outputs up to its rounding, at the planned peak."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from lowtide import api
from lowtide.cli import main
from lowtide.emit.bands.onnx_net import MOST_ONNX_BANDS, OnnxNet, onnx_net
from lowtide.emit.bands.onnx_rewrite import with_bands
from lowtide.emit.bands.planned import plan_bands
from lowtide.emit.bands.search import BandOptions
from lowtide.emit.bands.stretch import Stretch
from lowtide.emit.onnx import OnnxExport
from lowtide.emit.onnx_bands import choose_onnx_bands, export_onnx_bands, import_onnx_bands, onnx_ops_of
from lowtide.emit.onnx_check import check_onnx, run_on_onnx_runtime
from lowtide.emit.onnx_session import onnx_session
from lowtide.importers.onnx import OnnxImport, capture_onnx, import_onnx
from lowtide.importers.onnx_file import read_onnx
from lowtide.importers.onnx_options import random_feeds
from lowtide.ir import Graph, PlanResult
from lowtide.ir.serde import graph_sha256, load_plan
from lowtide.referee import baseline

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "importers"))
from onnx_models import constant, model, onnx, save, two_branches, value, weight

MOST_UNPLANNED_BYTES = 24 * 1024  # of a run: its frame, shapes, bindings
MOST_ROUNDING = 1e-6
ROWS, COLUMNS = 13, 9


class Net:
    """Builds a net: values are (1, channels, rows, columns), float32."""

    def __init__(self, *, depth: int = 3, rows: int = ROWS, columns: int = COLUMNS) -> None:
        self.nodes: list[Any] = []
        self.weights: list[Any] = []
        self.shape = (1, depth, rows, columns)
        self.x = "x"

    def op(self, op: str, inputs: Sequence[str], **attributes: Any) -> str:
        name = f"t{len(self.nodes)}"
        self.nodes.append(onnx.helper.make_node(op, list(inputs), [name], name=f"{op}_{name}", **attributes))
        return name

    def weight(self, *shape: int) -> str:
        name = f"w{len(self.weights)}"
        self.weights.append(weight(name, shape, seed=len(self.weights)))
        return name

    def constant(self, array: Any) -> str:
        name = f"c{len(self.weights)}"
        self.weights.append(constant(name, array))
        return name

    def conv(self, source: str, *shape: int, op: str = "Conv", **attributes: Any) -> str:
        """Of weights of a shape, (filters, channels of a group, rows, columns)."""
        bias = [] if op == "ConvTranspose" else [self.weight(shape[0])]
        return self.op(op, [source, self.weight(*shape), *bias], **attributes)

    def build(self, y: str, dtype: int = onnx.TensorProto.FLOAT) -> Any:
        shape = ["batch", "depth", "rows", "columns"]
        return model(self.nodes, [value("x", self.shape)], [value(y, shape, dtype)], self.weights)


def dense_block(net: Net) -> str:
    """Values of several heights of halo meet in concatenations, and the input comes back at the end."""
    parts = [net.x]
    for number in range(3):
        whole = net.op("Concat", parts, axis=1) if number else net.x
        narrow = net.conv(whole, 2, 3 + 2 * number, 3, 3, pads=[1] * 4)
        parts.append(net.op("LeakyRelu", [narrow], alpha=0.2))
    return net.op("Add", [net.conv(net.op("Concat", parts, axis=1), 3, 9, 3, 3, pads=[1] * 4), net.x])


def mobile_front(net: Net) -> str:
    y = net.op("Relu", [net.conv(net.x, 4, 3, 3, 3, pads=[1] * 4, strides=[2, 2])])
    for _ in range(2):
        wide = net.op("Clip", [net.conv(y, 12, 4, 1, 1), net.constant(np.float32(0)), net.constant(np.float32(6))])
        deep = net.op("Relu", [net.conv(wide, 12, 1, 3, 3, pads=[1] * 4, group=12)])
        y = net.op("Add", [y, net.conv(deep, 4, 12, 1, 1)])
    return y


def quantised(net: Net) -> str:
    """A convolution between quantised values, as converters write it: ONNX Runtime fuses it."""
    scale, zero = net.constant(np.float32(0.05)), net.constant(np.uint8(128))
    x = net.op("DequantizeLinear", [net.op("QuantizeLinear", [net.x, scale, zero]), scale, zero])
    levels = np.random.default_rng(1).integers(-90, 90, (4, 3, 3, 3), dtype=np.int8)
    weights = net.op("DequantizeLinear", [net.constant(levels), scale, net.constant(np.int8(0))])
    y = net.op("Conv", [x, weights], pads=[1] * 4)
    return net.op("DequantizeLinear", [net.op("QuantizeLinear", [y, scale, zero]), scale, zero])


def resized(net: Net, *, sizes: bool, **attributes: Any) -> str:
    scales = net.constant(np.array([] if sizes else [1, 1, 2, 2], np.float32))
    more = [net.constant(np.array([1, 3, 2 * ROWS, 2 * COLUMNS], np.int64))] if sizes else []
    return net.op("Resize", [net.x, "", scales, *more], mode="nearest", **attributes)


def padded(net: Net) -> str:
    """By sevens; more below and to the right."""
    amounts = net.constant(np.array([0, 0, 2, 1, 0, 0, 3, 2], np.int64))
    return net.op("Pad", [net.x, amounts, net.constant(np.float32(7))])


OPERATORS: dict[str, Callable[[Net], str]] = {
    "conv": lambda net: net.conv(net.x, 5, 3, 3, 3, pads=[1] * 4),
    "conv of 5, stride 2": lambda net: net.conv(net.x, 5, 3, 5, 5, pads=[2] * 4, strides=[2, 2]),
    "conv, stride 3, no padding": lambda net: net.conv(net.x, 5, 3, 3, 3, strides=[3, 3]),
    "conv, dilated": lambda net: net.conv(net.x, 5, 3, 3, 3, pads=[2] * 4, dilations=[2, 2]),
    "conv, padding on one side": lambda net: net.conv(net.x, 5, 3, 3, 3, pads=[2, 0, 0, 1]),
    "conv, SAME_UPPER": lambda net: net.conv(net.x, 5, 3, 4, 4, auto_pad="SAME_UPPER", strides=[2, 2]),
    "conv, SAME_LOWER": lambda net: net.conv(net.x, 5, 3, 4, 4, auto_pad="SAME_LOWER"),
    "conv, VALID": lambda net: net.conv(net.x, 5, 3, 3, 3, auto_pad="VALID"),
    "conv of 1, stride 2": lambda net: net.conv(net.x, 5, 3, 1, 1, strides=[2, 2]),
    "depthwise": lambda net: net.conv(net.x, 3, 1, 3, 3, pads=[1] * 4, group=3),
    "grouped": lambda net: net.conv(net.conv(net.x, 4, 3, 1, 1), 6, 2, 3, 3, pads=[1] * 4, group=2),
    "transposed": lambda net: net.conv(net.x, 3, 4, 2, 2, op="ConvTranspose", strides=[2, 2]),
    "max pool": lambda net: net.op("MaxPool", [net.x], kernel_shape=[2, 2], strides=[2, 2]),
    "max pool, padded": lambda net: net.op("MaxPool", [net.x], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
    "average pool": lambda net: net.op("AveragePool", [net.x], kernel_shape=[3, 3], strides=[2, 2], pads=[1] * 4),
    "average of padding": lambda net: net.op(
        "AveragePool", [net.x], kernel_shape=[3, 3], pads=[1] * 4, count_include_pad=1
    ),
    "pad": lambda net: net.conv(padded(net), 4, 3, 3, 3),
    "nearest by scales": lambda net: resized(net, sizes=False),
    "nearest by sizes": lambda net: resized(
        net, sizes=True, coordinate_transformation_mode="asymmetric", nearest_mode="floor"
    ),
    "nearest between": lambda net: net.conv(resized(net, sizes=False), 2, 3, 3, 3, pads=[1] * 4),
    "add": lambda net: net.op("Add", [net.conv(net.x, 3, 3, 3, 3, pads=[1] * 4), net.x]),
    "mul by a number": lambda net: net.op("Mul", [net.x, net.constant(np.float32(0.2))]),
    "prelu": lambda net: net.op("PRelu", [net.x, net.weight(3, 1, 1)]),
    "sub by column": lambda net: net.op("Sub", [net.x, net.weight(1, COLUMNS)]),
    "sum": lambda net: net.op("Sum", [net.x, net.conv(net.x, 3, 3, 1, 1), net.x]),
    "concat of columns": lambda net: net.op("Concat", [net.x, net.conv(net.x, 3, 3, 1, 1)], axis=3),
    "normalisation": lambda net: net.op(
        "BatchNormalization",
        [net.x, net.weight(3), net.weight(3), net.weight(3), net.constant(np.ones(3, np.float32))],
    ),
    "gate": lambda net: net.op("Mul", [net.op("Sigmoid", [net.x]), net.x]),
    "hard swish": lambda net: net.op("HardSwish", [net.x]),
    "quantised": quantised,
    "dense block": dense_block,
    "mobile front": mobile_front,
}


def imported(made: Any, folder: Path, level: str = "portable") -> OnnxImport:
    return import_onnx(read_onnx(save(made, folder)), level=level)


def whole_stretch(numbered: OnnxNet) -> Stretch:
    """All nodes of a model."""
    operators = [operator.banded for operator in numbered.net.operators if operator.banded is not None]
    assert len(operators) == len(numbered.net.operators)
    return Stretch(tuple(operators), numbered.net.images[operators[-1].output].num_rows)


def infer(data: bytes, seed: int = 3) -> npt.NDArray[Any]:
    session = onnx_session(data, threads=1)
    (found,) = session.run(None, random_feeds(session.get_inputs(), seed=seed))
    return np.asarray(found)


@pytest.mark.parametrize(
    ("name", "level"),
    [(name, level) for name in OPERATORS for level in ("none", "portable") if (name, level) != ("quantised", "none")],
)
def test_every_operator_gives_the_same_in_bands(name: str, level: str, tmp_path: Path) -> None:
    net = Net()
    source = imported(net.build(OPERATORS[name](net)), tmp_path, level)
    numbered = onnx_net(source)
    stretch = whole_stretch(numbered)
    expected = infer(source.optimised.model.SerializeToString())
    for num_bands in (2, 3, 4):
        banded = with_bands(source, numbered, [(stretch, num_bands)])
        onnx.checker.check_model(banded)
        found = infer(banded.SerializeToString())
        assert found.shape == expected.shape
        largest = float(np.abs(expected).max())
        assert float(np.abs(found - expected).max()) <= MOST_ROUNDING * largest
        if stretch.operators[-1].position == 0 and "conv" not in name:
            assert found.tobytes() == expected.tobytes()


def test_quantised_convolutions_are_cut_as_they_are_fused(tmp_path: Path) -> None:
    """And give the same bits: integers do not round otherwise."""
    net = Net()
    source = imported(net.build(quantised(net)), tmp_path)
    assert "QLinearConv" in onnx_ops_of(source)
    numbered = onnx_net(source)
    banded = with_bands(source, numbered, [(whole_stretch(numbered), 4)])
    assert infer(banded.SerializeToString()).tobytes() == infer(source.optimised.model.SerializeToString()).tobytes()


def wide_front(side: int = 64) -> Any:
    """Small, large, small: (3, side, side) to (32, side, side) twice, then (4, side / 2, side / 2)."""
    net = Net(rows=side, columns=side)
    wide = net.op("Relu", [net.conv(net.x, 32, 3, 3, 3, pads=[1] * 4)])
    deep = net.op("Relu", [net.conv(wide, 32, 1, 3, 3, pads=[1] * 4, group=32)])
    return net.build(net.conv(deep, 4, 32, 1, 1, strides=[2, 2]))


def plan_smallest(graph: Graph, *, keep_order: bool, max_copies: int | None) -> PlanResult:
    return api.plan(
        graph, budget="min", keep_order=keep_order, max_copies=max_copies, bound=False, threads=1, layout=None,
        time_limit_seconds=3.0,
    )  # fmt: skip


def exported(
    portable: OnnxImport, options: BandOptions | None = None, *, original: OnnxImport | None = None
) -> OnnxExport:
    banded = import_onnx_bands(portable, choose_onnx_bands(portable, options), original=original)
    result = plan_bands(banded.source.graph, banded.choice, plan_smallest)
    return export_onnx_bands(banded, api.require_plan(result, banded.source.graph))


@pytest.mark.parametrize("level", ["portable", "machine"])
def test_an_op_bound_front_needs_a_fraction(level: str, tmp_path: Path) -> None:
    made = wide_front(128)
    portable = imported(made, tmp_path)
    original = portable if level == "portable" else imported(made, tmp_path, level)
    export = exported(portable, original=original)
    checked = check_onnx(original, export.data, num_sets=2, repeats=0)
    assert checked.is_same_within_rounding
    assert checked.difference <= MOST_ROUNDING
    assert export.before_bytes >= 2 * 4 * 32 * 128 * 128
    assert export.after_bytes < 0.4 * export.before_bytes
    assert (
        export.after_bytes
        <= checked.after.run_bytes
        <= max(1.02 * export.after_bytes, export.after_bytes + MOST_UNPLANNED_BYTES)
    )
    assert export.helps
    assert checked.helps
    assert export.num_recomputes > 0


@pytest.mark.parametrize("num_bands", [2, 5, MOST_ONNX_BANDS])
def test_the_model_of_bytes_is_what_the_runtime_takes(num_bands: int, tmp_path: Path) -> None:
    """What the choice counts, what the graph says, and what malloc hands out."""
    source = imported(wide_front(), tmp_path)
    options = BandOptions(num_bands=num_bands, most_added_time_percent=1000)
    choice = choose_onnx_bands(source, options)
    banded = import_onnx_bands(source, choice)
    planned_bytes = baseline(banded.source.graph).peak_bytes
    assert choice.before_bytes == baseline(source.graph).peak_bytes
    assert choice.after_bytes == planned_bytes
    run = run_on_onnx_runtime(banded.source.file.model.SerializeToString(), how="none", repeats=0)
    assert planned_bytes <= run.run_bytes <= planned_bytes + MOST_UNPLANNED_BYTES


@pytest.mark.parametrize("seed", range(4))
def test_random_nets_in_bands(seed: int, tmp_path: Path) -> None:
    """Whatever is beside each other: outputs are the same, and the peak is the planned one."""
    rng = np.random.default_rng(seed)
    net = Net(depth=8, rows=int(rng.integers(80, 110)), columns=int(rng.integers(60, 80)))
    made = [net.x]
    for _ in range(8):
        first, second = made[-1], made[int(rng.integers(len(made)))]
        wide = net.op("Relu", [net.conv(first, 32, 8, 3, 3, pads=[1] * 4)])
        made.append(
            {
                0: lambda: net.conv(wide, 8, 32, 1, 1),  # noqa: B023
                1: lambda: net.op("Add", [net.conv(wide, 8, 32, 3, 3, pads=[2] * 4, dilations=[2, 2]), second]),  # noqa: B023
                2: lambda: net.conv(net.op("Concat", [wide, second], axis=1), 8, 40, 1, 1),  # noqa: B023
                3: lambda: net.op("LeakyRelu", [net.op("Mul", [net.conv(wide, 8, 32, 1, 1), second])]),  # noqa: B023
            }[int(rng.integers(4))]()
        )
    source = imported(net.build(made[-1]), tmp_path)
    export = exported(source, BandOptions(most_added_time_percent=100))
    checked = check_onnx(source, export.data, num_sets=1, repeats=0)
    assert checked.difference <= MOST_ROUNDING
    assert export.after_bytes < export.before_bytes
    assert export.after_bytes <= checked.after.run_bytes <= export.after_bytes + MOST_UNPLANNED_BYTES


def test_what_is_not_in_a_stretch_stays_as_it_was(tmp_path: Path) -> None:
    made = wide_front()
    made.graph.doc_string = "kept"
    made.metadata_props.add(key="note", value="kept, too")
    source = imported(made, tmp_path)
    before = source.optimised.model.SerializeToString(deterministic=True)
    new = onnx.load_from_string(exported(source).data)
    assert source.optimised.model.SerializeToString(deterministic=True) == before
    assert [entry.name for entry in new.graph.input] == ["x"]
    assert [entry.name for entry in new.graph.output] == [made.graph.output[0].name]
    assert {entry.key: entry.value for entry in new.metadata_props}["note"] == "kept, too"
    assert len(new.SerializeToString()) < len(made.SerializeToString()) + 32 * 1024  # weights are shared


def test_no_bands_where_none_help(tmp_path: Path) -> None:
    net = Net()
    assert choose_onnx_bands(imported(net.build(net.op("Relu", [net.x])), tmp_path)).bands == ()


def test_only_allowed_operators(tmp_path: Path) -> None:
    source = imported(wide_front(), tmp_path)
    assert choose_onnx_bands(source, BandOptions(only_ops=onnx_ops_of(source))).bands == ()
    assert choose_onnx_bands(source, BandOptions(only_ops=onnx_ops_of(source) | {"Slice", "Concat"})).bands


# ------------------------------------------------------------------ commands


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """With an op-bound model whose batch is open."""
    monkeypatch.chdir(tmp_path)
    made = wide_front(96)
    made.graph.input[0].type.tensor_type.shape.dim[0].dim_param = "batch"
    save(made, tmp_path, "model.onnx")
    return tmp_path


DIM = ["--dim", "batch=1"]


def said(capsys: pytest.CaptureFixture[str]) -> str:
    return " ".join("".join(capsys.readouterr()).split())


def test_export_in_bands(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["export", "model.onnx", "-o", "smaller.onnx", "--bands", "auto", "--check", *DIM]) == 0
    printed = said(capsys)
    assert re.search(r"bands operators 0 to \d of 3 in \d+ bands", printed)
    assert "outputs identical to the bit" in printed or re.search(r"by at most \d\.\de-0[6-9] of the largest", printed)
    assert "lowtide.onnx_session('smaller.onnx')" in printed
    assert Path("smaller.onnx").exists()


def test_plan_verify_report_export(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = ["plan", "model.onnx", "--budget", "70%", "--bands", "4", "-o", "plan.json", "--time-limit", "2", *DIM]
    assert main(plan) == 0
    assert re.search(r"budget 70% of \d\.\d\d MiB, the plain peak without bands", said(capsys))
    kept = load_plan("plan.json")
    assert kept.meta == {"bands": {"bands": "4", "in_place": False}}
    assert kept.graph is not None
    assert kept.graph_sha256 == graph_sha256(capture_onnx("model.onnx", dims={"batch": 1}))
    assert main(["verify", "model.onnx", "plan.json", *DIM]) == 0
    assert main(["report", "plan.json", "--graph", "model.onnx", "-o", "report.html", *DIM]) == 0
    assert main(["export", "model.onnx", "plan.json", "-o", "smaller.onnx", *DIM]) == 0
    assert "in 4 bands" in said(capsys)
    assert main(["export", "model.onnx", "plan.json", "-o", "other.onnx", "--no-new-ops", *DIM]) == 2
    assert "--no-new-ops: the plan's bands need Concat, Slice" in said(capsys)
    text = Path("plan.json").read_text(encoding="utf-8")
    Path("plan.json").write_text(text.replace('"bands":"4"', '"bands":"3"'), encoding="utf-8")
    for command in (
        ["verify", "model.onnx", "plan.json", *DIM],
        ["export", "model.onnx", "plan.json", "-o", "other.onnx", *DIM],
    ):
        assert main(command) == 1
        assert "the plan's row bands are not those chosen for this model now" in said(capsys)
    assert not Path("other.onnx").exists()


def test_bands_for_this_machine(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Chosen again from the plan, whatever order ONNX Runtime writes its own nodes in."""
    plan = ["plan", "machine:model.onnx", "--budget", "min", "--bands", "auto", "-o", "plan.json", "--time-limit", "2"]
    assert main([*plan, *DIM]) == 0
    for _ in range(2):
        assert main(["verify", "machine:model.onnx", "plan.json", *DIM]) == 0
    assert main(["export", "model.onnx", "plan.json", "-o", "smaller.onnx", *DIM]) == 0
    assert "Only on processors like this one" in said(capsys)


def test_the_analysis_points_to_bands(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "model.onnx", "--time-limit", "2", *DIM]) == 0
    command = "lowtide export model.onnx --dim batch=1 -o smaller.onnx --bands auto --check"
    assert command in said(capsys)


def branches_of_convolutions(side: int = 48) -> Any:
    """16 channels into 48 and on to 8, by three sizes of kernel, concatenated: more lives at the peak than one node."""
    net = Net(rows=side, columns=side)
    source = net.op("Relu", [net.conv(net.x, 16, 3, 3, 3, pads=[1] * 4)])
    branches = []
    for size in (1, 3, 5):
        pads = [size // 2] * 4
        wide = net.op("Relu", [net.conv(source, 48, 16, size, size, pads=pads)])
        branches.append(net.op("Relu", [net.conv(wide, 8, 48, size, size, pads=pads)]))
    return net.build(net.conv(net.op("Concat", branches, axis=1), 4, 24, 1, 1))


def test_plans_that_gain_next_to_nothing_point_to_bands(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(branches_of_convolutions(), folder, "branches.onnx")
    assert main(["plan", "branches.onnx", "--time-limit", "1"]) == 0
    printed = said(capsys)
    assert "alone needs the whole peak" not in printed
    assert "Row bands may help: lowtide export branches.onnx -o smaller.onnx --bands auto --check" in printed
    assert main(["plan", "branches.onnx", "--budget", "min", "--time-limit", "1"]) == 0
    assert "Row bands may help: add --bands auto" in said(capsys)
    assert main(["plan", "branches.onnx", "--budget", "60%", "--time-limit", "1"]) == 3
    assert "Row bands may help: add --bands auto" in said(capsys)
    assert main(["plan", "branches.onnx", "--budget", "100%", "--time-limit", "1"]) == 0
    assert "Row bands" not in said(capsys)


def test_plans_that_gain_do_not_point_to_bands(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save(two_branches(), folder, "two.onnx")
    assert main(["plan", "two.onnx", "--time-limit", "1"]) == 0
    assert main(["plan", "two.onnx", "--budget", "min", "--time-limit", "1"]) == 0
    assert "Row bands" not in said(capsys)


def test_nothing_is_written_where_bands_do_not_help(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    net = Net()
    save(net.build(net.op("Relu", [net.x])), folder, "flat.onnx")
    assert main(["export", "flat.onnx", "-o", "smaller.onnx", "--bands", "auto"]) == 1
    assert "nothing is written: no row bands were found" in said(capsys)
    assert main(["export", "model.onnx", "-o", "smaller.onnx", "--bands", "auto", "--no-new-ops", *DIM]) == 1
    assert "of .onnx files Slice and Concat" in said(capsys)
    assert not Path("smaller.onnx").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["model.onnx", "-o", "y.onnx"], "PLAN is missing"),
        (["model.onnx", "-o", "y.onnx", "--bands", "1", *DIM], "write auto, off, or a number from 2 to 32"),
        (["model.onnx", "-o", "y.onnx", "--bands", "33", *DIM], "write auto, off, or a number from 2 to 32"),
        (["model.onnx", "-o", "y.onnx", "--bands", "auto"], "--dim batch=1"),
        (["model.onnx", "plan.json", "-o", "y.onnx", "--bands", "auto"], "leave one out"),
        (["model.onnx", "-o", "y.tflite", "--bands", "auto"], "name an .onnx file"),
        (["missing.onnx", "-o", "y.onnx", "--bands", "auto"], "cannot be read"),
        (["broken.onnx", "-o", "y.onnx", "--bands", "auto"], "broken.onnx: no .onnx file, truncated, or broken"),
    ],
)
def test_what_cannot_be_asked_for(
    arguments: list[str], message: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("broken.onnx").write_bytes(Path("model.onnx").read_bytes()[:-100])
    assert main(["export", *arguments]) == 2
    assert message in said(capsys)
    assert not Path("y.onnx").exists()
