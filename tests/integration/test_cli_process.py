"""The command as a process: Ctrl-C, full disks, terminals, and a stdout that holds one JSON object."""

from __future__ import annotations

import json
import os
import pty
import resource
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import IO

import pytest

from lowtide.ir import Graph
from lowtide.ir.serde import load_graph, load_plan, save_graph
from lowtide.referee import check_plan

COMMAND = (sys.executable, "-m", "lowtide")

PLANNERS = """
import ctypes
import os
import time

from lowtide.ir import Incumbent, Status
from lowtide.ir.sequence import steps_from_sequence
from lowtide.planners.protocol import Proposal


class Recomputing:
    name = "recomputing"

    def propose(self, request):
        print("chatter of Python")
        os.write(1, b"chatter of a descriptor\\n")
        ctypes.CDLL(None).puts(b"chatter of C")
        steps = steps_from_sequence(request.graph, ("a", "b", "c", "a", "d"))
        return Proposal(Status.FEASIBLE, steps)


class UntilStopped(Recomputing):
    name = "until-stopped"

    def propose(self, request):
        os.write(1, b"searching\\n")  # at once: an interrupt within a flush would have it printed again
        request.on_progress(Incumbent(0.0, 5, 4))
        while not request.should_stop():
            time.sleep(0.01)
        return super().propose(request)


class Deaf:
    name = "deaf"

    def propose(self, request):
        os.write(1, b"searching\\n")  # at once: an interrupt within a flush would have it printed again
        while True:
            time.sleep(0.01)
"""


@pytest.fixture
def folder(tmp_path: Path, four: Graph) -> Path:
    """``four.json`` (peak 24, working set 17; ``tests/unit/test_api.py`` has the drawing) and planners."""
    save_graph(four, tmp_path / "four.json")
    (tmp_path / "process_planners.py").write_text(PLANNERS, encoding="utf-8")
    return tmp_path


def arguments(planner: str, *more: str) -> list[str]:
    return [*COMMAND, "plan", "four.json", "--budget", "20", "--planner", f"process_planners:{planner}", *more]


def start_searching(folder: Path, planner: str) -> subprocess.Popen[str]:
    """Start a plan and wait until its planner runs."""
    process = subprocess.Popen(
        arguments(planner, "--json", "-o", "plan.json"),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    assert any("searching" in line for line in process.stderr)
    return process


def test_interrupt_keeps_the_best_plan_and_writes_it(folder: Path) -> None:
    process = start_searching(folder, "UntilStopped")
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    document = json.loads(out)
    assert (document["status"], document["peak_bytes"], document["planner"]) == ("feasible", 17, "until-stopped")
    assert "lowtide: stopping, the best plan so far is kept (Ctrl-C again: at once)" in err
    assert err.endswith("lowtide: interrupted\n")
    assert check_plan(load_graph(folder / "four.json"), load_plan(folder / "plan.json")).plan.duration == 5


def test_second_interrupt_ends_a_planner_that_does_not_listen(folder: Path) -> None:
    process = start_searching(folder, "Deaf")
    process.send_signal(signal.SIGINT)
    assert process.stderr is not None
    assert any("Ctrl-C again" in line for line in process.stderr)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=60)
    assert (process.returncode, out) == (130, "")
    assert err == "lowtide: interrupted\n"
    assert not (folder / "plan.json").exists()


def test_stdout_holds_the_json_alone_whoever_else_prints(folder: Path) -> None:
    done = subprocess.run(
        arguments("Recomputing", "--json"), cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["peak_bytes"] == 17
    for kind in ("Python", "a descriptor", "C"):
        assert f"chatter of {kind}\n" in done.stderr


def test_full_disk_leaves_the_old_file_and_no_litter(folder: Path) -> None:
    (folder / "plan.json").write_text("the old plan\n", encoding="utf-8")
    before = sorted(path.name for path in folder.iterdir())
    done = subprocess.run(
        arguments("Recomputing", "-o", "plan.json"),
        cwd=folder,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
        env={**os.environ, "PYTHONDONTWRITEBYTECODE": "1"},
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100)),
    )
    assert done.returncode == 2
    assert done.stderr.endswith("lowtide: plan.json: cannot be written: File too large\n")
    assert (folder / "plan.json").read_text(encoding="utf-8") == "the old plan\n"
    assert sorted(path.name for path in folder.iterdir()) == before


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("options", [("--json",), (), ("--json", "-o", "plan.json")])
def test_stdout_on_a_full_disk_is_one_line(folder: Path, options: tuple[str, ...]) -> None:
    with open("/dev/full", "w") as full:  # noqa: PTH123  (a device)
        done = run_into(full, arguments("Recomputing", *options), folder)
    said = "lowtide: stdout cannot be written: No space left on device; let it lead to another place\n"
    assert done.stderr.endswith(said)
    assert own_lines(done.stderr) == [said]
    assert done.returncode == 2
    with open("/dev/full", "w") as full:  # noqa: PTH123  (a device)
        done = run_into(full, [*COMMAND, "--help"], folder)
    assert (done.returncode, done.stderr) == (2, said)


@pytest.mark.parametrize(
    ("more", "code", "says"),
    [
        (("--json", "-o", "plan.json"), 0, ""),
        (("-o", "plan.json"), 0, ""),
        (
            ("--budget", "2", "--json"),
            3,
            "lowtide: budget 2 B is below the smallest possible peak 17 B: node 'd' needs",
        ),
    ],
)
def test_a_reader_that_left_is_no_error(folder: Path, more: tuple[str, ...], code: int, says: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w") as nobody:
        done = run_into(nobody, arguments("Recomputing", *more), folder)
    assert "".join(own_lines(done.stderr)).startswith(says)
    assert len(own_lines(done.stderr)) == bool(says)
    assert done.returncode == code
    assert (folder / "plan.json").exists() == (code == 0)


def test_an_error_stands_behind_the_table_in_one_file(folder: Path) -> None:
    done = subprocess.run(
        arguments("Recomputing", "--budget", "2"),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        timeout=120,
    )
    assert done.returncode == 3
    *_, table, error = (line for line in done.stdout.splitlines() if line and not line.startswith("chatter"))
    assert table.startswith("smallest peak")
    assert error.startswith("lowtide: budget 2 B is below")


def test_closed_descriptors_are_no_error(folder: Path) -> None:
    command = " ".join(arguments("Recomputing", "-o", "plan.json"))
    done = subprocess.run(["sh", "-c", f"{command} >&- 2>&-"], cwd=folder, check=False, timeout=120)
    assert done.returncode == 0
    assert load_plan(folder / "plan.json").duration == 5


def test_stderr_without_a_reader_is_no_error(folder: Path) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    command = [*COMMAND, "plan", "nowhere.json"]
    done = subprocess.run(command, cwd=folder, stdout=subprocess.PIPE, stderr=writing, check=False, timeout=120)
    os.close(writing)
    assert (done.returncode, done.stdout) == (2, b"")


def own_lines(text: str) -> list[str]:
    """What lowtide itself says, or Python of it; not what planners print."""
    return [line for line in text.splitlines(keepends=True) if line.startswith(("lowtide:", "Traceback", "Exception"))]


def run_into(stdout: IO[str], command: list[str], folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        command, cwd=folder, stdout=stdout, stderr=subprocess.PIPE, text=True, check=False, timeout=120
    )


def test_progress_renews_itself_on_a_terminal_and_stays_off_stdout(folder: Path) -> None:
    controller, terminal = pty.openpty()
    process = subprocess.Popen(
        arguments("UntilStopped", "--json"),
        cwd=folder,
        stdout=subprocess.PIPE,
        stderr=terminal,
        text=True,
        env={**os.environ, "TERM": "xterm", "NO_COLOR": "1"},
    )
    os.close(terminal)
    seen = ""
    deadline = time.monotonic() + 60
    while "best TDI 25.000 %, bound 0.000 %, gap 25.000 points" not in seen:
        assert time.monotonic() < deadline, seen
        seen += os.read(controller, 4096).decode()
    process.send_signal(signal.SIGINT)
    os.set_blocking(controller, False)
    out = ""
    while process.poll() is None and time.monotonic() < deadline:  # keep the terminal drained
        try:
            os.read(controller, 4096)
        except (BlockingIOError, OSError):
            time.sleep(0.01)
    assert process.stdout is not None
    out = process.stdout.read()
    os.close(controller)
    assert process.returncode == 130
    assert json.loads(out)["peak_bytes"] == 17


def test_python_m_and_the_script_are_one_command(folder: Path) -> None:
    script = Path(sys.executable).with_name("lowtide")
    for command in (COMMAND, (str(script),)):
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True, timeout=120)
        assert done.stdout.startswith("lowtide ")


def test_planning_a_file_loads_no_torch(folder: Path) -> None:
    code = (
        "import sys; sys.modules['torch'] = None; from lowtide.cli import main; "
        "sys.exit(main(['plan', 'four.json', '--budget', '20']))"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_ctrl_c_while_commands_are_imported_is_one_line() -> None:
    """It comes when the planning that ``lowtide plan`` needs is about to be imported."""
    script = """
import sys
from importlib.abc import MetaPathFinder

class CtrlC(MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name == "lowtide.planning.search":
            sys.meta_path.remove(self)
            raise KeyboardInterrupt

sys.meta_path.insert(0, CtrlC())
from lowtide.cli import main
sys.exit(main(["plan", "four.json"]))
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "lowtide: interrupted\n")
