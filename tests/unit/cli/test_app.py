"""main: which error becomes which exit code, and that nobody sees a traceback."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

import lowtide
from lowtide import api
from lowtide.cli import main
from lowtide.errors import CompileError, InfeasibleBudget, LayoutRejected
from lowtide.planners.table import PLANNERS
from lowtide.policies.table import POLICIES

COMMANDS = (
    *("", "demo", "capture", "plan", "verify", "export", "doctor", "build"),
    *("simulate", "sweep", "compare", "report", "run"),
)


def failing_with(error: BaseException) -> Any:
    def fail(*_: Any, **__: Any) -> None:
        raise error

    return fail


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (CompileError("model.py:3: a branch"), 2),
        (LayoutRejected("disjoint", "a and b share bytes"), 1),
        (InfeasibleBudget("too small", budget_bytes=1), 3),
        (KeyboardInterrupt(), 130),
    ],
)
def test_exit_codes(
    workplace: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    error: BaseException,
    code: int,
) -> None:
    monkeypatch.setattr(api, "plan", failing_with(error))
    assert main(["plan", "four.json", "--budget", "20"]) == code
    out, err = capsys.readouterr()
    assert (out, err) == ("", f"lowtide: {str(error) or 'interrupted'}\n")


def test_our_bug_exits_70_and_saves_the_traceback(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(workplace))
    monkeypatch.setattr(api, "plan", failing_with(RuntimeError("out of luck")))
    assert main(["plan", "four.json", "--budget", "20"]) == 70
    (saved,) = workplace.glob("lowtide-crash-*.txt")
    assert capsys.readouterr().err == (
        f"lowtide: this is a bug in lowtide, please report it; the traceback is in {saved}: RuntimeError: out of luck\n"
    )
    text = saved.read_text(encoding="utf-8")
    assert text.startswith(f"lowtide {lowtide.__version__}, Python ")
    assert text.endswith("RuntimeError: out of luck\n")
    assert "in fail" in text


def test_a_long_bug_is_shown_in_part_and_saved_whole(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(workplace))
    monkeypatch.setattr(api, "plan", failing_with(AssertionError("model is invalid:\n" + "vars: 7\n" * 5000)))
    assert main(["plan", "four.json", "--budget", "20"]) == 70
    (saved,) = workplace.glob("lowtide-crash-*.txt")
    err = capsys.readouterr().err
    assert f"{saved}: AssertionError: model is invalid: vars: 7 vars: 7" in err
    assert err.endswith("vars: 7 ...\n")
    assert len(err) < 700
    assert saved.read_text(encoding="utf-8").count("vars: 7\n") >= 5000


def test_bug_whose_traceback_cannot_be_saved_still_exits_70(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(workplace / "nowhere"))
    monkeypatch.setattr(api, "plan", failing_with(RuntimeError("out of luck")))
    assert main(["plan", "four.json", "--budget", "20"]) == 70
    assert "the traceback could not be saved (No such file or directory)" in capsys.readouterr().err


def test_failure_of_a_builtin_planner_is_our_bug(
    workplace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from lowtide.planners.search import SearchPlanner

    monkeypatch.setattr(tempfile, "tempdir", str(workplace))
    monkeypatch.setattr(SearchPlanner, "propose", failing_with(IndexError("7")))
    assert main(["plan", "four.json", "--budget", "20"]) == 70
    assert "planner 'search' failed with IndexError: 7" in capsys.readouterr().err


def test_help_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["--version"]) == 0
    assert capsys.readouterr().out == f"lowtide {lowtide.__version__}\n"
    assert main(["--help"]) == 0
    out = capsys.readouterr().out
    for command in ("demo", "capture", "plan", "verify", "doctor"):
        assert f" {command} " in out


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_no_type_beside_a_flag_and_cuts_nothing_short(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*command.split(), "--help"]) == 0
    out = capsys.readouterr().out
    assert "--help" in out
    assert "<bool>" not in out
    assert "\N{HORIZONTAL ELLIPSIS}" not in out


@pytest.mark.parametrize(("command", "named"), [("plan", PLANNERS), ("simulate", POLICIES), ("sweep", POLICIES)])
def test_help_names_every_planner_and_policy(
    command: str, named: Mapping[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--help"]) == 0
    out = " ".join(capsys.readouterr().out.replace("\N{BOX DRAWINGS LIGHT VERTICAL}", " ").split())
    assert f"{', '.join(named)}, or pkg.mod:Class." in out


def test_no_command_prints_the_help_and_exits_2(capsys: pytest.CaptureFixture[str]) -> None:
    assert main([]) == 2
    out, err = capsys.readouterr()
    assert "Usage: lowtide" in out
    assert err == ""
