"""lowtide simulate and sweep: JSON keys, exit codes, sources, and what people see."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lowtide.cli import main
from lowtide.cli.progress import Interruption
from lowtide.importers.trace_graph import trace_of_graph
from lowtide.ir import Graph, Input, Node, Value
from lowtide.ir.serde import load_graph, load_trace, save_graph, save_trace
from lowtide.referee import check_trace

MIB = 1 << 20
KEYS = {
    "policy",
    "budget_bytes",
    "completed",
    "overhead",
    "num_recomputes",
    "num_evictions",
    "mean_search_us",
    "fragmentation",
    "peak_bytes",
}


@pytest.fixture
def training(workplace: Path) -> Path:
    """``chain.json``: x -> a0 ... a7, then back again, 1 MiB each; peak 10 MiB."""
    nodes = [
        Node(f"f{index}", "op", 10, (f"a{index - 1}" if index else "x",), (Value(f"a{index}", MIB),))
        for index in range(8)
    ]
    gradient = "a7"
    for index in reversed(range(8)):
        inputs = (gradient, f"a{index - 1}" if index else "x")
        nodes.append(Node(f"b{index}", "op", 10, inputs, (Value(f"g{index}", MIB),)))
        gradient = f"g{index}"
    graph = Graph(
        name="chain",
        inputs=(Input("x", MIB),),
        nodes=tuple(nodes),
        outputs=(gradient,),
        order=tuple(node.name for node in nodes),
        alignment=64,
    )
    save_graph(graph, workplace / "chain.json")
    save_trace(trace_of_graph(graph), workplace / "chain.jsonl")
    return workplace


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> object:
    capsys.readouterr()
    assert main([*arguments, "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_json_is_one_object_with_exactly_the_documented_keys(
    training: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = run_json(capsys, "simulate", "chain.jsonl", "--policy", "dtr", "--budget", "60%")
    assert isinstance(document, dict)
    assert set(document) == KEYS
    assert (document["policy"], document["completed"]) == ("dtr", True)
    assert document["budget_bytes"] == load_graph("chain.json").inputs[0].size_bytes * 10 * 60 // 100
    assert document["overhead"] > 1
    assert document["peak_bytes"] <= document["budget_bytes"]


def test_a_run_that_does_not_complete_exits_0_with_nulls(training: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = run_json(capsys, "simulate", "chain.jsonl", "--budget", "2MiB")
    assert isinstance(document, dict)
    assert document["completed"] is False
    assert [key for key, value in document.items() if value is None] == sorted(
        KEYS - {"policy", "budget_bytes", "completed"}, key=list(document).index
    )


def test_a_graph_gives_what_its_trace_gives(training: Path, capsys: pytest.CaptureFixture[str]) -> None:
    figures = [run_json(capsys, "simulate", source, "--budget", "60%") for source in ("chain.json", "chain.jsonl")]
    assert all(isinstance(row, dict) and row.pop("mean_search_us") >= 0 for row in figures)
    assert figures[0] == figures[1]


def test_an_op_log_is_read(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = [
        {"INSTRUCTION": "CONSTANT", "NAME": "x"},
        {"INSTRUCTION": "MEMORY", "NAME": "x", "MEMORY": "4096"},
        {"INSTRUCTION": "CALL", "NAME": "relu", "ARGS": ["x"], "RESULT": ["y"], "TIME": "31000"},
        {"INSTRUCTION": "MEMORY", "NAME": "y", "MEMORY": "4096"},
        {"INSTRUCTION": "ALIAS", "NAME": "y", "ALIAS": "-1"},
    ]
    Path("relu.log").write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    document = run_json(capsys, "simulate", "relu.log", "--budget", "100%")
    assert isinstance(document, dict)
    assert (document["completed"], document["peak_bytes"]) == (True, 8192)


def test_what_happened_is_written_as_a_trace(training: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["simulate", "chain.jsonl", "--budget", "60%", "-o", "out.jsonl"]) == 0
    out = capsys.readouterr().out
    assert "Trace written to out.jsonl" in out
    assert max(len(line) for line in out.splitlines()) <= 80
    assert check_trace(load_trace("out.jsonl")).num_recomputes > 0


def test_parts_can_be_left_out_and_addresses_ignored(training: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("simulate", "chain.jsonl", "--budget", "60%")
    shorn = run_json(capsys, *arguments, "--without", "window", "--without", "ghosts")
    ideal = run_json(capsys, *arguments, "--policy", "dtr", "--ideal-allocator")
    assert isinstance(shorn, dict)
    assert isinstance(ideal, dict)
    assert shorn["policy"] == "coop-no-window-no-ghosts"
    assert ideal["policy"] == "dtr-ideal"


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["simulate", "chain.jsonl", "--budget", "60"], "For a share of the plain peak write '60%'"),
        (["simulate", "chain.jsonl", "--budget", "60%", "--policy", "best"], "policy 'best' is not known"),
        (["simulate", "none.jsonl", "--budget", "60%"], "none.jsonl"),
        (["simulate", "chain.jsonl", "--budget", "60%", "--ideal-allocator"], "add --without window"),
        (["simulate", "chain.jsonl", "--budget", "60%", "-o", "no/out.jsonl"], "there is no folder 'no'"),
        (["sweep", "chain.jsonl", "--budgets", ","], "--budgets ',': write at least one"),
    ],
)
def test_bad_input_is_one_line_and_exit_code_2(
    training: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], text: str
) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert text in err
    assert err.count("\n") == 1


def test_a_sweep_is_a_table_or_rows(training: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = ("sweep", "chain.jsonl", "--budgets", "r=0.5,2MiB", "--policies", "coop,lru")
    rows = run_json(capsys, *arguments)
    assert isinstance(rows, list)
    assert [(row["policy"], row["completed"]) for row in rows] == [
        ("coop", True),
        ("coop", False),
        ("lru", True),
        ("lru", False),
    ]
    assert main([*arguments]) == 0
    out, err = capsys.readouterr()
    assert max(len(line) for line in out.splitlines()) <= 80
    assert out.splitlines()[0].split()[:4] == ["policy", "budget", "r", "overhead"]
    assert err.count("\n") == 4


def test_the_lowest_budgets(training: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = run_json(capsys, "sweep", "chain.jsonl", "--minimum", "--policies", "coop,dtr-ideal")
    assert isinstance(rows, list)
    assert [row["policy"] for row in rows] == ["coop", "dtr-ideal"]
    assert all(3 * MIB <= row["budget_bytes"] <= 6 * MIB for row in rows)


def test_ctrl_c_keeps_the_rows_so_far(
    training: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = iter([False] * 3)

    def should_stop(self: Interruption) -> bool:
        self.is_requested = next(asked, True)
        return self.is_requested

    monkeypatch.setattr(Interruption, "should_stop", should_stop)
    assert main(["sweep", "chain.jsonl", "--budgets", "100%", "--policies", "coop,dtr,dte,lru,size", "--json"]) == 130
    rows = json.loads(capsys.readouterr().out)
    assert 0 < len(rows) < 5
