"""SOURCE and TARGET: every way to get them wrong is one clear line."""

from __future__ import annotations

import importlib
import json
from pathlib import Path
from typing import Any

import pytest

from lowtide import api
from lowtide.cli import main, sources
from lowtide.cli.targets import full_name
from lowtide.errors import InputError
from lowtide.importers.trace_graph import trace_of_graph
from lowtide.ir.serde import load_graph, save_trace

TARGETS = """
import sys

def good():
    return (lambda x: x, (1,), len)

def without_loss():
    return (lambda x: x, [1])

def raises():
    raise ValueError("no\\ndata")

def exits():
    sys.exit(3)

async def awaits():
    return (lambda x: x, (1,), len)

def single():
    return len

def four():
    return 1, 2, 3, 4

def no_model():
    return 1, (2,)

def no_inputs():
    return len, 5

def no_loss():
    return len, (5,), "mse"

number = 7
"""


@pytest.fixture
def targets(workplace: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    (workplace / "cli_targets.py").write_text(TARGETS, encoding="utf-8")
    (workplace / "cli_broken_target.py").write_text("import nowhere_at_all\n", encoding="utf-8")
    return workplace


@pytest.mark.parametrize(
    ("target", "text"),
    [
        ("cli_targets:raises", "cli_targets:raises raised ValueError: no data: it must work without arguments"),
        ("cli_targets:exits", "cli_targets:exits raised SystemExit: 3: it must work without arguments"),
        ("cli_targets:missing", "cli_targets:missing: module 'cli_targets' has no 'missing'"),
        ("cli_targets:number", "cli_targets:number is of type int, not a function"),
        (
            "cli_targets:awaits",
            "cli_targets:awaits is an async function: write a plain one (def), which is called without a loop",
        ),
        ("cli_targets:single", "what it returned is of type builtin_function_or_method"),
        ("cli_targets:four", "what it returned is a tuple of 4"),
        ("cli_targets:no_model", "the model is of type int"),
        ("cli_targets:no_inputs", "the example inputs are of type int, write a tuple or a dict"),
        ("cli_targets:no_loss", "the loss function is of type str"),
        (
            "cli_broken_target:f",
            "importing 'cli_broken_target' raised ModuleNotFoundError: No module named 'nowhere_at_all'",
        ),
        (
            "not_there.at_all:f",
            "not_there.at_all:f: there is no module 'not_there' on Python's path: run from its folder, or install it",
        ),
    ],
)
@pytest.mark.parametrize("command", ["plan", "capture"])
@pytest.mark.filterwarnings("error")
def test_targets_that_do_not_work(
    targets: Path, capsys: pytest.CaptureFixture[str], command: str, target: str, text: str
) -> None:
    options = ["--budget", "60%"] if command == "plan" else ["-o", "graph.json"]
    assert main([command, target, *options]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.startswith("lowtide: ")
    assert err.endswith(f"{text}\n")
    assert err.count("\n") == 1
    assert not Path("graph.json").exists()


@pytest.mark.parametrize("source", ["nothing", "nothing/here", "a b:c", ":f", "m:"])
def test_sources_that_are_nothing(workplace: Path, source: str) -> None:
    with pytest.raises(InputError) as caught:
        sources.load_source(source)
    assert str(caught.value) == (
        f"SOURCE {source!r} is no file: give graph.json, a published instance, a trace or op log, model.tflite, "
        "model.onnx, generate:SPEC, or pkg.module:function"
    )


_RETURNS = "must return (model, example_inputs) or (model, example_inputs, loss_function)"


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ("tcn.py", "tcn:make"),
        ("tcn.py:net", "tcn:net"),
        ("nets/tcn.py", "nets.tcn:make"),
        ("/nets/tcn.py", "tcn:make from '/nets'"),
        ("../my-nets/tcn.py:", "tcn:make from '../my-nets'"),
        ("tcn.py:Net.make", "tcn:Net.make"),
        ("tcn.py:my-net", "tcn:make"),
        ("model:tcn.py", "tcn:make"),
        ("executorch:tcn.py", "executorch:tcn:make"),
        ("executorch-xnnpack:nets/tcn.py:net", "executorch-xnnpack:nets.tcn:net"),
    ],
)
def test_a_python_file_is_told_how_its_function_is_named(
    workplace: Path, capsys: pytest.CaptureFixture[str], source: str, name: str
) -> None:
    Path("tcn.py").write_text("raise RuntimeError('imported')\n", encoding="utf-8")
    told = f"lowtide: {source!r} is a Python file: write module:function, e.g. {name}; the function {_RETURNS}\n"
    commands = [["plan", source], ["simulate", source, "--budget", "50%"], ["capture", source, "-o", "graph.json"]]
    for command in commands[: 2 if source.startswith("executorch") else 3]:
        assert main(command) == 2
        assert capsys.readouterr().err == told


@pytest.mark.parametrize(
    ("source", "renamed", "name"),
    [
        ("my-tcn.py", "my_tcn.py", "my_tcn:make"),
        ("nets/tcn.v2.py:net", "tcn_v2.py", "nets.tcn_v2:net"),
        ("my-nets/2tcn.py", "_2tcn.py", "_2tcn:make from 'my-nets'"),
        ("executorch:my-tcn.py", "my_tcn.py", "executorch:my_tcn:make"),
    ],
)
def test_a_python_file_that_cannot_be_imported_is_to_be_renamed(source: str, renamed: str, name: str) -> None:
    with pytest.raises(InputError) as caught:
        sources.load_source(source)
    assert str(caught.value) == (
        f"{source!r} is a Python file: rename it to {renamed}, which can be imported, and write module:function, "
        f"e.g. {name}; the function {_RETURNS}"
    )


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("in-place:train.py", "in-place: stands before .tflite files only"),
        ("in-place:model.onnx", "in-place: stands before .tflite files only"),
        ("in-place:train:make", "in-place: stands before .tflite files only"),
        ("machine:train.py", "machine: stands before .onnx files only"),
        ("machine:model.tflite", "machine: stands before .onnx files only"),
    ],
)
def test_a_prefix_before_something_else_is_told_what_it_is_for(source: str, told: str) -> None:
    with pytest.raises(InputError) as caught:
        sources.load_source(source)
    assert str(caught.value) == f"SOURCE {source!r}: {told}"


def test_a_module_may_be_called_as_a_prefix_is(
    targets: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Path("machine.py").write_text(TARGETS, encoding="utf-8")
    importlib.invalidate_caches()
    assert main(["plan", "machine:number"]) == 2
    assert capsys.readouterr().err == "lowtide: machine:number is of type int, not a function\n"


def test_a_name_that_is_nearly_there_is_told(targets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "cli_targets:god"]) == 2
    assert capsys.readouterr().err == "lowtide: cli_targets:god: module 'cli_targets' has no 'god', but 'good'\n"


def test_model_is_one_of_lowtide_unless_there_is_a_module_of_that_name(
    targets: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(api, "capture", lambda *_, **__: load_graph("four.json"))
    assert full_name("model:unet_tiny") == "lowtide.models:unet_tiny"
    Path("model").mkdir()  # of weights: no module, though Python would import it
    importlib.invalidate_caches()
    for command in (["plan", "model:unet_tiny"], ["capture", "model:unet_tiny", "-o", "graph.json"]):
        assert main(command) == 0
    capsys.readouterr()
    assert main(["plan", "model:unet_tinny"]) == 2
    assert capsys.readouterr().err.endswith("'lowtide.models' has no 'unet_tinny', but 'unet_tiny'\n")
    Path("model.py").write_text(TARGETS, encoding="utf-8")
    importlib.invalidate_caches()
    assert full_name("model:good") == "model:good"
    assert main(["plan", "model:good"]) == 0
    capsys.readouterr()
    assert main(["plan", "model:unet_tiny"]) == 2
    assert capsys.readouterr().err == (
        "lowtide: model:unet_tiny: module 'model' has no 'unet_tiny'; lowtide's own models are in lowtide.models, e.g. "
        "lowtide.models:unet_tiny\n"
    )


@pytest.mark.parametrize("command", ["plan", "verify", "simulate", "sweep", "compare"])
def test_help_names_every_kind_of_source(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    told = capsys.readouterr().out
    kinds = ("graph.json", "(.jsonl)", "in-place:model.tflite", "machine:model.onnx", "pkg.module:function")
    for kind in (*kinds, "executorch:", "executorch-xnnpack:", "model:NAME", "generate:SPEC"):
        assert kind in told


def test_generated_and_read_sources(workplace: Path) -> None:
    assert len(sources.load_source("generate:layered?n=20&seed=1").nodes) == 20
    assert sources.load_source("four.json").name == "four"


def test_a_trace_is_a_source_of_plans(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    graph = load_graph("four.json")
    save_trace(trace_of_graph(graph), "four.jsonl")
    read = sources.load_source("four.jsonl")
    assert {node.name for node in read.nodes} == {node.name for node in graph.nodes}
    assert main(["plan", "four.jsonl", "--budget", "100%", "-o", "plan.json"]) == 0
    assert main(["verify", "four.jsonl", "plan.json"]) == 0
    capsys.readouterr()


def test_an_op_log_is_a_source_of_plans(workplace: Path) -> None:
    lines = [
        {"INSTRUCTION": "CONSTANT", "NAME": "x"},
        {"INSTRUCTION": "MEMORY", "NAME": "x", "MEMORY": "64"},
        {"INSTRUCTION": "CALL", "NAME": "relu", "ARGS": ["x"], "RESULT": ["y"], "TIME": "5"},
        {"INSTRUCTION": "MEMORY", "NAME": "y", "MEMORY": "64"},
        {"INSTRUCTION": "ALIAS", "NAME": "y", "ALIAS": "-1"},
    ]
    Path("log.txt").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    assert [node.op for node in sources.load_source("log.txt").nodes] == ["relu"]


def test_a_missing_trace_is_said_to_be_missing(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "nothing.jsonl", "--budget", "60%"]) == 2
    assert "nothing.jsonl" in capsys.readouterr().err


def test_capture_passes_on_what_the_function_returns_and_writes_the_graph(
    targets: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    calls: list[dict[str, Any]] = []

    def capture(model: Any, inputs: Any, **options: Any) -> Any:
        calls.append({"inputs": inputs, **options})
        return load_graph("four.json")

    monkeypatch.setattr(api, "capture", capture)
    assert main(["capture", "cli_targets:good", "-o", "graph.json", "--costs", "estimated"]) == 0
    assert main(["capture", "cli_targets:without_loss", "-o", "graph.json"]) == 0
    assert main(["capture", "cli_targets:good", "-o", "graph.json", "--inference"]) == 0
    assert calls == [
        {"inputs": (1,), "loss": len, "inference": False, "costs": "estimated"},
        {"inputs": (1,), "loss": None, "inference": False, "costs": "profiled"},
        {"inputs": (1,), "loss": None, "inference": True, "costs": "profiled"},
    ]
    assert load_graph("graph.json") == load_graph("four.json")
    assert "plain peak  24 B = 24 bytes" in capsys.readouterr().out


def test_capture_refuses_unknown_costs(targets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["capture", "cli_targets:good", "-o", "graph.json", "--costs", "guessed"]) == 2
    assert "'guessed' is not one of" in capsys.readouterr().err


@pytest.mark.parametrize(
    "arguments",
    [
        ["plan", "{name}"],
        ["plan", "module:{name}"],
        ["verify", "{name}", "plan.json"],
        ["compare", "{name}", "--budgets", "50%"],
        ["simulate", "{name}", "--budget", "50%"],
        ["run", "--budget", "1GiB", "{name}"],
        ["plan", "graph.json", "--budget", "min", "-o", "{name}"],
        ["plan", "graph.json", "--budget", "min", "--report", "{name}.html"],
        ["export", "model.tflite", "--bands", "{name}", "-o", "out.tflite"],
        ["export", "model.tflite", "--bands", "2", "-o", "{name}.tflite"],
    ],
)
def test_a_text_that_no_file_can_be_named_is_one_line(
    arguments: list[str], workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Also a number with more digits than Python reads."""
    assert main([word.format(name="3" * 5000) for word in arguments]) == 2
    assert len(capsys.readouterr().err.splitlines()) == 1
