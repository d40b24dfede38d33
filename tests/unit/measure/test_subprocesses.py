"""The child process: what goes in, what comes back, and what is said when it fails."""

from __future__ import annotations

import os
import shutil
import sys
import time
from pathlib import Path

import pytest

from lowtide.errors import InputError
from lowtide.measure import ChildFailed, measure_in_subprocess, meter_library_path
from lowtide.measure.targets import resolve_target

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="the meter is preloaded by the Linux loader")


@pytest.fixture(autouse=True)
def _importable_helpers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(Path(__file__).parent))


def test_arguments_and_environment_arrive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("LD_PRELOAD", raising=False)
    kwargs = {"number": 1, "text": "ä", "nested": {"list": [1.5, None, True]}}
    result = measure_in_subprocess("measured_functions:echo", kwargs=kwargs, env={"LOWTIDE_TEST_MARKER": "here"})
    assert result == {"kwargs": kwargs, "preload": None, "marker": "here"}
    assert "LOWTIDE_TEST_MARKER" not in os.environ


def test_output_passes_through(capfd: pytest.CaptureFixture[str]) -> None:
    assert measure_in_subprocess("measured_functions:print_and_return") == {"done": True}
    assert capfd.readouterr().out == "a line on stdout\n"


def test_exception_keeps_its_traceback() -> None:
    with pytest.raises(ChildFailed) as caught:
        measure_in_subprocess("measured_functions:raise_error")
    error = caught.value
    assert str(error) == "'measured_functions:raise_error' raised ZeroDivisionError in the child process: on purpose"
    assert error.error_type == "ZeroDivisionError"
    assert 'raise ZeroDivisionError("on purpose")' in error.child_traceback
    assert "measured_functions.py" in error.__notes__[0]


def test_exit_is_told_with_the_last_words() -> None:
    with pytest.raises(ChildFailed) as caught:
        measure_in_subprocess("measured_functions:exit_early")
    assert str(caught.value) == (
        "the process running 'measured_functions:exit_early' ended with exit code 7 before it had a result"
    )
    assert caught.value.return_code == 7
    assert "last words" in caught.value.child_traceback


def test_sys_exit_is_told() -> None:
    with pytest.raises(ChildFailed, match="ended with exit code 1 before it had a result") as caught:
        measure_in_subprocess("measured_functions:call_sys_exit")
    assert "no result today" in caught.value.child_traceback


def test_signal_is_named() -> None:
    with pytest.raises(ChildFailed, match=r"was ended by SIGKILL \(out of memory\?\) before it had a result") as caught:
        measure_in_subprocess("measured_functions:be_killed")
    assert caught.value.return_code == -9


def test_time_is_limited() -> None:
    with pytest.raises(ChildFailed, match=r"did not finish within 2 s and was killed: raise timeout_seconds") as caught:
        measure_in_subprocess("measured_functions:sleep_long", timeout_seconds=2)
    assert caught.value.return_code is None


def test_somebody_who_wants_an_end_does_not_wait_for_it(tmp_path: Path) -> None:
    marker = tmp_path / "pid"
    started = time.monotonic()
    with pytest.raises(ChildFailed, match=r"'measured_functions:sleep_long' was killed, as somebody wants an end"):
        measure_in_subprocess(
            "measured_functions:sleep_long", kwargs={"pid_path": str(marker)}, should_stop=marker.exists
        )
    assert time.monotonic() - started < 30  # of the 60 that it would sleep
    with pytest.raises(ProcessLookupError):
        os.kill(int(marker.read_text()), 0)


def test_result_must_be_a_dict() -> None:
    with pytest.raises(ChildFailed, match="'measured_functions:return_list' returned a list: it must return a dict"):
        measure_in_subprocess("measured_functions:return_list")


def test_result_must_fit_into_json() -> None:
    with pytest.raises(ChildFailed, match="raised TypeError in the child process: Object of type object is not JSON"):
        measure_in_subprocess("measured_functions:return_object")


def test_kwargs_must_fit_into_json() -> None:
    with pytest.raises(
        InputError, match="kwargs for 'measured_functions:echo' do not fit into JSON: Object of type set"
    ):
        measure_in_subprocess("measured_functions:echo", kwargs={"value": {1}})


def test_unknown_function_is_told_by_the_child() -> None:
    with pytest.raises(ChildFailed, match="'measured_functions' has no 'nothing'") as caught:
        measure_in_subprocess("measured_functions:nothing")
    assert caught.value.error_type == "InputError"


def test_library_in_a_folder_with_a_space(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "with space:and colon"
    folder.mkdir()
    library = Path(shutil.copy(meter_library_path(), folder))
    monkeypatch.setattr("lowtide.measure.subprocesses.meter_library_path", lambda: library)
    result = measure_in_subprocess("measured_functions:torchless_live_bytes")
    assert result["live_bytes"] > 0


class TestResolveTarget:
    def test_function(self) -> None:
        assert resolve_target("os.path:join") is os.path.join

    def test_method(self) -> None:
        assert resolve_target("pathlib:Path.home") == Path.home

    @pytest.mark.parametrize("target", ["os.path", "os.path:", ":join", ""])
    def test_wrong_form(self, target: str) -> None:
        with pytest.raises(InputError, match=f"^cannot read the target {target!r}: write pkg.module:function$"):
            resolve_target(target)

    def test_no_such_module(self) -> None:
        with pytest.raises(
            InputError, match=r"^target 'no_such_package\.x:f': there is no module 'no_such_package' on"
        ):
            resolve_target("no_such_package.x:f")

    def test_missing_import_inside_the_module_is_not_hidden(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        (tmp_path / "lowtide_test_broken.py").write_text("import no_such_package_either\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        with pytest.raises(ModuleNotFoundError, match="no_such_package_either"):
            resolve_target("lowtide_test_broken:f")

    def test_not_a_function(self) -> None:
        with pytest.raises(InputError, match=r"^target 'os:sep' is a str, not a function$"):
            resolve_target("os:sep")
