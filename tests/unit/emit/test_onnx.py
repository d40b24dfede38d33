"""Plans written as .onnx files: order, copies, names, and all that must stay as it was."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from lowtide import api
from lowtide.emit.onnx import OnnxExport, export_onnx
from lowtide.emit.onnx_check import OnnxCheck, OnnxRun
from lowtide.importers.onnx import OnnxImport, import_onnx
from lowtide.importers.onnx_file import read_onnx, subgraphs_of
from lowtide.ir import Compute, Evict, Plan, Scope, Status, Step
from lowtide.ir.serde import graph_sha256
from lowtide.referee import check_plan, replay

sys.path.insert(0, str(Path(__file__).parents[1] / "importers"))
from onnx_models import constant, long_skip, model, node, onnx, save, two_branches, value, with_branch


def imported(made: Any, folder: Path, **options: Any) -> OnnxImport:
    return import_onnx(read_onnx(save(made, folder)), **options)


def smallest(source: OnnxImport) -> OnnxExport:
    result = api.plan(source.graph, budget="min", layout=None, bound=False, threads=1, time_limit_seconds=5)
    return export_onnx(source, api.require_plan(result, source.graph))


def with_steps(source: OnnxImport, text: str) -> OnnxExport:
    """Export the steps ``a b -c``: compute what makes a, then b, then evict c."""
    graph = source.graph
    steps: Sequence[Step] = tuple(
        Evict(word[1:]) if word.startswith("-") else Compute(f"make_{word}") for word in text.split()
    )
    found = replay(graph, steps)
    plan = Plan(
        graph_sha256=graph_sha256(graph),
        planner="hand",
        seed=0,
        threads=1,
        status=Status.FEASIBLE,
        scope=Scope(order="free", max_copies=None),
        budget_bytes=found.peak_bytes,
        peak_bytes=found.peak_bytes,
        duration=found.duration,
        baseline_duration=graph.baseline_duration,
        durations=tuple(entry.duration for entry in graph.nodes),
        steps=steps,
    )
    return export_onnx(source, check_plan(graph, plan))


def parsed(export: OnnxExport) -> Any:
    written = onnx.ModelProto()
    written.ParseFromString(export.data)
    return written


def test_nodes_are_in_the_order_of_the_plan(tmp_path: Path) -> None:
    export = smallest(imported(two_branches(), tmp_path))
    outputs = [entry.output[0] for entry in parsed(export).graph.node]
    assert sorted(outputs) == ["large_a", "large_b", "small_a", "small_b", "y"]
    assert outputs[0].startswith("large")
    assert outputs[1] == outputs[0].replace("large", "small")  # the first branch is done before the second begins
    assert export.after_bytes < export.before_bytes
    assert export.num_recomputes == 0


def test_recomputed_nodes_write_values_of_their_own_and_share_weights(tmp_path: Path) -> None:
    export = smallest(imported(long_skip(), tmp_path))
    graph = parsed(export).graph
    copies = [entry for entry in graph.node if entry.output[0].startswith("skipped")]
    assert [entry.output[0] for entry in copies] == ["skipped", "skipped/copy1"]
    assert [entry.name for entry in copies] == ["make_skipped", "make_skipped/copy1"]
    assert copies[0].input == copies[1].input
    assert copies[0].attribute == copies[1].attribute
    assert next(entry for entry in graph.node if entry.output[0] == "mixed").input[0] == "skipped/copy1"
    assert len({name for entry in graph.node for name in entry.output}) == len(graph.node)
    assert export.num_recomputes == 1


def test_fresh_names_are_taken_by_nobody_else(tmp_path: Path) -> None:
    nodes = [
        node("Sin", ["x"], ["a"]),
        node("Sin", ["a"], ["a/copy1"]),
        node("Mul", ["a", "a/copy1"], ["y"]),
    ]
    source = imported(model(nodes, [value("x")], [value("y")]), tmp_path)
    export = with_steps(source, "a a/copy1 -a a y -a -a/copy1")
    assert [entry.output[0] for entry in parsed(export).graph.node] == ["a", "a/copy1", "a/copy1_1", "y"]
    assert list(parsed(export).graph.node[3].input) == ["a/copy1_1", "a/copy1"]


def test_an_output_computed_twice_keeps_its_name_at_the_end(tmp_path: Path) -> None:
    nodes = [node("Sin", ["x"], ["a"]), node("Cos", ["a"], ["b"])]
    source = imported(model(nodes, [value("x")], [value("a"), value("b")]), tmp_path)
    export = with_steps(source, "a b -a a")
    written = parsed(export).graph
    assert [list(entry.output) for entry in written.node] == [["a/copy0"], ["b"], ["a"]]
    assert list(written.node[1].input) == ["a/copy0"]
    assert [entry.name for entry in written.output] == ["a", "b"]


def test_graphs_within_nodes_read_the_copy_that_is_there(tmp_path: Path) -> None:
    source = imported(with_branch(), tmp_path)
    export = with_steps(source, "a total is_large -total -a a b -is_large -a y -b")
    branch = next(entry for entry in parsed(export).graph.node if entry.op_type == "If")
    assert [graph.node[0].input[0] for graph in subgraphs_of(branch)] == ["a/copy1", "a/copy1"]


def test_what_shadows_nothing_is_left_alone(tmp_path: Path) -> None:
    source = imported(with_branch(), tmp_path)
    before = source.optimised.model.SerializeToString()
    with_steps(source, "a total is_large -total -a a b -is_large -a y -b")
    assert source.optimised.model.SerializeToString() == before  # shared, never changed


def test_names_metadata_and_opsets_survive(tmp_path: Path) -> None:
    made = two_branches()
    made.producer_name, made.domain, made.doc_string, made.model_version = "me", "net.example", "about", 7
    made.metadata_props.add(key="labels", value="cat")
    made.graph.metadata_props.add(key="graph", value="kept")
    made.graph.input[0].doc_string = "an image"
    annotation = made.graph.quantization_annotation.add(tensor_name="y")
    annotation.quant_parameter_tensor_names.add(key="SCALE_TENSOR", value="wide_a")
    made.graph.quantization_annotation.add(tensor_name="gone").quant_parameter_tensor_names.add(
        key="SCALE_TENSOR", value="wide_a"
    )
    written = parsed(smallest(imported(made, tmp_path)))
    assert (written.producer_name, written.domain, written.doc_string, written.model_version) == (
        "me", "net.example", "about", 7,
    )  # fmt: skip
    assert {entry.key: entry.value for entry in written.metadata_props} == {"labels": "cat"}
    assert {entry.key: entry.value for entry in written.graph.metadata_props} == {"graph": "kept"}
    assert written.graph.input[0].doc_string == "an image"
    assert [entry.tensor_name for entry in written.graph.quantization_annotation] == ["y"]
    assert {entry.domain: entry.version for entry in written.opset_import} == {"": 17, "com.microsoft": 1}
    assert {entry.name for entry in written.graph.initializer} == {entry.name for entry in made.graph.initializer}


def test_operators_that_only_onnx_runtime_has_in_that_domain_are_taken(tmp_path: Path) -> None:
    """The fusion of a layer norm before opset 17 writes LayerNormalization, which onnx has from 17 on."""
    last = constant("last", np.float32(1e-5))
    nodes = [
        node("ReduceMean", ["x"], ["mean"], axes=[-1]),
        node("Sub", ["x", "mean"], ["centred"]),
        node("Pow", ["centred", "two"], ["squared"]),
        node("ReduceMean", ["squared"], ["variance"], axes=[-1]),
        node("Add", ["variance", "last"], ["safe"]),
        node("Sqrt", ["safe"], ["root"]),
        node("Div", ["centred", "root"], ["normed"]),
        node("Mul", ["normed", "scale"], ["scaled"]),
        node("Add", ["scaled", "shift"], ["y"]),
    ]
    weights = [last, constant("two", np.float32(2)), constant("scale", np.ones(16, np.float32)),
               constant("shift", np.ones(16, np.float32))]  # fmt: skip
    made = model(nodes, [value("x")], [value("y")], weights)
    made.opset_import[0].version = 13
    written = parsed(smallest(imported(made, tmp_path)))
    assert [(entry.domain, entry.op_type) for entry in written.graph.node] == [("", "LayerNormalization")]


def test_functions_of_the_model_are_inlined(tmp_path: Path) -> None:
    made = model([node("Twice", ["x"], ["y"], domain="mine")], [value("x")], [value("y")])
    body = [node("Sin", ["a"], ["b"]), node("Cos", ["b"], ["c"])]
    made.functions.append(onnx.helper.make_function("mine", "Twice", ["a"], ["c"], body, made.opset_import[:1]))
    made.opset_import.append(onnx.helper.make_opsetid("mine", 1))
    written = parsed(smallest(imported(made, tmp_path)))
    assert [entry.op_type for entry in written.graph.node] == ["Sin", "Cos"]


@pytest.mark.parametrize("is_split", [False, True])
def test_a_file_is_compared_with_all_files_of_the_original(is_split: bool, tmp_path: Path) -> None:
    path = tmp_path / "net.onnx"
    onnx.save(two_branches(), str(path), save_as_external_data=is_split, size_threshold=0, location="weights")
    assert len(list(tmp_path.iterdir())) == 1 + is_split
    size_bytes = sum(file.stat().st_size for file in tmp_path.iterdir())
    export = smallest(import_onnx(read_onnx(path)))
    assert export.size_delta_bytes == len(export.data) - size_bytes


@pytest.mark.parametrize(
    ("default", "before", "after", "helps"), [(9, 8, 7, True), (9, 7, 7, False), (6, 8, 7, False), (7, 8, 7, False)]
)
def test_a_file_helps_if_it_beats_recipe_and_default_options(
    default: int, before: int, after: int, helps: bool
) -> None:
    runs = [OnnxRun(outputs={}, session_bytes=1, run_bytes=size, seconds=0.0) for size in (default, before, after)]
    assert (
        OnnxCheck(*runs, num_different=0, num_outputs=1, num_sets=1, difference=0.0, default_difference=0.0).helps
        is helps
    )
