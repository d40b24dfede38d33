"""One command measures everything, goes on where it was stopped, and publishes only what ended well."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from benchmarks import __main__ as suite
from benchmarks import publishing
from benchmarks.journal import Journal, lock_folder
from benchmarks.parts_report import render_parts
from benchmarks.running import Stopped
from benchmarks.suite import JOURNAL, OUT, PAGES, PARTS, Part

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


def run(parts: list[Part], output: Path, **options: Any) -> list[str]:
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
    assert "[two.jsonl](../benchmarks/results/two.jsonl) | not noted | before this command was there |" in table
    assert table.endswith("1 of 2 parts, 2 minutes in all.\n")


def test_what_ended_well_is_not_measured_again(tmp_path: Path) -> None:
    good, bad = part_writing("good"), part_writing("bad", exit_code=3)
    assert run([bad, good], tmp_path) == ["bad"]
    (tmp_path / "good" / "good.jsonl").write_text("kept", encoding="utf-8")
    assert run([bad, good], tmp_path) == ["bad"]
    assert lines_of(tmp_path / "good" / "good.jsonl") == ["kept"]


def test_again_begins_with_nothing(tmp_path: Path) -> None:
    part = part_writing("good")
    run([part], tmp_path)
    (tmp_path / "good" / "else.jsonl").touch()
    run([part], tmp_path, is_again=True)
    assert lines_of(tmp_path / "good" / "good.jsonl") == ["row"]
    assert not (tmp_path / "good" / "else.jsonl").exists()


def test_what_was_to_be_measured_again_and_was_not_is_not_done(tmp_path: Path) -> None:
    first, second = part_writing("first"), part_writing("second")
    run([first, second], tmp_path)
    stopped = replace(first, commands=(("-c", "import sys; sys.exit(130)"),))
    with pytest.raises(Stopped):
        run([stopped, second], tmp_path, is_again=True)
    journal = Journal(tmp_path)
    assert not journal.is_done(first, is_short=False)
    assert not journal.is_done(second, is_short=False)


@pytest.mark.parametrize("goes_on", [True, False])
def test_what_was_stopped_goes_on_or_begins_with_nothing(tmp_path: Path, *, goes_on: bool) -> None:
    part = replace(part_writing("part"), goes_on=goes_on)
    stopped = replace(part, commands=part_writing("part", exit_code=130).commands)
    for _ in range(2):
        with pytest.raises(Stopped):
            run([stopped], tmp_path)
    seconds = [record["seconds"] for record in Journal(tmp_path).records() if "exit_code" in record]
    assert run([part], tmp_path) == []
    assert lines_of(tmp_path / "part" / "part.jsonl") == ["row"] * (3 if goes_on else 1)
    last = Journal(tmp_path).last(part)
    assert last is not None
    assert (last["seconds"] >= seconds[-1]) if goes_on else (seconds[-1] < 60)


def test_a_look_in_short_is_no_measurement_and_no_measurement_stays_behind_it(tmp_path: Path) -> None:
    part = part_writing("good")
    run([part], tmp_path, is_short=True)
    assert not Journal(tmp_path).is_done(part, is_short=False)
    run([part], tmp_path)
    run([part], tmp_path, is_short=True)
    assert not Journal(tmp_path).is_done(part, is_short=False)


def test_a_part_whose_file_is_gone_is_not_done(tmp_path: Path) -> None:
    part = part_writing("good")
    run([part], tmp_path)
    (tmp_path / "good" / "good.jsonl").unlink()
    assert not Journal(tmp_path).is_done(part, is_short=False)


@pytest.mark.parametrize(
    "rest", ['{"part": "good", "exit_', "{}", "[1]", '{"part": 3, "exit_code": 0}', "\n\n", "\x00"]
)
def test_a_journal_that_was_cut_off_is_gone_on_with(tmp_path: Path, rest: str) -> None:
    good, other = part_writing("good"), part_writing("other")
    run([good], tmp_path)
    with (tmp_path / JOURNAL).open("a", encoding="utf-8") as journal:
        journal.write(rest)
    assert run([good, other], tmp_path) == []
    assert Journal(tmp_path).is_done(good, is_short=False)
    assert Journal(tmp_path).is_done(other, is_short=False)


def test_a_command_after_one_that_failed_is_not_run(tmp_path: Path) -> None:
    failing = part_writing("two", exit_code=1)
    part = replace(failing, commands=failing.commands * 2)
    assert run([part], tmp_path) == ["two"]
    assert len(lines_of(tmp_path / "two" / "two.jsonl")) == 1


def test_published_files_are_replaced_or_added_to_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results, output = tmp_path / "results", tmp_path / "output"
    results.mkdir()
    output.mkdir()
    monkeypatch.setattr(publishing, "PAGES", (("-c", f"open({str(tmp_path / 'page')!r}, 'a').write('written ')"),))
    for name in ("replaced", "added"):
        (results / f"{name}.jsonl").write_text("before", encoding="utf-8")
    parts = [part_writing("replaced"), part_writing("added", is_added_to=True)]
    run(parts, output)
    for _ in range(2):
        assert publishing.publish(parts, output, results) == []
    assert lines_of(results / "replaced.jsonl") == ["row"]
    assert lines_of(results / "added.jsonl") == ["before", "row"]
    assert [record["part"] for record in Journal(results).records()] == ["replaced", "added"]
    assert (tmp_path / "page").read_text(encoding="utf-8") == "written written "


def test_what_is_not_published_keeps_its_line_in_the_journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    results, output = tmp_path / "results", tmp_path / "output"
    results.mkdir()
    output.mkdir()
    monkeypatch.setattr(publishing, "PAGES", ())
    one, gone = part_writing("one"), part_writing("gone")
    run([one, gone], output)
    Journal(results).append({**(Journal(output).last(gone) or {}), "started": "before"})
    (output / "gone" / "gone.jsonl").unlink()
    assert publishing.publish([one, gone], output, results) == ["gone"]
    started = {record["part"]: record["started"] for record in Journal(results).records()}
    assert (started["gone"], started["one"] != "before") == ("before", True)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_to_the_driver_alone_ends_a_part_and_all_that_it_started(
    number: signal.Signals, tmp_path: Path
) -> None:
    grandchild = "import time; time.sleep(60)"
    part = (
        "import subprocess, sys, time; "
        f"child = subprocess.Popen([sys.executable, '-c', {grandchild!r}]); "
        f"open({str(tmp_path / 'pids')!r}, 'w').write(f'{{child.pid}} '); time.sleep(60)"
    )
    driver = (
        "import sys; from benchmarks import __main__ as suite; from benchmarks.suite import Part; "
        f"commands = (('-c', {part!r}),); "
        "suite.PARTS = (Part(name='pool', measures='', commands=commands, files=('x',), page='index.md'),); "
        f"sys.argv[1:] = ['-o', {str(tmp_path / 'out')!r}]; sys.exit(suite.main())"
    )
    process = subprocess.Popen([sys.executable, "-c", driver], cwd=ROOT, stderr=subprocess.PIPE, text=True)
    deadline = time.monotonic() + 60
    while not (tmp_path / "pids").is_file() or not (tmp_path / "pids").read_text(encoding="utf-8").endswith(" "):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    process.send_signal(number)
    _, told = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "stopped; the same command goes on" in told
    pid = int((tmp_path / "pids").read_text(encoding="utf-8"))
    assert not Path(f"/proc/{pid}").exists() or "Z" in Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").split()[2]


def test_two_runs_into_one_folder_are_refused(tmp_path: Path) -> None:
    with lock_folder(tmp_path), pytest.raises(OSError, match="another run is writing there"):
        lock_folder(tmp_path)
    lock_folder(tmp_path).close()


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--short", "--publish"), "nothing to publish"),
        (("-o", "pyproject.toml"), "-o"),
        (("--part", "nothing"), "invalid choice"),
    ],
)
def test_what_cannot_be_is_refused_in_a_line(arguments: tuple[str, ...], told: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks", *arguments],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
        timeout=280,
    )
    assert done.returncode == 2
    assert told in done.stderr
    assert "Traceback" not in done.stderr
