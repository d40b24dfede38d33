"""Plans on the stock ONNX Runtime: the peak is the planned one, the outputs are the same bits."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lowtide import api
from lowtide.cli import main
from lowtide.emit.onnx import OnnxExport, export_onnx
from lowtide.emit.onnx_check import OnnxRun, check_onnx, run_on_onnx_runtime
from lowtide.emit.onnx_session import onnx_session
from lowtide.importers.onnx import OnnxImport, import_onnx
from lowtide.importers.onnx_file import read_onnx
from lowtide.ir.serde import load_plan, save_plan
from lowtide.referee import baseline

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "importers"))
from onnx_models import constant, long_skip, model, node, onnx, save, two_branches, value, weight, with_branch

MOST_UNPLANNED_BYTES = 16 * 1024  # of a run: its frame, shapes, bindings
LARGE = (1, 16, 256, 256)
LARGE_BYTES = 4 * 16 * 256 * 256


def imported(made: Any, folder: Path, level: str = "portable") -> OnnxImport:
    return import_onnx(read_onnx(save(made, folder)), level=level)


def exported(source: OnnxImport, budget: int | str = "min") -> OnnxExport:
    result = api.plan(source.graph, budget=budget, layout=None, bound=False, threads=1, time_limit_seconds=5)
    return export_onnx(source, api.require_plan(result, source.graph))


def run(made: Any) -> OnnxRun:
    return run_on_onnx_runtime(made.SerializeToString(), how="none", repeats=0)


@pytest.mark.parametrize("level", ["portable", "machine", "none"])
@pytest.mark.parametrize("build", [two_branches, long_skip, with_branch])
def test_outputs_are_the_same_bits(build: Callable[[], Any], level: str, tmp_path: Path) -> None:
    source = imported(build(), tmp_path, level)
    checked = check_onnx(source, exported(source).data, repeats=0)
    assert checked.num_outputs == 3
    assert checked.is_identical
    assert checked.default_difference < 1e-3


@pytest.mark.parametrize("build", [two_branches, long_skip])
def test_the_measured_peak_is_the_planned_one(build: Callable[[], Any], tmp_path: Path) -> None:
    source = imported(build(), tmp_path)
    export = exported(source)
    checked = check_onnx(source, export.data, repeats=0)
    assert export.after_bytes <= checked.after.run_bytes <= export.after_bytes + MOST_UNPLANNED_BYTES
    assert export.before_bytes <= checked.before.run_bytes + MOST_UNPLANNED_BYTES
    assert checked.after.run_bytes < 0.9 * checked.before.run_bytes
    assert checked.helps


def test_recomputed_nodes_are_merged_again_without_the_recipe(tmp_path: Path) -> None:
    """Why there is a recipe: the default options undo the plan."""
    export = exported(imported(long_skip(), tmp_path))
    assert export.num_recomputes == 1
    planned, fused = (run_on_onnx_runtime(export.data, how=how, repeats=0).run_bytes for how in ("none", "portable"))
    assert fused > planned + 100_000


def test_operators_in_place_and_views_take_no_block(tmp_path: Path) -> None:
    """One block for a chain of all operators that are in place or views: one that is not would need two."""
    unary = ["Celu", "Elu", "HardSigmoid", "LeakyRelu", "LogSoftmax", "Relu", "Selu", "Shrink", "Sigmoid", "Softmax",
             "Softplus", "Softsign", "Tanh", "ThresholdedRelu"]  # fmt: skip
    nodes = [node("Expand", ["x", "shape"], ["v0"])]
    for position, op in enumerate(unary):
        nodes.append(node(op, [f"v{position}"], [f"v{position + 1}"]))
    last = len(unary)
    nodes += [
        node("Clip", [f"v{last}", "low", "high"], ["clipped"]),
        node("Flatten", ["clipped"], ["flat"]),
        node("Reshape", ["flat", "shape"], ["shaped"]),
        node("Squeeze", ["shaped", "axis"], ["squeezed"]),
        node("Unsqueeze", ["squeezed", "axis"], ["unsqueezed"]),
        node("Identity", ["unsqueezed"], ["same"]),
        node("ReduceMax", ["same"], ["y"], keepdims=0),
    ]
    weights = [constant("shape", np.array(LARGE, np.int64)), constant("axis", np.array([0], np.int64)),
               constant("low", np.float32(0)), constant("high", np.float32(1))]  # fmt: skip
    made = model(nodes, [value("x", (1, 1, 1, 256))], [value("y", ())], weights)
    planned = baseline(imported(made, tmp_path, "none").graph).peak_bytes
    assert LARGE_BYTES < planned < 1.01 * LARGE_BYTES
    assert run(made).run_bytes < planned + MOST_UNPLANNED_BYTES


@pytest.mark.parametrize("op", ["Add", "Mul", "Exp", "Neg", "Abs", "Erf"])
def test_operators_not_in_place_take_a_block(op: str, tmp_path: Path) -> None:
    inputs = ["a", "one"] if op in ("Add", "Mul") else ["a"]
    nodes = [
        node("Expand", ["x", "shape"], ["a"]),
        node(op, inputs, ["b"]),
        node("ReduceMax", ["b"], ["y"], keepdims=0),
    ]
    weights = [constant("shape", np.array(LARGE, np.int64)), constant("one", np.float32(1))]
    made = model(nodes, [value("x", (1, 1, 1, 256))], [value("y", ())], weights)
    planned = baseline(imported(made, tmp_path, "none").graph).peak_bytes
    assert planned > 2 * LARGE_BYTES
    assert planned - MOST_UNPLANNED_BYTES < run(made).run_bytes < planned + MOST_UNPLANNED_BYTES


@pytest.mark.parametrize(
    ("op", "shape"), [("ConvTranspose", (16, 16, 3, 3)), ("Conv", (16, 16, 3, 3)), ("Conv", (16, 16, 1, 1))]
)
def test_scratch_of_convolutions_is_known(op: str, shape: tuple[int, ...], tmp_path: Path) -> None:
    pads = [shape[-1] // 2] * 4
    nodes = [node("Expand", ["x", "shape"], ["a"]), node(op, ["a", "w"], ["y"], pads=pads)]
    weights = [constant("shape", np.array(LARGE, np.int64)), weight("w", shape)]
    made = model(nodes, [value("x", (1, 1, 1, 256))], [value("y", LARGE)], weights)
    planned = baseline(imported(made, tmp_path, "none").graph).peak_bytes
    assert planned - MOST_UNPLANNED_BYTES < run(made).run_bytes < planned + MOST_UNPLANNED_BYTES


@pytest.mark.parametrize("seed", [0, 1, 2])
def test_random_nets_keep_their_bits(seed: int, tmp_path: Path) -> None:
    """Whatever is recomputed and however it is ordered."""
    rng = np.random.default_rng(seed)
    nodes, made_so_far = [], ["x"]
    for position in range(16):
        first, second = (str(name) for name in rng.choice(made_so_far, size=2))
        op = str(rng.choice(["Mul", "Add", "Tanh", "Sin", "MatMul", "Relu"]))
        inputs = {"Mul": [first, second], "Add": [first, second], "MatMul": [first, "w"]}.get(op, [first])
        nodes.append(node(op, inputs, [f"v{position}"]))
        made_so_far.append(f"v{position}")
    nodes.append(node("Sum", made_so_far[-4:], ["y"]))
    source = imported(model(nodes, [value("x")], [value("y")], [weight("w", (16, 16))]), tmp_path, "none")
    export = exported(source)
    assert export.after_bytes < export.before_bytes
    assert check_onnx(source, export.data, num_sets=2, repeats=0).is_identical


def test_plan_and_export_from_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    made = long_skip()
    for shaped in (made.graph.input[0], made.graph.output[0]):
        shaped.type.tensor_type.shape.dim[0].dim_param = "batch"
    path, plan, out = save(made, tmp_path), tmp_path / "plan.json", tmp_path / "out.onnx"
    assert main(["plan", str(path), "--budget", "min", "-o", str(plan), "--threads", "1"]) == 2
    assert "--dim batch=1" in capsys.readouterr().err
    dim = ["--dim", "batch=1"]
    assert main(["plan", str(path), "--budget", "min", "-o", str(plan), "--threads", "1", *dim]) == 0
    assert load_plan(plan).layout is None
    assert main(["verify", str(path), str(plan), *dim]) == 0
    assert main(["export", str(path), str(plan), "-o", str(out), "--check", *dim]) == 0
    printed = capsys.readouterr().out
    assert "outputs identical to the bit" in printed
    assert "lowtide.onnx_session(" in printed
    session = onnx_session(out, threads=1)
    image = np.random.default_rng(0).standard_normal((1, 4, 16, 16)).astype(np.float32)
    assert session.run(None, {"x": image})[0].shape == (1, 4, 16, 16)


def test_plans_for_this_machine_are_recognised(tmp_path: Path) -> None:
    path, plan, out = save(long_skip(), tmp_path), tmp_path / "plan.json", tmp_path / "out.onnx"
    assert main(["plan", f"machine:{path}", "--budget", "min", "-o", str(plan), "--threads", "1"]) == 0
    assert main(["export", str(path), str(plan), "-o", str(out)]) == 0
    assert any(entry.domain == "com.microsoft.nchwc" for entry in onnx.load(str(out)).graph.node)


def test_nothing_is_written_where_a_plan_would_not_help(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, plan, out = save(with_branch(), tmp_path), tmp_path / "plan.json", tmp_path / "out.onnx"
    source = import_onnx(read_onnx(path))
    result = api.plan(source.graph, budget="100%", layout=None, bound=False, threads=1)
    save_plan(api.require_plan(result, source.graph).plan, plan)
    assert main(["export", str(path), str(plan), "-o", str(out)]) == 1
    assert "no less memory" in capsys.readouterr().err
    assert not out.exists()
    assert main(["export", str(path), str(plan), "-o", str(out), "--check"]) == 1
    first, *rest = capsys.readouterr().out.splitlines()
    gain = re.fullmatch(r"The recipe's options alone: peak of a run (\d+) -> (\d+) bytes .* less", first)
    run, session, both = (
        next(line.split()[-3:] for line in rest if line.startswith(f"{name}, bytes"))
        for name in ("peak of a run", "held by the session", "both together")
    )
    assert gain is not None
    assert list(gain.groups()) == run[:2]
    assert [int(a) + int(b) for a, b in zip(run, session, strict=True)] == [int(total) for total in both]
    assert main(["export", str(path), str(plan), "-o", str(out), "--force"]) == 0
    assert out.exists()


def test_wrong_names_are_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, plan = save(two_branches(), tmp_path), tmp_path / "plan.json"
    assert main(["export", str(path), str(plan), "-o", str(tmp_path / "out.tflite")]) == 2
    assert "name an .onnx file" in capsys.readouterr().err
    assert main(["export", str(path), str(plan), "-o", str(path)]) == 2
    assert "is the model itself" in capsys.readouterr().err


def test_dims_are_for_onnx_files_only(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = tmp_path / "plan.json"
    assert main(["plan", "graph.json", "--dim", "batch=1"]) == 2
    assert main(["export", "model.tflite", str(plan), "-o", "out.tflite", "--dim", "batch=1"]) == 2
    assert capsys.readouterr().err.count("only .onnx files leave dimensions open") == 2
