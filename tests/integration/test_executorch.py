"""Plans on the stock ExecuTorch: the planned buffer is the footprint, the outputs are the same bits."""

from __future__ import annotations

import itertools
import json
import re
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

torch = pytest.importorskip("torch", reason="captures torch models")
pytest.importorskip("executorch", reason="lowers and runs .pte files")

from lowtide import api  # noqa: E402
from lowtide.cli import main  # noqa: E402
from lowtide.emit.executorch import export_executorch  # noqa: E402
from lowtide.emit.executorch_check import check_executorch, random_inputs  # noqa: E402
from lowtide.errors import CompileError, FormatError, InputError, LayoutRejected  # noqa: E402
from lowtide.importers.executorch import ExecutorchImport, import_executorch  # noqa: E402
from lowtide.importers.executorch_lowering import export_for_executorch, planned_buffer_bytes  # noqa: E402
from lowtide.importers.executorch_runtime import open_method  # noqa: E402
from lowtide.ir import Compute, Plan, Scope, Status, Step  # noqa: E402
from lowtide.ir.serde import graph_sha256, load_plan, save_plan  # noqa: E402
from lowtide.layouts.protocol import LayoutRequest  # noqa: E402
from lowtide.layouts.table import layouter_named  # noqa: E402
from lowtide.measure.numerics import compare_tensors  # noqa: E402
from lowtide.referee import VerifiedPlan, baseline, check_plan, replay  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))
import executorch_nets as nets  # noqa: E402
from compile_cases import RandomPlans  # noqa: E402

EXAMPLES = {
    "dense": nets.dense,
    "forms": nets.forms,
    "counter": nets.counter,
    "writes": nets.writes_its_input,
    "hands_back": nets.hands_back_its_input,
    "replaces": nets.replaces_its_state,
    "unread": nets.reads_one_of_three,
    "nothing": nets.reads_nothing,
}


def imported(example: nets.Example, **options: Any) -> ExecutorchImport:
    model, inputs = example
    return import_executorch(export_for_executorch(model, inputs, **options), is_profiled=False)


@pytest.fixture(scope="module")
def sources() -> dict[str, ExecutorchImport]:
    return {name: imported(example()) for name, example in EXAMPLES.items()}


def with_steps(source: ExecutorchImport, steps: Sequence[Step]) -> VerifiedPlan:
    """A plan of these steps, placed."""
    graph = source.graph
    found = replay(graph, tuple(steps))
    layout = layouter_named("best_fit").place(LayoutRequest(found.lifespans, alignment=graph.alignment)).layout
    plan = Plan(
        graph_sha256=graph_sha256(graph),
        planner="hand",
        seed=0,
        threads=1,
        status=Status.FEASIBLE,
        scope=Scope(),
        budget_bytes=layout.footprint_bytes,
        peak_bytes=found.peak_bytes,
        footprint_bytes=layout.footprint_bytes,
        duration=found.duration,
        baseline_duration=graph.baseline_duration,
        durations=tuple(node.duration for node in graph.nodes),
        steps=tuple(steps),
        layout=layout,
    )
    return check_plan(graph, plan)


def smallest(source: ExecutorchImport) -> VerifiedPlan:
    result = api.plan(source.graph, budget="min", bound=False, threads=1, time_limit_seconds=5)
    return api.require_plan(result, source.graph)


def outputs(data: bytes, folder: Path, inputs: Sequence[Sequence[Any]]) -> dict[str, Any]:
    """What a program answers to several calls, one after the other."""
    path = folder / "model.pte"
    path.write_bytes(data)
    program, method = open_method(path)
    found = {
        f"{call}/{number}": value.clone()
        for call, given in enumerate(inputs)
        for number, value in enumerate(method(given))
    }
    del method, program
    return found


def calls_of(source: ExecutorchImport) -> list[list[Any]]:
    return [random_inputs(source.lowering.inputs, seed=seed) for seed in range(2)]


# ------------------------------------------------------------------ what ExecuTorch sees
def test_the_buffer_now_is_what_executorch_makes_without_us(sources: dict[str, ExecutorchImport]) -> None:
    from executorch.exir import to_edge

    model, inputs = nets.dense()
    with torch.no_grad():
        program = to_edge(torch.export.export(model.eval(), inputs, strict=False)).to_executorch()
    (plan,) = program.executorch_program.execution_plan
    assert sources["dense"].buffer_bytes == plan.non_const_buffer_sizes[1]
    assert sources["dense"].graph.meta["planned_buffer_bytes"] == plan.non_const_buffer_sizes[1]


def test_a_module_that_was_exported_before_is_taken(sources: dict[str, ExecutorchImport]) -> None:
    """As quantisation hands it over; such a module refuses to be put into evaluation mode."""
    model, inputs = nets.dense()
    exported = torch.export.export(model.eval(), inputs, strict=False).module()
    assert imported((exported, inputs)).buffer_bytes == sources["dense"].buffer_bytes


def test_sizes_and_aliases_of_the_graph(sources: dict[str, ExecutorchImport]) -> None:
    graph = sources["forms"].graph
    by_op = {node.op: node for node in graph.nodes}
    assert graph.alignment == 16
    assert {entry.name: entry.size_bytes for entry in graph.inputs if entry.is_counted} == {
        "x": 4 * 128, "unread": 64, "tokens": 32,
    }  # fmt: skip
    assert [value.size_bytes for value in by_op["aten.split_with_sizes_copy"].outputs] == [256, 256]
    assert [value.size_bytes for value in by_op["aten.topk"].outputs] == [16, 32]
    assert any(node.is_view and node.inputs == ("x",) for node in graph.nodes)
    assert baseline(graph).peak_bytes <= sources["forms"].buffer_bytes


def test_a_state_stays_and_what_touches_it_runs_once_in_its_turn(sources: dict[str, ExecutorchImport]) -> None:
    graph = sources["counter"].graph
    state = graph.input_by_name["b_total"]
    assert state.is_counted
    assert not state.evictable
    touching = [node for node in graph.nodes if "b_total" in node.inputs]
    assert len(touching) == 3
    assert not any(node.recomputable for node in touching)
    assert baseline(graph).peak_bytes == sources["counter"].buffer_bytes
    assert all(later.after == (earlier.name,) for earlier, later in itertools.pairwise(touching))


def test_durations_come_from_the_runtime(sources: dict[str, ExecutorchImport]) -> None:
    model, inputs = nets.dense()
    source = import_executorch(export_for_executorch(model, inputs))
    by_op: dict[str, int] = {}
    for node in source.graph.nodes:
        by_op[node.op] = by_op.get(node.op, 0) + node.duration
    assert by_op["view"] == 0
    assert all(node.duration > 0 for node in source.graph.nodes if node.op != "view")
    assert max(by_op, key=by_op.__getitem__) == "aten.convolution"
    assert graph_sha256(source.graph) == graph_sha256(sources["dense"].graph)


# ------------------------------------------------------------------ the law
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("name", EXAMPLES)
def test_every_plan_computes_the_same(
    name: str, seed: int, sources: dict[str, ExecutorchImport], tmp_path: Path
) -> None:
    source = sources[name]
    plans = RandomPlans(seed=seed, recompute_p=(0.5, 0.7, 0.9)[seed], late_p=(0.0, 0.3, 1.0)[seed])
    verified = with_steps(source, plans.steps(source.graph))
    assert verified.replay.num_recomputes > 0 or name in ("hands_back", "replaces", "nothing")
    export = export_executorch(source, verified)
    assert export.after_bytes == verified.plan.footprint_bytes
    assert export.num_recomputes == verified.replay.num_recomputes
    calls = calls_of(source)
    plain = outputs(source.data, tmp_path, calls)
    assert [str(each) for each in compare_tensors(plain, outputs(export.data, tmp_path, calls))] == []


def test_an_output_may_be_the_second_copy(sources: dict[str, ExecutorchImport], tmp_path: Path) -> None:
    """Everything twice, so that all that may be recomputed is returned as recomputed."""
    source = sources["forms"]
    graph = source.graph
    sequence = [*graph.order, *(name for name in graph.order if graph.node_by_name[name].recomputable)]
    from lowtide.ir.sequence import steps_from_sequence

    verified = with_steps(source, steps_from_sequence(graph, sequence))
    export = export_executorch(source, verified)
    calls = calls_of(source)
    assert compare_tensors(outputs(source.data, tmp_path, calls), outputs(export.data, tmp_path, calls)) == []
    assert sum(isinstance(step, Compute) for step in verified.plan.steps) == len(sequence)


# ------------------------------------------------------------------ memory
def test_the_planned_buffer_is_the_footprint(sources: dict[str, ExecutorchImport]) -> None:
    source = sources["dense"]
    verified = smallest(source)
    export = export_executorch(source, verified)
    assert verified.replay.num_recomputes > 0
    assert planned_buffer_bytes(export.data) == export.after_bytes == verified.plan.footprint_bytes
    assert export.helps
    assert export.after_bytes < 0.9 * export.before_bytes
    checked = check_executorch(source, export.data, repeats=0)
    assert checked.is_identical
    assert checked.num_outputs == 3
    assert checked.helps
    saved_bytes = export.before_bytes - export.after_bytes
    structures_bytes = 2048 * verified.replay.num_recomputes
    measured_bytes = checked.before.method_bytes - checked.after.method_bytes
    assert saved_bytes - structures_bytes <= measured_bytes <= saved_bytes


@pytest.mark.parametrize(
    ("name", "now_bytes"),
    [("hands_back", 784), ("replaces", 144), ("unread", 139264), ("nothing", 256)],
)
def test_the_peak_now_is_what_executorch_allocates(
    name: str, now_bytes: int, sources: dict[str, ExecutorchImport]
) -> None:
    assert sources[name].buffer_bytes == now_bytes
    assert baseline(sources[name].graph).peak_bytes == now_bytes


def test_inputs_that_nobody_reads_are_in_the_footprint(sources: dict[str, ExecutorchImport]) -> None:
    source = sources["unread"]
    verified = smallest(source)
    inputs_bytes = 4 * 32 * (32 + 200 + 210)
    assert verified.plan.footprint_bytes == inputs_bytes
    assert export_executorch(source, verified).after_bytes == inputs_bytes
    result = api.plan(source.graph, budget=inputs_bytes - 16, bound=False, threads=1, time_limit_seconds=1)
    assert result.status is Status.INFEASIBLE


def test_a_buffer_above_the_footprint_is_refused(
    sources: dict[str, ExecutorchImport], monkeypatch: pytest.MonkeyPatch
) -> None:
    source = sources["replaces"]
    verified = smallest(source)
    allotted = verified.plan.footprint_bytes or 0
    monkeypatch.setattr(
        "lowtide.emit.executorch_memory._end", lambda spec: spec.mem_offset + spec.allocated_memory + 16
    )
    monkeypatch.setattr("lowtide.emit.executorch_memory._check_disjoint", lambda spec, beside: None)
    with pytest.raises(LayoutRejected, match=f"buffer of {allotted + 16} bytes of it, and the plan's footprint is"):
        export_executorch(source, verified)


def test_inputs_that_nobody_reads_keep_apart_from_the_others(sources: dict[str, ExecutorchImport]) -> None:
    """The caller writes all of them before anything runs, in any order."""
    source = sources["forms"]
    export = export_executorch(source, smallest(source))
    from executorch.exir._serialize._program import deserialize_pte_binary

    plan = deserialize_pte_binary(export.data).program.execution_plan[0]
    tensors = [plan.values[index].val for index in plan.inputs]
    spans = sorted(
        (tensor.allocation_info.memory_offset_low, size) for tensor, size in zip(tensors, (512, 64, 32), strict=True)
    )
    assert all(start + size <= following for (start, size), (following, _) in itertools.pairwise(spans))


def test_nodes_that_xnnpack_takes_run_once(tmp_path: Path) -> None:
    source = imported(nets.dense(), delegate="xnnpack")
    delegates = [node for node in source.graph.nodes if node.op == "executorch_call_delegate"]
    assert delegates
    assert not any(node.recomputable for node in delegates)
    verified = with_steps(source, RandomPlans(seed=1, recompute_p=0.9).steps(source.graph))
    export = export_executorch(source, verified)
    assert source.padding_bytes == 64
    assert export.after_bytes == (verified.plan.footprint_bytes or 0) + source.padding_bytes
    calls = calls_of(source)
    assert compare_tensors(outputs(source.data, tmp_path, calls), outputs(export.data, tmp_path, calls)) == []


# ------------------------------------------------------------------ the commands
@pytest.fixture
def in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_the_commands_of_the_page(in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Those of docs/edge-executorch.md, as they stand there."""
    page = (Path(__file__).parents[2] / "docs" / "edge-executorch.md").read_text(encoding="utf-8")
    lines = re.findall(r"^    lowtide (\w+ executorch:my_model:make .*)$", page, flags=re.MULTILINE)
    commands = [line.split("#")[0] for line in lines if "plan.json" in line]
    Path("my_model.py").write_text("from executorch_nets import dense as make\n", encoding="utf-8")
    plan_command, export_command = commands
    assert main(shlex.split(plan_command)) == 0
    capsys.readouterr()
    assert main(shlex.split(export_command)) == 0
    printed = capsys.readouterr().out
    plan = load_plan("plan.json")
    assert f"-> {plan.footprint_bytes} bytes" in printed
    assert "identical to the bit, 3 sets" in " ".join(printed.split())
    assert planned_buffer_bytes(Path("smaller.pte").read_bytes()) == plan.footprint_bytes


def test_the_analysis(in_folder: Path, capsys: pytest.CaptureFixture[str], sources: Any) -> None:
    assert main(["plan", "executorch:executorch_nets:dense", "--time-limit", "6", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    source = sources["dense"]
    assert found["buffer_bytes"] == source.buffer_bytes
    assert found["live_bytes"] == baseline(source.graph).peak_bytes
    assert found["best_bytes"] == smallest(source).plan.footprint_bytes
    assert found["best_bytes"] < found["by_order_bytes"] <= found["by_offsets_bytes"] < found["buffer_bytes"]
    assert found["num_recomputes"] > 0
    assert not found["is_op_bound"]


def test_the_analysis_says_where_nothing_helps(in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "executorch:executorch_nets:wide", "--time-limit", "3"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "buffer now 32768 bytes = 32.0 KiB, as ExecuTorch plans it" in printed
    assert "Op-bound: aten_relu_default alone needs what lives at the peak" in printed
    assert "lowtide export" not in printed


def test_the_analysis_says_that_inputs_need_most(in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "executorch:executorch_nets:reads_nothing", "--time-limit", "1"]) == 0
    printed = " ".join(capsys.readouterr().out.split())
    assert "largest op 256 bytes = 256 B: the inputs" in printed
    assert "Input-bound: the inputs alone need what lives at the peak" in printed


@pytest.mark.parametrize("name", ["exported", "of_a_parameter"])
def test_what_a_function_may_return(name: str, in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A program of torch.export; a parameter as an input."""
    source = f"executorch:executorch_nets:{name}"
    assert main(["plan", source, "--budget", "100%", "--time-limit", "1", "-o", "plan.json"]) == 0
    assert main(["export", source, "plan.json", "-o", "same.pte", "--check", "--force"]) == 0
    assert "identical to the bit" in " ".join(capsys.readouterr().out.split())


def test_what_does_not_help_is_not_written(in_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = imported(nets.wide())
    save_plan(smallest(source).plan, Path("plan.json"))
    arguments = ["export", "executorch_nets:wide", "plan.json", "-o", "small.pte"]
    assert main(arguments) == 1
    assert "nothing is written: the new file would need no less memory" in " ".join(capsys.readouterr().err.split())
    assert not list(in_folder.glob("*.pte*"))
    assert main([*arguments, "--force"]) == 0
    assert planned_buffer_bytes(Path("small.pte").read_bytes()) <= source.buffer_bytes


def test_a_plan_for_another_model_is_refused(in_folder: Path, capsys: pytest.CaptureFixture[str], sources: Any) -> None:
    save_plan(smallest(sources["dense"]).plan, Path("plan.json"))
    for model in ("executorch:executorch_nets:wide", "executorch_nets:wide"):
        assert main(["export", model, "plan.json", "-o", "small.pte"]) == 1
        assert "lowtide plan executorch:executorch_nets:wide --budget min -o plan.json makes one" in " ".join(
            capsys.readouterr().err.split()
        )
    assert not list(in_folder.glob("*.pte*"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["executorch:executorch_nets:dense", "plan.json", "-o", "x.onnx"], "-o x.onnx: name a .pte file"),
        (["executorch:executorch_nets:nothing", "plan.json", "-o", "x.pte"], "has no 'nothing'"),
        (["executorch:executorch_nets:no_module", "plan.json", "-o", "x.pte"], "ExecuTorch takes a torch.nn.Module"),
        (
            ["executorch:executorch_nets:dense", "-o", "x.pte", "--bands", "2"],
            "only .tflite and .onnx files are cut into bands",
        ),
        (["executorch:executorch_nets:dense", "plan.json", "-o", "x.pte", "--dim", "x=3"], "only .onnx files leave"),
        (
            ["executorch_nets:dense", "plan.json", "-o", "x.pte", "--dim", "x=3"],
            "only .onnx files leave dimensions open",
        ),
        (
            ["executorch_nets:dense", "plan.json", "-o", "x.pte", "--no-new-ops"],
            "only bands of .tflite and .onnx files may need",
        ),
    ],
)
def test_wrong_commands(
    arguments: list[str], message: str, in_folder: Path, capsys: pytest.CaptureFixture[str], sources: Any
) -> None:
    save_plan(
        with_steps(sources["counter"], RandomPlans(seed=0).steps(sources["counter"].graph)).plan, Path("plan.json")
    )
    assert main(["export", *arguments]) == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not list(in_folder.glob("x*"))


# ------------------------------------------------------------------ what is not taken
@pytest.mark.parametrize(
    ("example", "message"),
    [
        (nets.branching, "is control flow, which is not taken"),
        (nets.sized_by_data, "depends on data"),
        (nets.scripted, "RecursiveScriptModule: torch.export takes no model that TorchScript made"),
        (nets.called_by_keyword, r"torch\.export cannot capture CalledByKeyword: missing a required argument: 'x'$"),
        (lambda: nets.returning(None), "Returning returns no tensor, only None, nothing at all or numbers"),
        (lambda: nets.returning(()), "Returning returns no tensor"),
        (lambda: nets.returning(3), "Returning returns no tensor"),
        (nets.of_complex_numbers, "ExecuTorch cannot take OfComplexNumbers: Operator torch._ops.aten.view_as_complex"),
    ],
)
def test_models_that_are_not_taken(example: Any, message: str) -> None:
    with pytest.raises(CompileError, match=message) as caught:
        imported(example())
    assert "\n" not in str(caught.value)


def test_a_plan_without_addresses_is_not_exported(sources: dict[str, ExecutorchImport]) -> None:
    source = sources["dense"]
    result = api.plan(source.graph, budget="100%", layout=None, bound=False, threads=1)
    with pytest.raises(InputError, match="the plan has no addresses"):
        export_executorch(source, api.require_plan(result, source.graph))


def test_what_is_no_program_is_refused(sources: dict[str, ExecutorchImport]) -> None:
    with pytest.raises(FormatError, match=r"small\.pte is no \.pte file of ExecuTorch"):
        planned_buffer_bytes(b"PK\3\4 something else", "small.pte")
    with pytest.raises(FormatError, match=r"small\.pte is broken"):
        planned_buffer_bytes(sources["dense"].data[:40], "small.pte")
