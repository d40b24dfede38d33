"""Runs a stranger's runtime in a process of its own: where it dies of a model, we have one line about it.

here                              child: python -m MODULE ARGUMENTS... FOLDER
FOLDER/request.json, model ─────▶ the runtime
answer, or why there is none ◀─── FOLDER/answer.json
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["NoAnswer", "RuntimeAnswer", "run_runtime"]

_TIMEOUT_SECONDS = 600.0


class NoAnswer(Exception):
    """A runtime refused a model, died of it or took too long; the message says which, and what it said."""


@dataclass(frozen=True, slots=True)
class RuntimeAnswer:
    """What came back.

    Attributes:
        fields: The child's ``answer.json``.
        printed: What it wrote to stderr.
    """

    fields: dict[str, Any]
    printed: str


def run_runtime(
    module: str, folder: Path, *, arguments: Sequence[str] = (), last_words: Callable[[str], str]
) -> RuntimeAnswer:
    """Run a module on a folder and read its answer.

    Args:
        module: What ``python -m`` takes.
        folder: Where its request lies and its answer will; the last of its arguments.
        arguments: Those before it.
        last_words: Picks from what a failed child wrote to stderr the one line that tells why.

    Raises:
        NoAnswer: There is none.
    """
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(entry for entry in sys.path if entry)}
    try:
        done = subprocess.run(
            [sys.executable, "-m", module, *arguments, str(folder)],
            capture_output=True,
            text=True,
            errors="replace",
            env=environment,
            timeout=_TIMEOUT_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NoAnswer(f"has no result after {_TIMEOUT_SECONDS:.0f} s") from None
    answer = folder / "answer.json"
    if done.returncode or not answer.is_file():
        how = f"dies of signal {-done.returncode}" if done.returncode < 0 else "refuses the model"
        raise NoAnswer(f"{how}: {last_words(done.stderr)}")
    return RuntimeAnswer(json.loads(answer.read_text(encoding="utf-8")), done.stderr)
