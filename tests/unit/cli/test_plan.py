"""lowtide plan: JSON keys, exit codes, what it prints where, and files."""

from __future__ import annotations

import io
import json
import sys
from pathlib import Path

import pytest

from lowtide.cli import main
from lowtide.ir import Graph, Layout, Node, Placement, Value
from lowtide.ir.serde import load_graph, load_plan, save_graph
from lowtide.planning.addresses import Addresses
from lowtide.referee import Replay, check_plan

RECOMPUTING = ("--planner", "cli_fakes:Recomputing")


def test_json_is_one_object_with_exactly_the_documented_keys(
    workplace: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    assert main(["plan", "four.json", "--budget", "75%", *RECOMPUTING, "--seed", "7", "--json"]) == 0
    out, err = capfd.readouterr()
    document = json.loads(out)
    assert isinstance(document.pop("solve_seconds"), float)
    assert document == {
        "status": "optimal",
        "scope": {"order": "fixed", "max_copies": None},
        "planner": "recomputing",
        "budget_bytes": 18,
        "peak_bytes": 17,
        "footprint_bytes": 17,
        "baseline_peak_bytes": 24,
        "largest_working_set_bytes": 17,
        "bottleneck_node": "d",
        "smallest_known_peak_bytes": 17,
        "duration": 5,
        "baseline_duration": 4,
        "tdi_percent": 25.0,
        "lower_bound_tdi_percent": 25.0,
        "num_recomputes": 1,
    }
    assert "chatter of a planner" in err
    assert "chatter from below Python" in err


def test_what_holds_the_peak_is_named_with_its_module(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    document = json.loads(Path("four.json").read_text(encoding="utf-8"))
    document["nodes"][0]["meta"] = {"module": "encoder.0.linear"}
    Path("modules.json").write_text(json.dumps(document), encoding="utf-8")
    assert main(["plan", "modules.json", "--budget", "75%", *RECOMPUTING]) == 0
    assert "va (encoder.0.linear) 8 B" in " ".join(capsys.readouterr().out.split())
    assert main(["plan", "modules.json", *RECOMPUTING]) == 0
    rows = [line.split() for line in capsys.readouterr().out.splitlines()]
    assert ["held", "at", "the", "plain", "peak", "made", "by", "in", "size"] in rows
    assert ["va", "op", "encoder.0.linear", "8", "B"] in rows
    assert ["vb", "op", "8", "B"] in rows
    assert main(["plan", "modules.json", *RECOMPUTING, "--json"]) == 0
    holdings = json.loads(capsys.readouterr().out)["holdings"]
    assert [(holding["name"], holding["module"]) for holding in holdings][:2] == [
        ("va", "encoder.0.linear"),
        ("vb", ""),
    ]


def test_human_output_echoes_the_budget_and_fits_80_columns(
    workplace: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    document = json.loads(Path("four.json").read_text(encoding="utf-8"))
    long_name = "layer." * 30
    document["nodes"][0]["outputs"][0]["name"] = long_name
    document["nodes"][1]["inputs"] = [long_name]
    document["nodes"][3]["inputs"][0] = long_name
    document["name"] = "[bold]markup stays text[/bold]"
    Path("long.json").write_text(json.dumps(document), encoding="utf-8")
    assert main(["plan", "long.json", "--budget", "75%", *RECOMPUTING]) == 0
    out = capsys.readouterr().out
    assert max(len(line) for line in out.splitlines()) <= 80
    assert "[bold]markup stays text[/bold], 4 nodes" in out
    for line in (
        "status        optimal, given order, any number of copies",
        "budget        75%: 18 B = 18 bytes",
        "plain peak    24 B",
        "planned peak  17 B, 70.8 % of the plain peak",
        "TDI           25.000 %, 1 recomputation",
        "bound         25.000 %, given order, any number of copies",
        "gap           0.000 points",
    ):
        assert line in [printed.rstrip() for printed in out.splitlines()]


def test_output_file_is_a_plan_that_the_referee_accepts(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "four.json", "--budget", "20", *RECOMPUTING, "-o", "plan.json"]) == 0
    assert "Plan written to plan.json" in capsys.readouterr().out
    assert check_plan(load_graph("four.json"), load_plan("plan.json")).plan.budget_bytes == 20
    assert main(["verify", "four.json", "plan.json"]) == 0
    assert [line.rstrip() for line in capsys.readouterr().out.splitlines()] == [
        "plan  plan.json: accepted",
        "peak  17 B within the budget 20 B",
        "TDI   25.000 %, 1 recomputation",
    ]


@pytest.mark.parametrize(
    ("planner", "budget", "status", "message"),
    [
        (
            "Recomputing",
            "16",
            "infeasible",
            "budget 16 B is below the smallest possible peak 17 B: node 'd' needs that",
        ),
        ("Clueless", "20", "timeout", "no plan found within budget 20 B by planner 'clueless' in "),
    ],
)
def test_no_plan_exits_3_with_json_and_the_reason(
    workplace: Path, capsys: pytest.CaptureFixture[str], planner: str, budget: str, status: str, message: str
) -> None:
    code = main(
        ["plan", "four.json", "--budget", budget, "--planner", f"cli_fakes:{planner}", "-o", "plan.json", "--json"]
    )
    out, err = capsys.readouterr()
    assert code == 3
    document = json.loads(out)
    assert (document["status"], document["peak_bytes"], document["duration"]) == (status, None, None)
    assert f"lowtide: {message}" in err
    assert not Path("plan.json").exists()


def test_min_says_which_budget_that_is(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "four.json", "--budget", "min", *RECOMPUTING]) == 0
    assert "budget        min: 17 B = 17 bytes" in [line.rstrip() for line in capsys.readouterr().out.splitlines()]


def test_without_budget_an_analysis(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "four.json", *RECOMPUTING]) == 0
    lines = [line.rstrip() for line in capsys.readouterr().out.splitlines()]
    assert "plain peak     24 B, at node c" in lines
    assert "largest node   d: 17 B" in lines
    assert "smallest peak  17 B, what the largest node alone must have" in lines
    assert lines[-1] == "Recomputation helps: --budget 17 has a plan (17 B), none can have less."
    assert main(["plan", "four.json", *RECOMPUTING, "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert (document["baseline_peak_bytes"], document["bottleneck_node"]) == (24, "d")
    assert [point["budget_percent"] for point in document["points"]] == [90, 80, 70]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--budget", "0.6"], "budget '0.6' has no unit: give whole bytes, '1.5GiB', or '60%'"),
        (["--budget", "lots"], "'lots' is no size: write a number with KB, MB, GB (1000) or KiB, MiB, GiB (1024)"),
        (
            ["-o", "plan.json"],
            "-o plan.json: without --budget there is no plan to write: add --budget, or leave out -o",
        ),
        (
            ["--budget", "20", "-o", "nowhere/plan.json"],
            "-o nowhere/plan.json: there is no folder 'nowhere': create it first",
        ),
        (["--budget", "20", "-o", "."], "-o .: is a folder: name a file in it"),
        (["--budget", "20", "--threads", "0"], "threads 0 must be a whole number, at least 1"),
        (
            ["--budget", "20", "--planner", "cli_fakes:Broken"],
            "planner 'broken' failed with ZeroDivisionError: division by zero: choose another planner, or mend it",
        ),
        (["--budgte", "20"], "No such option: --budgte (Possible options: --budget): see lowtide --help"),
    ],
)
def test_bad_input_exits_2_with_one_line(
    workplace: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    planner = [] if "--planner" in arguments else RECOMPUTING
    assert main(["plan", "four.json", *planner, *arguments]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"lowtide: {message}\n")


@pytest.mark.parametrize("budget", ["60", "0.6"])
def test_budgets_that_lack_a_percent_sign_are_refused_on_real_models(
    workplace: Path, capsys: pytest.CaptureFixture[str], budget: str
) -> None:
    document = json.loads(Path("four.json").read_text(encoding="utf-8"))
    for value in (*document["inputs"], *(node["outputs"][0] for node in document["nodes"])):
        value["size_bytes"] *= 2**20
    Path("real.json").write_text(json.dumps({**document, "duration_unit": "ns"}), encoding="utf-8")
    assert main(["plan", "real.json", "--budget", budget, *RECOMPUTING]) == 2
    err = capsys.readouterr().err
    expected = {
        "60": "lowtide: budget 60 bytes? For a share of the plain peak write '60%'\n",
        "0.6": "lowtide: budget '0.6' has no unit: give whole bytes, '1.5GiB', or '60%'\n",
    }
    assert err == expected[budget]


def test_json_stays_silent_on_stdout_when_input_is_bad(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["plan", "missing.json", "--budget", "20", "--json"]) == 2
    out, err = capsys.readouterr()
    assert (out, err) == ("", "lowtide: missing.json: no such file\n")


def test_names_that_the_terminal_cannot_show_are_escaped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    node = Node("n", "op", 1, (), (Value("v", 64),))
    save_graph(Graph("\ud800 \u00e9", (), (node,), ("v",), ("n",), "unit"), tmp_path / "graph.json")
    written = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(written, encoding="ascii"))
    assert main(["plan", str(tmp_path / "graph.json"), "--budget", "100%"]) == 0
    sys.stdout.flush()
    assert b"\\ud800 \\xe9, 1 node" in written.getvalue()


def test_a_plan_without_addresses_within_the_budget_says_how_to_insist(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    told = "no addresses within the budget were found: --layout best_fit insists on them, more time may help"
    assert main(["plan", "four.json", "--budget", "20", *RECOMPUTING]) == 0
    assert told not in capsys.readouterr().err
    monkeypatch.setattr(Addresses, "place", _place_high)
    monkeypatch.setattr(Addresses, "place_exactly", lambda *_, **__: None)
    assert main(["plan", "four.json", "--budget", "20", *RECOMPUTING]) == 0
    out, err = capsys.readouterr()
    assert told in err
    assert "footprint none fits, the least found is 1.01 KiB: the budget holds for live bytes" in " ".join(out.split())


def _place_high(self: Addresses, replayed: Replay, **_: object) -> Layout:
    """Each lifespan beside all others, from 1000 on."""
    offset, placements = 1000, []
    for span in replayed.lifespans:
        placements.append(Placement(span.name, span.occurrence, offset, span.size_bytes, span.is_workspace))
        offset += span.size_bytes
    return Layout(tuple(placements))
