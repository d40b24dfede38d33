"""Runs a function in a fresh Python with the malloc meter in front of malloc, and brings back its result.

    here                                    child: python -m lowtide.measure.child
    request.json {target, kwargs} ────────▶ function(**kwargs)
    result, or ChildFailed        ◀──────── answer.json {ok, result | error}

A fresh process has no history: no caches filled, no heap fragmented, no threads of others, so figures repeat.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from lowtide.errors import InputError
from lowtide.measure.errors import ChildFailed
from lowtide.measure.meter import meter_library_path

__all__ = ["measure_in_subprocess"]

STDERR_TAIL_CHARS = 4000

_SECONDS_BETWEEN_LOOKS = 0.1


def measure_in_subprocess(
    target: str,
    *,
    kwargs: Mapping[str, object] | None = None,
    env: Mapping[str, str] | None = None,
    timeout_seconds: float = 600.0,
    should_stop: Callable[[], bool] | None = None,
) -> dict[str, Any]:
    """Runs ``target(**kwargs)`` in a fresh Python under the malloc meter and returns its result.

    The child sees this process's import path, environment and working directory. What it prints goes to this
    process's stdout.

    Args:
        target: The function, as ``pkg.module:function``. It must return a dict that JSON can hold.
        kwargs: Keyword arguments for it, of types that JSON can hold.
        env: Environment variables to set in the child, on top of this process's.
        timeout_seconds: Wall-clock time after which the child is killed.
        should_stop: Asked all the time; true kills the child at once.

    Returns:
        What the function returned, after a round trip through JSON: tuples are lists, keys are text.

    Raises:
        InputError: `kwargs` does not fit into JSON.
        MeterUnavailable: The meter was not built.
        ChildFailed: The function raised or returned something else than a dict for JSON, its process died,
            the time was up, or it was stopped. The child's traceback is in the error's `child_traceback` and notes.
    """
    try:
        request = json.dumps({"target": target, "kwargs": dict(kwargs or {}), "sys_path": sys.path})
    except (TypeError, ValueError) as error:
        raise InputError(f"kwargs for {target!r} do not fit into JSON: {error}") from error
    with tempfile.TemporaryDirectory(prefix="lowtide-measure-") as folder_name:
        folder = Path(folder_name)
        (folder / "request.json").write_text(request, encoding="utf-8")
        _run_child(
            target,
            folder=folder,
            env=dict(env or {}),
            timeout_seconds=timeout_seconds,
            should_stop=should_stop or (lambda: False),
        )
        return _read_answer(target, answer=json.loads((folder / "answer.json").read_text(encoding="utf-8")))


def _child_environment(*, folder: Path, env: dict[str, str]) -> dict[str, str]:
    merged = {**os.environ, **env}
    others = [merged["LD_PRELOAD"]] if merged.get("LD_PRELOAD") else []
    merged["LD_PRELOAD"] = ":".join([_preloadable(meter_library_path(), folder=folder), *others])
    merged["PYTHONPATH"] = os.pathsep.join(path for path in sys.path if path)
    return merged


def _preloadable(library: Path, *, folder: Path) -> str:
    """Returns a path that LD_PRELOAD can hold: it separates its entries at spaces and colons, without any quoting."""
    if not any(character in str(library) for character in " :"):
        return str(library)
    return str(shutil.copy(library, folder / library.name))


def _run_child(
    target: str, *, folder: Path, env: dict[str, str], timeout_seconds: float, should_stop: Callable[[], bool]
) -> None:
    command = [sys.executable, "-m", "lowtide.measure.child", str(folder / "request.json"), str(folder / "answer.json")]
    errors_path = folder / "stderr.txt"  # a file, not a pipe: a grandchild that lives on cannot make us wait
    environment = _child_environment(folder=folder, env=env)
    with (
        errors_path.open("wb") as stderr,
        subprocess.Popen(command, env=environment, stderr=stderr, stdin=subprocess.DEVNULL) as process,
    ):
        try:
            why_killed = _wait(process, timeout_seconds=timeout_seconds, should_stop=should_stop)
        finally:
            process.kill()  # of no effect where it has ended
    if not why_killed and (folder / "answer.json").is_file():
        return
    ended = f"the process running {target!r} {_describe_exit(process.returncode)} before it had a result"
    raise ChildFailed(
        f"{target!r} {why_killed}" if why_killed else ended,
        target=target,
        error_type=None,
        child_traceback=_tail(errors_path),
        return_code=None if why_killed else process.returncode,
    )


def _wait(process: subprocess.Popen[bytes], *, timeout_seconds: float, should_stop: Callable[[], bool]) -> str:
    """Wait for the end of the child; or say why there is none to wait for."""
    deadline = time.monotonic() + timeout_seconds
    while True:
        try:
            process.wait(timeout=max(0.0, min(_SECONDS_BETWEEN_LOOKS, deadline - time.monotonic())))
        except subprocess.TimeoutExpired:
            if should_stop():
                return "was killed, as somebody wants an end"
            if time.monotonic() >= deadline:
                return f"did not finish within {timeout_seconds:g} s and was killed: raise timeout_seconds"
        else:
            return ""


def _describe_exit(return_code: int) -> str:
    if return_code >= 0:
        return f"ended with exit code {return_code}"
    try:
        name = signal.Signals(-return_code).name
    except ValueError:
        name = f"signal {-return_code}"
    hint = " (out of memory?)" if name == "SIGKILL" else ""
    return f"was ended by {name}{hint}"


def _tail(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")[-STDERR_TAIL_CHARS:]


def _read_answer(target: str, *, answer: dict[str, Any]) -> dict[str, Any]:
    if answer["ok"]:
        result: dict[str, Any] = answer["result"]
        return result
    raise ChildFailed(
        f"{target!r} raised {answer['error_type']} in the child process: {answer['message']}",
        target=target,
        error_type=answer["error_type"],
        child_traceback=answer["traceback"],
        return_code=0,
    )
