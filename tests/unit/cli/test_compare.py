"""lowtide compare: rows, files, exit codes, and what people see."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from lowtide.cli import main
from lowtide.cli.compare_progress import describe_seconds
from lowtide.cli.progress import Interruption

FOUR = ("compare", "four.json", "--budgets", "80%", "--policies", "dtr", "--time-limit", "5", "--threads", "1")
FAKE = (*FOUR, "--planners", "cli_fakes:Recomputing")


def run_json(capsys: pytest.CaptureFixture[str], *arguments: str) -> list[dict[str, object]]:
    capsys.readouterr()
    assert main([*arguments, "--json"]) == 0
    rows = json.loads(capsys.readouterr().out)
    assert isinstance(rows, list)
    return rows


def fails(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    capsys.readouterr()
    assert main(list(arguments)) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.count("\n") == 1
    return err


def test_json_is_a_list_of_flat_rows(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    rows = run_json(capsys, *FAKE)
    assert [row["method"] for row in rows] == ["plain", "bound, given order", "bound, any order", "recomputing", "dtr"]
    plan = rows[3]
    assert (plan["status"], plan["budget_bytes"], plan["needed_bytes"], plan["tdi_percent"]) == ("optimal", 19, 17, 25)
    assert (plan["gap_points"], plan["is_on_front"], plan["order"]) == (0, True, "fixed")
    assert not any(isinstance(value, dict | list) for row in rows for value in row.values())


def test_people_see_tables(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FAKE[:-1], "cli_fakes:Recomputing,cli_fakes:Clueless,cli_fakes:Broken"]) == 0
    out, err = capsys.readouterr()
    lines = out.splitlines()
    assert max(map(len, lines)) <= 80
    assert "four, 4 nodes" in lines[0]
    assert "within 80%, 19 B" in lines
    assert "proven: at least 25.00 % in the given order, at least 25.00 % in any order" in lines
    assert lines[lines.index("the Pareto front, on the cost model") + 3].split()[2:] == [
        "70.8",
        "%",
        "25.00",
        "%",
        "recomputing",
    ]
    (row,) = [line for line in lines if "recomputing" in line and "●" in line]
    assert row.split()[:6] == ["●", "recomputing", "optimal", "17", "B", "70.8"]
    assert "  timeout: clueless: nothing smaller than plain found" in lines
    assert any(line.startswith("  failed: broken: planner 'broken' failed with ZeroDivisionError") for line in lines)
    assert "3/6 recomputing within 80%: optimal, 17 B, +25.00 %" in err
    assert "Not measured" not in out  # a file cannot be trained


def test_who_missed_a_budget_says_by_how_much(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with Path("cli_fakes.py").open("a", encoding="utf-8") as file:
        file.write(
            "\n\nclass Near(Recomputing):\n    name = 'near'\n\n    def propose(self, request):\n"
            "        return Proposal(Status.TIMEOUT, steps_from_sequence(request.graph, ('a', 'b', 'c', 'd')))\n"
            "\n\nclass Blind(Clueless):\n    name = 'blind'\n"
        )
    assert main([*FAKE[:-1], "cli_fakes:Clueless,cli_fakes:Near,cli_fakes:Blind"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "  timeout: clueless, blind: nothing smaller than plain found" in lines
    assert "  timeout: near: 24 B found, 26.3 % over" in lines


def test_below_every_plan_is_a_row_and_no_error(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    arguments = [argument.replace("80%", "50%") for argument in FAKE]
    rows = run_json(capsys, *arguments)
    assert [row["status"] for row in rows[1:4]] == ["infeasible"] * 3
    assert main(arguments) == 0
    out = capsys.readouterr().out
    assert "proven: no plan in the given order, no plan in any order" in out
    assert "  infeasible: recomputing" in out


def test_rows_are_written_and_taken_up_again(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FAKE, "-o", "rows.jsonl"]) == 0
    out, err = capsys.readouterr()
    assert "Rows written to rows.jsonl" in out
    assert err.count("within 80%") == 4
    before = Path("rows.jsonl").read_text()
    assert main([*FAKE, "-o", "rows.jsonl"]) == 0
    assert capsys.readouterr().err == ""
    assert Path("rows.jsonl").read_text() == before


def test_a_file_of_other_options_or_damage_is_refused(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([*FAKE, "-o", "rows.jsonl"]) == 0
    assert fails(capsys, *FAKE, "-o", "rows.jsonl", "--seed", "3") == (
        "lowtide: rows.jsonl: its rows were made with seed 0, now it is 3: name another file, or use the same\n"
    )
    assert fails(capsys, *FAKE, "-o", "rows.jsonl", "--time-limit", "300") == (
        "lowtide: rows.jsonl: its rows were made with time limit 5 s, now it is 300 s: name another file, or use the "
        "same\n"
    )
    lines = Path("rows.jsonl").read_text().splitlines()
    Path("rows.jsonl").write_text("\n".join([*lines[:2], lines[2][:20], *lines[3:]]) + "\n")
    assert fails(capsys, *FAKE, "-o", "rows.jsonl").startswith("lowtide: rows.jsonl: line 3: not JSON at line 1")


@pytest.mark.parametrize(
    ("more", "message"),
    [
        (("--budgets", "lots"), "'lots' is no size: write a number with KB, MB, GB (1000) or KiB, MiB, GiB (1024)"),
        (("--budgets", "0.5"), "budget '0.5' has no unit: give whole bytes, '1.5GiB', or '60%'"),
        (("--budgets", " , "), "--budgets ' , ': write at least one, with commas between"),
        (("--planners", "magic"), "planner 'magic' is not known: choose one of"),
        (("--policies", "magic"), "policy 'magic' is not known: choose one of"),
        (("--layout", "magic"), "layout 'magic' is not known"),
        (("-o", "nowhere/rows.jsonl"), "-o nowhere/rows.jsonl: there is no folder 'nowhere': create it first"),
        (("-o", "rows.html"), "-o rows.html: rows are JSON lines; for a picture write --report rows.html"),
        (("--report", "rows.pdf"), "rows.pdf: a comparison's report ends in .html, .png or .svg"),
        (
            ("--measure",),
            "--measure: SOURCE 'four.json' is no model that can be trained: give pkg.module:function or model:NAME",
        ),
    ],
)
def test_what_cannot_be_meant_is_refused(
    workplace: Path, capsys: pytest.CaptureFixture[str], more: tuple[str, ...], message: str
) -> None:
    assert fails(capsys, *FAKE, *more).startswith(f"lowtide: {message}")


def test_bad_options_are_refused_before_the_graph_is_read(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    err = fails(capsys, "compare", "no_such_module:f", "--planners", "magic")
    assert err.startswith("lowtide: planner 'magic'")


def test_a_file_that_takes_nothing_is_named(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    err = fails(capsys, *FAKE, "-o", "/dev/full")
    assert err == "lowtide: /dev/full: cannot be written: No space left on device\n"


def test_an_interrupt_keeps_the_rows_so_far(
    workplace: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = Path("rows.jsonl")

    def should_stop(self: Interruption) -> bool:
        self.is_requested = rows.exists() and len(rows.read_text().splitlines()) >= 3
        return self.is_requested

    monkeypatch.setattr(Interruption, "should_stop", should_stop)
    assert main([*FAKE, "--json", "-o", "rows.jsonl"]) == 130
    out, err = capsys.readouterr()
    assert [row["method"] for row in json.loads(out)] == ["plain", "bound, given order", "bound, any order"]
    assert err.endswith("lowtide: interrupted\n")
    assert len(rows.read_text().splitlines()) == 3
    assert main([*FAKE, "-o", "rows.jsonl"]) == 130
    out = capsys.readouterr().out
    assert "Stopped early: the same command goes on where -o FILE has kept the rows." in out


def test_a_generated_graph_is_no_model(workplace: Path, capsys: pytest.CaptureFixture[str]) -> None:
    generated = ("compare", "generate:layered", "--budgets", "60%", "--measure")
    assert "is no model that can be trained" in fails(capsys, *generated)


@pytest.mark.parametrize(
    ("seconds", "words"), [(0.4, "0 s"), (59.4, "59 s"), (200, "3 min 20 s"), (3899, "1 h 04 min")]
)
def test_time_left_reads_as_time(seconds: float, words: str) -> None:
    assert describe_seconds(seconds) == words
