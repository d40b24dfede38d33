"""One command measures everything, goes on where it was stopped, and publishes only what ended well."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from benchmarks import __main__ as suite
from benchmarks.parts_report import render_parts
from benchmarks.suite import OUT, PAGES, PARTS, Part

ROOT = Path(__file__).parents[2]
COMMANDS = sorted(
    {command[:2] if command[0] == "-m" else command[:1] for part in PARTS for command in (*part.commands, *part.short)}
    | {page[:2] if page[0] == "-m" else page[:1] for page in PAGES}
)


def part_writing(name: str, text: str = "row", *, exit_code: int = 0, is_added_to: bool = False) -> Part:
    """Adds a line to its file."""
    program = f"import sys; print({text!r}, file=open(sys.argv[1], 'a')); sys.exit({exit_code})"
    command = ("-c", program, f"{OUT}/{name}.jsonl")
    return Part(
        name=name,
        measures="lines",
        commands=(command,),
        short=(command,),
        files=(f"{name}.jsonl",),
        page="index.md",
        is_added_to=is_added_to,
    )


def lines_of(path: Path) -> list[str]:
    return path.read_text(encoding="utf-8").splitlines()


def run(parts: list[Part], output: Path, **options: Any) -> list[str] | None:
    return suite.run_parts(parts, output, **{"is_short": False, "is_again": False, **options})


@pytest.mark.parametrize("command", COMMANDS, ids=[command[-1] for command in COMMANDS])
def test_every_command_says_how_it_is_called(command: tuple[str, ...]) -> None:
    done = subprocess.run(
        [sys.executable, *command, "--help"], cwd=ROOT, capture_output=True, text=True, check=False, timeout=280
    )
    assert done.returncode == 0, done.stderr
    assert "usage: " in done.stdout


def test_every_part_has_a_name_of_its_own_and_files_of_its_own() -> None:
    names = [part.name for part in PARTS]
    files = [file for part in PARTS for file in part.files]
    assert len(set(names)) == len(names)
    assert len(set(files)) == len(files)
    assert all(OUT in " ".join(command) for part in PARTS for command in (*part.commands, *part.short))


def test_what_is_published_is_what_parts_leave() -> None:
    published = {path.name for path in (ROOT / "benchmarks" / "results").iterdir() if path.is_file()}
    assert published - {"parts.jsonl"} == {file for part in PARTS for file in part.files}


def test_every_part_has_a_page_and_a_row_in_the_page_that_lists_them() -> None:
    for part in PARTS:
        assert (ROOT / "docs" / part.page.partition("#")[0]).is_file(), part.page
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.parts_report", "--check"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr


def test_the_page_says_how_long_a_part_took() -> None:
    ran = {"part": "one", "seconds": 90.0, "cpu_seconds": 120.0, "load_average_at_start": [0.25, 1, 2]}
    journal = [{**ran, "started": "2026-01-02T03:04:05+00:00", "commit": "abc"}]
    table = render_parts([part_writing("one"), part_writing("two")], journal)
    assert (
        "[one.jsonl](../benchmarks/results/one.jsonl) | 1.5 min, 2.0 of CPU | 2026-01-02 at abc, load 0.2 before |"
        in table
    )
    assert "[two.jsonl](../benchmarks/results/two.jsonl) |  |  |" in table
    assert table.endswith("1 of 2 parts, 2 minutes in all.\n")


def test_what_ended_well_is_not_measured_again(tmp_path: Path) -> None:
    good, bad = part_writing("good"), part_writing("bad", exit_code=3)
    assert run([bad, good], tmp_path) == ["bad"]
    assert run([bad, good], tmp_path) == ["bad"]
    assert len(lines_of(tmp_path / "good.jsonl")) == 1
    assert len(lines_of(tmp_path / "bad.jsonl")) == 2


def test_again_begins_with_nothing(tmp_path: Path) -> None:
    part = part_writing("good")
    run([part], tmp_path)
    run([part], tmp_path, is_again=True)
    assert lines_of(tmp_path / "good.jsonl") == ["row"]
    journal = [json.loads(line) for line in lines_of(tmp_path / "parts.jsonl")]
    assert [(record["part"], record["exit_code"]) for record in journal] == [("good", 0), ("good", 0)]


def test_a_look_in_short_is_no_measurement(tmp_path: Path) -> None:
    part = part_writing("good")
    run([part], tmp_path, is_short=True)
    run([part], tmp_path)
    assert len(lines_of(tmp_path / "good.jsonl")) == 2


def test_a_command_after_one_that_failed_is_not_run(tmp_path: Path) -> None:
    failing = part_writing("two", exit_code=1)
    part = Part(name="two", measures="lines", commands=failing.commands * 2, files=failing.files, page="index.md")
    assert run([part], tmp_path) == ["two"]
    assert len(lines_of(tmp_path / "two.jsonl")) == 1


def test_published_files_are_replaced_or_added_to_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results, output = tmp_path / "results", tmp_path / "output"
    results.mkdir()
    output.mkdir()
    monkeypatch.setattr(suite, "_RESULTS", results)
    monkeypatch.setattr(suite, "PAGES", (("-c", f"open({str(tmp_path / 'page')!r}, 'a').write('written ')"),))
    for name in ("replaced", "added"):
        (results / f"{name}.jsonl").write_text("before\n", encoding="utf-8")
    parts = [part_writing("replaced"), part_writing("added", is_added_to=True)]
    run(parts, output)
    for _ in range(2):
        suite.publish(parts, output)
    assert lines_of(results / "replaced.jsonl") == ["row"]
    assert lines_of(results / "added.jsonl") == ["before", "row"]
    assert [json.loads(line)["part"] for line in lines_of(results / "parts.jsonl")] == ["replaced", "added"]
    assert (tmp_path / "page").read_text(encoding="utf-8") == "written written "


def test_a_look_in_short_is_not_published() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", "--short", "--publish"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 2
    assert "nothing to publish" in done.stderr
