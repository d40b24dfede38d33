"""Plans on the stock TensorFlow Lite Micro and LiteRT: the arena is the planned one, the outputs are the same bits."""

from __future__ import annotations

import io
import json
import subprocess
import sys
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lowtide import api
from lowtide.cli import main
from lowtide.emit.tflite import TfliteExport, export_tflite
from lowtide.emit.tflite_builder import TfliteBuilder
from lowtide.emit.tflite_check import check_tflite
from lowtide.emit.tflite_run import (
    MicroRun,
    RuntimeRefused,
    random_inputs,
    run_on_litert,
    run_on_micro,
)
from lowtide.errors import InputError
from lowtide.importers.tflite import TfliteImport, import_tflite
from lowtide.importers.tflite_arena import micro_arena
from lowtide.importers.tflite_file import parse_tflite, read_tflite, text_of
from lowtide.ir.serde import load_plan, save_plan


def two_branches() -> bytes:
    """Two stems to the same size by way of a large tensor each; the file runs both large parts before both small ones.

    large_a and large_b are 16 KiB each, all others 1 KiB: in the order of the file both are alive at once.
    """
    rng = np.random.default_rng(1)
    builder = TfliteBuilder()
    x = builder.tensor("x", (1, 16, 16, 1))
    large = [builder.tensor(f"large_{name}", (1, 16, 16, 16)) for name in "ab"]
    small = [builder.tensor(f"small_{name}", (1, 16, 16, 1)) for name in "ab"]
    y = builder.tensor("y", (1, 16, 16, 1))
    for target in large:
        builder.conv(x, target, rng.standard_normal((16, 3, 3, 1)))
    for source, target in zip(large, small, strict=True):
        builder.conv(source, target, rng.standard_normal((1, 1, 1, 16)))
    builder.operator("ADD", small, [y], options="AddOptions")
    return builder.build(inputs=[x], outputs=[y], signature="serve", metadata={"note": b"kept"})


def long_skip() -> bytes:
    """A cheap large tensor that is needed again at the end, past another large one: recomputation helps, order not."""
    rng = np.random.default_rng(2)
    builder = TfliteBuilder()
    x = builder.tensor("x", (1, 16, 16, 1))
    skipped = builder.tensor("skipped", (1, 16, 16, 8))
    narrow = builder.tensor("narrow", (1, 16, 16, 1))
    wide = builder.tensor("wide", (1, 16, 16, 12))
    narrow_again = builder.tensor("narrow_again", (1, 16, 16, 1))
    last = builder.tensor("last", (1, 16, 16, 1))
    builder.conv(x, skipped, rng.standard_normal((8, 1, 1, 1)))
    builder.conv(skipped, narrow, rng.standard_normal((1, 3, 3, 8)))
    builder.conv(narrow, wide, rng.standard_normal((12, 3, 3, 1)))
    builder.conv(wide, narrow_again, rng.standard_normal((1, 3, 3, 12)))
    mixed = builder.tensor("mixed", (1, 16, 16, 8))
    builder.operator("MUL", [skipped, narrow_again], [mixed], options="MulOptions")
    builder.conv(mixed, last, rng.standard_normal((1, 1, 1, 8)))
    return builder.build(inputs=[x], outputs=[last])


def views() -> bytes:
    """RESHAPE, SQUEEZE and EXPAND_DIMS of a large tensor, whose bytes they may share."""
    builder = TfliteBuilder()
    x = builder.tensor("x", (1, 16, 16, 4))
    y = builder.tensor("y", (1, 16, 16, 4))
    shape = builder.tensor("shape", (2,), dtype="INT32", data=np.array([1, 1024], np.int32))
    flat = builder.tensor("flat", (1, 1024))
    squeezed = builder.tensor("squeezed", (1024,))
    axis = builder.tensor("axis", (1,), dtype="INT32", data=np.array([0], np.int32))
    expanded = builder.tensor("expanded", (1, 1024))
    z = builder.tensor("z", (1, 1024))
    builder.operator("RELU", [x], [y])
    builder.operator("RESHAPE", [y, shape], [flat], options="ReshapeOptions", newShape=[1, 1024])
    builder.operator("SQUEEZE", [flat], [squeezed], options="SqueezeOptions", squeezeDims=[0])
    builder.operator("EXPAND_DIMS", [squeezed, axis], [expanded], options="ExpandDimsOptions")
    builder.operator("ABS", [expanded], [z])
    return builder.build(inputs=[x], outputs=[z])


def int8_with_scratch() -> bytes:
    """int8 operators whose reference kernels request scratch: TRANSPOSE_CONV and MEAN."""
    rng = np.random.default_rng(3)
    builder = TfliteBuilder()

    def int8(name: str, shape: tuple[int, ...], **extra: Any) -> int:
        return builder.tensor(name, shape, dtype="INT8", scale=0.05, **extra)

    x, y, z = int8("x", (1, 4, 4, 2)), int8("y", (1, 8, 8, 3)), int8("z", (1, 3))
    shape = builder.tensor("shape", (4,), dtype="INT32", data=np.array([1, 8, 8, 3], np.int32))
    weights = builder.tensor(
        "weights", (3, 3, 3, 2), dtype="INT8", data=rng.integers(-99, 99, (3, 3, 3, 2), np.int8), scale=[0.01] * 3
    )
    bias = builder.tensor("bias", (3,), dtype="INT32", data=np.zeros(3, np.int32), scale=[0.0005] * 3)
    axes = builder.tensor("axes", (2,), dtype="INT32", data=np.array([1, 2], np.int32))
    builder.operator(
        "TRANSPOSE_CONV", [shape, weights, x, bias], [y], version=3,
        options="TransposeConvOptions", padding=0, strideW=2, strideH=2,
    )  # fmt: skip
    builder.operator("MEAN", [y, axes], [z], options="ReducerOptions", version=2)
    return builder.build(inputs=[x], outputs=[z])


def leftovers() -> bytes:
    """An input that nobody reads, a result that nobody reads, a tensor that nothing touches, an input handed on."""
    builder = TfliteBuilder()
    x, unread, dead, y, z = (builder.tensor(name, (1, 64)) for name in ("x", "unread", "dead", "y", "z"))
    builder.tensor("untouched", (1, 1000))
    builder.operator("RELU", [x], [dead])
    builder.operator("ABS", [x], [y])
    builder.operator("LOGISTIC", [y], [z])
    return builder.build(inputs=[x, unread], outputs=[z, x])


def random_net(seed: int) -> bytes:
    """Convolutions, sums, activations and views over a random DAG."""
    rng = np.random.default_rng(seed)
    builder = TfliteBuilder()
    made = [(builder.tensor("x", (1, 8, 8, 2)), 2)]
    for number in range(int(rng.integers(8, 20))):
        source, depth = made[int(rng.integers(max(0, len(made) - 4), len(made)))]
        kind = int(rng.integers(0, 4))
        peers = [other for other, other_depth in made if other_depth == depth and other != source]
        target_depth = int(rng.choice([1, 2, 3, 5, 8])) if kind == 0 else depth
        target = builder.tensor(f"t{number}", (1, 8, 8, target_depth))
        if kind == 0:
            builder.conv(source, target, rng.standard_normal((target_depth, 3, 3, depth)))
        elif kind == 1 and peers:
            builder.operator("ADD", [source, peers[int(rng.integers(len(peers)))]], [target], options="AddOptions")
        elif kind == 2:
            shape = np.array([1, 8, 8, depth], np.int32)
            named = builder.tensor(f"shape{number}", (4,), dtype="INT32", data=shape)
            builder.operator("RESHAPE", [source, named], [target], options="ReshapeOptions", newShape=list(shape))
        else:
            builder.operator("LOGISTIC", [source], [target])
        made.append((target, target_depth))
    outputs = [made[-1][0], made[int(rng.integers(1, len(made) - 1))][0]]
    return builder.build(inputs=[made[0][0]], outputs=outputs)


def imported(data: bytes) -> TfliteImport:
    return import_tflite(parse_tflite(data, "small.tflite"))


def exported(data: bytes, **options: Any) -> TfliteExport:
    """The file for the smallest budget."""
    source = imported(data)
    options = {"budget": "min", "bound": False, "threads": 1, "time_limit_seconds": 10.0, **options}
    result = api.plan(source.graph, **options)
    return export_tflite(source, api.require_plan(result, source.graph))


def measured_head_bytes(data: bytes) -> int:
    return run_on_micro(data, random_inputs(parse_tflite(data, "m")), repeats=0).head_bytes


MODELS = {
    "two_branches": two_branches(),
    "long_skip": long_skip(),
    "views": views(),
    "int8_with_scratch": int8_with_scratch(),
    "leftovers": leftovers(),
    **{f"random_{seed}": random_net(seed) for seed in range(4)},
}


@pytest.mark.parametrize("name", MODELS)
def test_the_arena_is_modelled_to_the_byte(name: str) -> None:
    assert micro_arena(parse_tflite(MODELS[name], name)).head_bytes == measured_head_bytes(MODELS[name])


@pytest.mark.parametrize("name", MODELS)
def test_exported_models_give_the_same_bits_in_the_planned_arena(name: str) -> None:
    export = exported(MODELS[name])
    checked = check_tflite(MODELS[name], export.data, repeats=0)
    assert checked.is_passed
    assert checked.micro.refusal is None
    assert checked.litert.refusal is None
    after = checked.micro.after
    assert isinstance(after, MicroRun)
    assert after.head_bytes == export.after.head_bytes
    assert after.head_bytes <= export.before.head_bytes


@pytest.mark.parametrize("name", MODELS)
def test_elementwise_operators_in_place_give_the_same_bits(name: str) -> None:
    source = import_tflite(parse_tflite(MODELS[name], name), in_place=True)
    result = api.plan(source.graph, budget="min", bound=False, threads=1, time_limit_seconds=10.0)
    export = export_tflite(source, api.require_plan(result, source.graph))
    checked = check_tflite(MODELS[name], export.data, repeats=0)
    assert checked.is_passed
    after = checked.micro.after
    assert isinstance(after, MicroRun)
    assert after.head_bytes == export.after.head_bytes


def test_an_input_that_nobody_reads_is_in_the_footprint() -> None:
    builder = TfliteBuilder()
    x, unread, y, z = (builder.tensor(name, (1, width)) for name, width in zip("xuyz", (64, 640, 64, 64), strict=True))
    builder.operator("ABS", [x], [y])
    builder.operator("LOGISTIC", [y], [z])
    data = builder.build(inputs=[x, unread], outputs=[z])
    source = imported(data)
    verified = api.require_plan(api.plan(source.graph, budget="min", bound=False, threads=1), source.graph)
    export = export_tflite(source, verified)
    assert verified.plan.footprint_bytes == 4 * (64 + 640) == export.after.head_bytes
    assert measured_head_bytes(export.data) == 4 * (64 + 640)


def test_order_alone_saves_a_branch() -> None:
    export = exported(MODELS["two_branches"], max_copies=1)
    assert export.before.head_bytes == 2 * 16384 + 1024
    assert export.after.head_bytes == 16384 + 2 * 1024  # one branch, its input and what the other has left
    assert export.num_recomputes == 0
    assert measured_head_bytes(export.data) == export.after.head_bytes


def test_recomputation_saves_what_order_cannot() -> None:
    by_order = exported(MODELS["long_skip"], max_copies=1)
    export = exported(MODELS["long_skip"])
    assert export.num_recomputes == 1
    assert export.after.head_bytes < by_order.after.head_bytes
    assert measured_head_bytes(export.data) == export.after.head_bytes
    assert check_tflite(MODELS["long_skip"], export.data, repeats=0).is_passed


def test_a_recomputed_operator_shares_its_weights() -> None:
    export = exported(MODELS["long_skip"])
    file = parse_tflite(export.data, "m")
    kernels = [int(operator.inputs[1]) for operator in file.subgraph.operators if len(operator.inputs) == 3]
    assert len(kernels) == len(set(kernels)) + 1
    weights = sum(len(buffer.data) for buffer in file.model.buffers if buffer.data is not None)
    before = sum(
        len(buffer.data) for buffer in parse_tflite(MODELS["long_skip"], "m").model.buffers if buffer.data is not None
    )
    assert weights - before == 4 * (3 + len(file.subgraph.tensors))  # the prescribed offsets, no weight


def test_views_share_one_address() -> None:
    export = exported(MODELS["views"])
    source = imported(MODELS["views"])
    tensors = source.tensor_by_value
    addresses = {export.after.offsets[tensors[name]] for name in ("y", "flat", "squeezed", "expanded")}
    assert len(addresses) == 1
    assert check_tflite(MODELS["views"], export.data, repeats=0).is_passed


def test_addresses_above_two_gigabytes_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A .tflite file has 32 bits for each."""
    monkeypatch.chdir(tmp_path)
    builder = TfliteBuilder()
    x, y, z, last = (builder.tensor(name, (1, 16384, 16384, 3)) for name in "xyzl")
    builder.operator("RELU", [x], [y])
    builder.operator("ABS", [x], [z])
    builder.operator("ADD", [y, z], [last], options="AddOptions")
    Path("big.tflite").write_bytes(builder.build(inputs=[x], outputs=[last]))
    assert main(["plan", "big.tflite", "--budget", "min", "--time-limit", "1", "-o", "plan.json"]) == 0
    capsys.readouterr()
    for arguments in (["plan.json"], ["--bands", "4"]):
        assert main(["export", "big.tflite", *arguments, "-o", "out.tflite"]) == 2
        assert (
            "a .tflite file prescribes addresses below 2 GiB only: plan with --layout none" in capsys.readouterr().err
        )
    arguments = ["--budget", "min", "--layout", "none", "--time-limit", "1", "-o", "plan.json"]
    assert main(["plan", "big.tflite", *arguments]) == 0
    assert main(["export", "big.tflite", "plan.json", "-o", "out.tflite", "--force"]) == 0


def test_without_a_layout_the_runtime_packs() -> None:
    export = exported(MODELS["two_branches"], layout=None)
    assert not export.after.is_prescribed
    assert measured_head_bytes(export.data) == export.after.head_bytes < export.before.head_bytes


def test_what_is_not_planned_stays_as_it_was() -> None:
    target = io.BytesIO(MODELS["two_branches"])
    target.seek(0, io.SEEK_END)
    with zipfile.ZipFile(target, "a") as archive:
        archive.writestr("labels.txt", "cat\ndog\n")
        archive.comment = b"of the model"
    export = exported(target.getvalue())
    file = parse_tflite(export.data, "m")
    with zipfile.ZipFile(io.BytesIO(export.data)) as archive:
        assert archive.read("labels.txt") == b"cat\ndog\n"
        assert archive.comment == b"of the model"
    names = [text_of(file.subgraph.tensors[index].name) for index in (*file.subgraph.inputs, *file.subgraph.outputs)]
    assert names == ["x", "y"]
    assert [text_of(signature.signatureKey) for signature in file.model.signatureDefs] == ["serve"]
    contents = {text_of(entry.name): bytes(file.model.buffers[entry.buffer].data) for entry in file.model.metadata}
    assert contents["note"] == b"kept"
    assert set(contents) == {"note", "OfflineMemoryAllocation"}
    assert text_of(file.model.description) == "lowtide"


def test_an_exported_file_can_be_planned_and_exported_again() -> None:
    once = exported(MODELS["two_branches"])
    twice = exported(once.data)
    assert twice.before.head_bytes == once.after.head_bytes == twice.after.head_bytes
    assert not twice.helps
    names = [text_of(entry.name) for entry in parse_tflite(twice.data, "m").model.metadata]
    assert names.count("OfflineMemoryAllocation") == 1
    assert check_tflite(MODELS["two_branches"], twice.data, repeats=0).is_passed


def test_the_smallest_arena_is_the_smallest() -> None:
    export = exported(MODELS["two_branches"])
    inputs = random_inputs(parse_tflite(export.data, "m"))
    smallest = run_on_micro(export.data, inputs, repeats=0, find_smallest=True).smallest_bytes
    assert smallest is not None
    run_on_micro(export.data, inputs, repeats=0, arena_bytes=smallest)
    with pytest.raises(RuntimeRefused, match="refuses the model"):
        run_on_micro(export.data, inputs, repeats=0, arena_bytes=smallest - 16)


def test_a_model_that_the_runtime_does_not_take() -> None:
    builder = TfliteBuilder()
    x, y = builder.tensor("x", (4,)), builder.tensor("y", (4,))
    builder.operator("CUSTOM:Unheard", [x], [y])
    data = builder.build(inputs=[x], outputs=[y])
    inputs = random_inputs(parse_tflite(data, "m"))
    with pytest.raises(RuntimeRefused, match="TensorFlow Lite Micro refuses the model"):
        run_on_micro(data, inputs)
    with pytest.raises(RuntimeRefused, match=r"LiteRT refuses the model.*Unheard"):
        run_on_litert(data, inputs)
    checked = check_tflite(data, data)
    assert not checked.is_passed
    assert checked.micro.refusal is not None


def test_xnnpack_runs_what_was_exported() -> None:
    export = exported(MODELS["two_branches"])
    inputs = random_inputs(parse_tflite(export.data, "m"))
    plain = run_on_litert(export.data, inputs, repeats=0)
    delegated = run_on_litert(export.data, inputs, delegate=True, repeats=0)
    assert plain.outputs.keys() == delegated.outputs.keys()
    for name, output in plain.outputs.items():
        np.testing.assert_allclose(output, delegated.outputs[name], rtol=1e-4, atol=1e-4)


def test_a_wrong_model_does_not_pass() -> None:
    """The check can fail: offsets that overlap, and an operator that reads another tensor."""
    export = exported(MODELS["two_branches"])
    broken = parse_tflite(export.data, "m")
    entry = next(entry for entry in broken.model.metadata if text_of(entry.name) == "OfflineMemoryAllocation")
    words = np.frombuffer(bytes(broken.model.buffers[entry.buffer].data), "<i4").copy()
    words[3:] = np.where(words[3:] >= 0, 0, words[3:])  # everything at address 0
    data = export.data.replace(bytes(broken.model.buffers[entry.buffer].data), words.tobytes())
    checked = check_tflite(MODELS["two_branches"], data, repeats=0)
    assert checked.micro.num_different
    assert not checked.is_passed


# ------------------------------------------------------------------ commands


@pytest.fixture
def model(tmp_path: Path) -> Path:
    path = tmp_path / "model.tflite"
    path.write_bytes(MODELS["two_branches"])
    return path


def planned(model: Path, budget: str = "min") -> Path:
    path = model.with_suffix(".json")
    assert main(["plan", str(model), "--budget", budget, "-o", str(path), "--threads", "1", "--time-limit", "10"]) == 0
    return path


def test_plan_without_a_budget_says_what_the_arena_needs(model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", str(model), "--json", "--threads", "1"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["arena_bytes"] == 2 * 16384 + 1024
    assert said["largest_working_set_bytes"] == 16384 + 1024
    assert said["bottleneck_op"] == "CONV_2D"
    assert said["by_offsets_bytes"] == 2 * 16384 + 1024
    assert said["by_order_bytes"] == 16384 + 2 * 1024
    assert said["is_op_bound"] is False
    assert main(["plan", str(model), "--threads", "1"]) == 0
    assert "lowtide export" in capsys.readouterr().out.replace("\n", " ")


def test_plan_says_that_a_model_is_op_bound(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "chain.tflite"
    builder = TfliteBuilder()
    tensors = [builder.tensor(name, (1, 8, 8, 4)) for name in "abc"]
    builder.operator("RELU", [tensors[0]], [tensors[1]])
    builder.operator("LOGISTIC", [tensors[1]], [tensors[2]])
    path.write_bytes(builder.build(inputs=tensors[:1], outputs=tensors[2:]))
    assert main(["plan", str(path), "--threads", "1"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "Op-bound: b alone needs what lives at the peak, so no order or recomputation can help." in out
    assert f"Row bands may help: lowtide export {path} -o smaller.tflite --bands auto --check" in out
    assert main(["plan", str(path), "--budget", "min", "--threads", "1"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert f"Row bands may help: add --bands auto. In place may, too: plan in-place:{path}" in out
    assert main(["plan", f"in-place:{path}", "--budget", "20%", "--threads", "1", "--time-limit", "1"]) == 3
    err = capsys.readouterr().err
    assert "Row bands may help: add --bands auto\n" in err
    assert "In place" not in err


def test_a_model_without_operators_needs_its_inputs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "nothing.tflite"
    builder = TfliteBuilder()
    x = builder.tensor("x", (1, 256))
    path.write_bytes(builder.build(inputs=[x], outputs=[x]))
    assert main(["plan", str(path), "--budget", "80%", "--time-limit", "1"]) == 3
    said = " ".join("".join(capsys.readouterr()).split())
    assert "plain peak 1.00 KiB" in said
    assert "budget 819 B is below the smallest possible peak 1.00 KiB" in said
    assert main(["plan", str(path), "--time-limit", "1"]) == 0
    said += " ".join(capsys.readouterr().out.split())
    assert "Input-bound: the inputs alone need what lives at the peak" in said
    assert "Row bands" not in said


def test_export_and_check(model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = planned(model)
    assert main(["verify", str(model), str(plan)]) == 0
    smaller = tmp_path / "smaller.tflite"
    capsys.readouterr()
    assert main(["export", str(model), str(plan), "-o", str(smaller), "--check"]) == 0
    out = capsys.readouterr().out
    assert "TensorFlow Lite Micro: outputs identical to the bit" in out
    assert "LiteRT: outputs identical to the bit" in out
    measured = run_on_micro(smaller.read_bytes(), random_inputs(read_tflite(smaller)), repeats=0, find_smallest=True)
    assert f"kTensorArenaSize = {measured.smallest_bytes};" in out
    assert measured.head_bytes == 16384 + 2 * 1024
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_export_writes_nothing_that_does_not_help(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan, target = planned(model, "100%"), tmp_path / "same.tflite"
    assert main(["export", str(model), str(plan), "-o", str(target)]) == 1
    assert "would need no less memory than the original" in capsys.readouterr().err
    assert not target.exists()
    assert main(["export", str(model), str(plan), "-o", str(target), "--check"]) == 1
    assert not target.exists()
    assert main(["export", str(model), str(plan), "-o", str(target), "--force"]) == 0
    assert target.exists()


def test_in_place_is_another_source(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path, plan, target = (tmp_path / name for name in ("chain.tflite", "plan.json", "out.tflite"))
    builder = TfliteBuilder()
    tensors = [builder.tensor(name, (1, 8, 8, 4)) for name in "abc"]
    builder.operator("RELU", [tensors[0]], [tensors[1]])
    builder.operator("LOGISTIC", [tensors[1]], [tensors[2]])
    path.write_bytes(builder.build(inputs=tensors[:1], outputs=tensors[2:]))
    source = f"in-place:{path}"
    assert main(["plan", source, "--budget", "min", "-o", str(plan), "--threads", "1"]) == 0
    assert main(["verify", source, str(plan)]) == 0
    assert main(["export", source, str(plan), "-o", str(target), "--check"]) == 0
    assert measured_head_bytes(target.read_bytes()) == 1024  # one tensor, three names
    capsys.readouterr()
    assert main(["plan", str(path), "--json", "--threads", "1"]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["arena_bytes"], said["best_bytes"], said["in_place_bytes"]) == (2048, 2048, 1024)


def test_export_refuses_a_plan_for_another_model(model: Path, tmp_path: Path) -> None:
    plan = planned(model)
    other = tmp_path / "other.tflite"
    other.write_bytes(MODELS["views"])
    assert main(["export", str(other), str(plan), "-o", str(tmp_path / "out.tflite")]) == 1
    assert not (tmp_path / "out.tflite").exists()


def test_export_refuses_names_that_make_no_sense(
    model: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plan = planned(model)
    capsys.readouterr()
    before = model.read_bytes()
    for arguments, said in (
        ([str(model), str(plan), "-o", str(model)], "is the model itself"),
        ([str(plan), str(plan), "-o", str(tmp_path / "o.tflite")], "is no .tflite or .onnx file"),
        ([str(model), str(plan), "-o", str(tmp_path / "o.bin")], "name a .tflite file"),
        ([str(model), str(plan), "-o", str(tmp_path / "none" / "o.tflite")], "there is no folder"),
        ([str(tmp_path / "none.tflite"), str(plan), "-o", str(tmp_path / "o.tflite")], "cannot be read"),
    ):
        assert main(["export", *arguments]) == 2
        err = capsys.readouterr().err
        assert said in err
        assert err.count("\n") == 1
    assert model.read_bytes() == before


def test_a_broken_file_is_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "broken.tflite"
    path.write_bytes(MODELS["two_branches"][:300])
    for arguments in (["plan", str(path)], ["plan", str(path), "--budget", "min"]):
        assert main(arguments) == 2
        captured = capsys.readouterr()
        assert captured.out == ""
        assert captured.err.count("\n") == 1
        assert "truncated or broken" in captured.err


def test_a_corrupted_plan_is_refused(model: Path) -> None:
    path = planned(model)
    document = json.loads(path.read_text(encoding="utf-8"))
    placements = document["layout"]["placements"]
    for placement in placements:
        placement["offset"] = 0
    path.write_text(json.dumps(document), encoding="utf-8")
    assert main(["export", str(model), str(path), "-o", str(model.with_name("out.tflite"))]) == 1


def test_plans_go_through_files(model: Path, tmp_path: Path) -> None:
    plan = load_plan(planned(model))
    save_plan(plan, tmp_path / "again.json")
    source = import_tflite(read_tflite(model))
    with pytest.raises(InputError):
        api.verify(source.graph, None)  # type: ignore[arg-type]
    export = export_tflite(source, api.verify(source.graph, load_plan(tmp_path / "again.json")))
    assert export.after.head_bytes == plan.footprint_bytes


# ------------------------------------------------------------------ benchmark


def run_in_repository(*arguments: str) -> None:
    """Run Python where the folder ``benchmarks`` can be imported."""
    root = Path(__file__).parents[2]
    done = subprocess.run(
        [sys.executable, *arguments], cwd=root, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stderr


def test_the_benchmark_measures_built_nets(tmp_path: Path) -> None:
    output = tmp_path / "results.jsonl"
    only = ("--offline", "--only", "four_branches_int8", "--seconds", "4", "--repeats", "1")
    run_in_repository("-m", "benchmarks.edge", *only, "-o", str(output))
    run, row = [json.loads(line) for line in output.read_text(encoding="utf-8").splitlines()]
    assert run["record"] == "run"
    assert (row["model"], row["is_exported"]) == ("four_branches_int8", True)
    # breadth first: 4 wide ones of 72 KiB and the input of 18; depth first: one wide one, what is narrow, the input
    assert row["micro"]["before"]["head_bytes"] == (4 * 32 + 8) * 48 * 48
    assert row["micro"]["after"]["head_bytes"] == row["planned_bytes"] < (32 + 4 * 8 + 8) * 48 * 48
    assert row["micro"]["num_different_outputs"] == row["litert"]["num_different_outputs"] == 0


def test_the_benchmark_unpacks_weights_for_micro(tmp_path: Path) -> None:
    builder = TfliteBuilder()
    x, y = builder.tensor("x", (1, 2)), builder.tensor("y", (1, 2))
    half = builder.tensor("half", (2, 2), dtype="FLOAT16", data=np.array([[1, 2], [3, 0.1]], np.float16))
    weights = builder.tensor("weights", (2, 2))
    builder.operator("DEQUANTIZE", [half], [weights], version=3)
    builder.operator("FULLY_CONNECTED", [x, weights, -1], [y], options="FullyConnectedOptions")
    packed, unpacked = tmp_path / "packed.tflite", tmp_path / "unpacked.tflite"
    packed.write_bytes(builder.build(inputs=[x], outputs=[y]))
    code = (
        "import sys; from pathlib import Path; from benchmarks.edge.models import model_of; "
        "Path(sys.argv[2]).write_bytes(model_of('m', Path(sys.argv[1]).read_bytes()).for_micro)"
    )
    run_in_repository("-c", code, str(packed), str(unpacked))
    inputs = random_inputs(read_tflite(packed))
    with pytest.raises(RuntimeRefused, match="DEQUANTIZE"):
        run_on_micro(packed.read_bytes(), inputs)
    expected = run_on_litert(packed.read_bytes(), inputs).outputs
    for name, output in run_on_micro(unpacked.read_bytes(), inputs).outputs.items():
        np.testing.assert_allclose(output, expected[name], rtol=1e-6)
