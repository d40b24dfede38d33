"""The C++ compiler: finding it, and running it so that nothing half-done stays behind."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from lowtide.errors import ShimError

__all__ = ["Compiler", "find_compiler", "first_errors", "is_out_of_space", "run_compiler"]

_NAMES = ("g++", "c++", "clang++")
_MOST_ERRORS = 3
_OUT_OF_SPACE = ("No space left on device", "Disk quota exceeded", "File size limit exceeded", "File too large")


@dataclass(frozen=True, slots=True)
class Compiler:
    """A C++ compiler that answers.

    Attributes:
        command: The program, by its full path, and arguments that always come first (``CXX="ccache g++"``).
        version: The first line of what it says to ``--version``.
    """

    command: tuple[str, ...]
    version: str


def find_compiler(environment: Mapping[str, str] | None = None) -> Compiler:
    """Find ``$CXX`` or else g++, c++, clang++, the first that answers.

    Args:
        environment: In place of the process's own.

    Raises:
        ShimError: There is none.
    """
    environment = os.environ if environment is None else environment
    asked = environment.get("CXX", "").strip()
    commands = [shlex.split(asked)] if asked else [[name] for name in _NAMES]
    for command in commands:
        program = shutil.which(command[0], path=environment.get("PATH", os.defpath))
        version = None if program is None else _version_of([program, *command[1:]])
        if program is not None and version is not None:
            return Compiler((program, *command[1:]), version)
    if asked:
        raise ShimError(f"CXX={asked!r} is no C++ compiler that runs here: set CXX to one, or unset it to use g++")
    raise ShimError(
        f"no C++ compiler: looked for {', '.join(_NAMES)} in PATH and for $CXX; lowtide's online runtime compiles its "
        "torch shim once: apt install g++ (or conda install gxx)"
    )


def _version_of(command: Sequence[str]) -> str | None:
    try:
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=True, timeout=60)
    except (OSError, ValueError, subprocess.SubprocessError):
        return None
    return next((line.strip() for line in done.stdout.splitlines() if line.strip()), None)


def run_compiler(command: Sequence[str], *, scratch_folder: Path) -> tuple[int, str]:
    """Run a compiler to its end; if this process is interrupted, the compiler and its children end too.

    Args:
        command: Program and arguments.
        scratch_folder: Where it keeps its intermediate files.

    Returns:
        Its exit status and all that it said.

    Raises:
        OSError: It could not be started.
    """
    environment = {**os.environ, "TMPDIR": str(scratch_folder), "LC_ALL": "C"}
    process = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env=environment,
        start_new_session=True,  # a group of its own: g++ is a driver, its children do the work
    )
    try:
        said, _ = process.communicate()
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    return process.returncode, said.decode(errors="replace")


def first_errors(said: str) -> str:
    """The first lines that tell what is wrong, in one line."""
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    wrong = [line for line in lines if "error" in line.lower() or "undefined reference" in line]
    return " | ".join((wrong or lines[-_MOST_ERRORS:])[:_MOST_ERRORS]) or "it said nothing"


def is_out_of_space(said: str) -> bool:
    """Whether a compiler ended for want of disk space."""
    return any(sign in said for sign in _OUT_OF_SPACE)
