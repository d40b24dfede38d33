"""``lowtide run``: the script runs as it would without, and its trace is written."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="scripts that are recorded use torch")

from lowtide.cli import main
from lowtide.ir import Call
from lowtide.ir.serde import load_trace
from lowtide.referee import check_trace

SCRIPT = """
import sys
import helper_of_script
import torch

print(sys.argv[1:], __name__, helper_of_script.NAME)
layer = torch.nn.Linear(8, 8)
layer(torch.ones(4, 8)).sum().backward()
if "--fail" in sys.argv:
    raise ValueError("the script's own")
if "--interrupt" in sys.argv:
    raise KeyboardInterrupt
if "--exit" in sys.argv:
    sys.exit(7)
if "--say" in sys.argv:
    sys.exit("that is all")
"""


@pytest.fixture
def script(tmp_path: Path) -> Path:
    folder = tmp_path / "scripts"
    folder.mkdir()
    (folder / "helper_of_script.py").write_text("NAME = 'helper'\n")
    path = folder / "train.py"
    path.write_text(SCRIPT)
    return path


def recorded_ops(path: Path) -> list[str]:
    trace = load_trace(path)
    check_trace(trace)
    return [event.op for event in trace.events if isinstance(event, Call)]


def test_a_script_is_run_as_main_with_its_arguments(
    script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    argv, path = list(sys.argv), list(sys.path)
    record = tmp_path / "trace.jsonl"
    assert main(["run", "--record", str(record), str(script), "--help", "3"]) == 0
    out, err = capsys.readouterr()
    assert out == "['--help', '3'] __main__ helper\n"
    assert err.startswith("recorded ")
    assert err.endswith(f"written to {record}\n")
    assert "aten.addmm" in recorded_ops(record)
    assert (sys.argv, sys.path) == (argv, path)


@pytest.mark.parametrize(
    ("argument", "code", "told"),
    [
        ("--fail", 1, "ValueError: the script's own"),
        ("--exit", 7, "recorded "),
        ("--say", 1, "that is all"),
        ("--interrupt", 130, "lowtide: interrupted"),
    ],
)
def test_what_a_script_ends_with_is_kept_and_so_is_the_trace(
    script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], argument: str, code: int, told: str
) -> None:
    record = tmp_path / "trace.jsonl"
    assert main(["run", "--record", str(record), str(script), argument]) == code
    err = capsys.readouterr().err
    assert told in err
    assert "runpy" not in err
    assert "lowtide/cli" not in err
    assert "aten.addmm" in recorded_ops(record)


def test_a_script_without_torch_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    script, record = tmp_path / "plain.py", tmp_path / "trace.jsonl"
    script.write_text("x = 1\n")
    assert main(["run", "--record", str(record), str(script)]) == 0
    told = f"lowtide: the script ran no op of torch in its main thread: {record} holds no call\n"
    assert capsys.readouterr().err == told
    assert recorded_ops(record) == []


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["{script}"], "there is nothing to do beside running the script: give --budget BYTES or --record FILE"),
        (
            ["--record", "{folder}/t.jsonl", "--decompose-rnn", "{script}"],
            "--decompose-rnn is for runs within a budget: give --budget BYTES, too",
        ),
        (["--record", "{folder}/t.jsonl", "{folder}/none.py"], "SCRIPT '{folder}/none.py' is no file"),
        (["--record", "{folder}/none/t.jsonl", "{script}"], "there is no folder '{folder}/none': create it first"),
    ],
)
def test_bad_input_is_told_before_the_script_runs(
    script: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], told: str
) -> None:
    names = {"script": str(script), "folder": str(tmp_path)}
    assert main(["run", *(argument.format(**names) for argument in arguments)]) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert told.format(**names) in err
