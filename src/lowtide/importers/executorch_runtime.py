"""Opens .pte files on the ExecuTorch runtime that is installed, without the compiler that comes with it.

``executorch.runtime`` imports the whole compiler first, which takes longer than most models run; the extension below
it, which it re-exports, needs torch alone.
"""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import Any

import torch

from lowtide.errors import MissingDependency

__all__ = ["METHOD", "open_method"]

METHOD = "forward"
"""The one that is planned and run."""

_ONE_THREAD = 1
_EXTENSION = "executorch.extension.pybindings._C"


def open_method(path: Path, *, is_traced: bool = False) -> tuple[Any, Any]:
    """Open a .pte file and load its method, to run on one thread.

    Args:
        path: The file.
        is_traced: Whether the runtime records events.

    Returns:
        The program, which must outlive the method, and the method: called with a list of inputs it returns outputs.

    Raises:
        MissingDependency: The extra ``executorch`` is not installed.
        RuntimeError: The runtime refuses the file; it says why on stderr.
    """
    assert torch.__version__, "the extension finds torch's libraries only after torch was imported"
    try:
        runtime = importlib.import_module(_EXTENSION)
    except ModuleNotFoundError as error:
        raise MissingDependency("executorch", extra="executorch", needed_for="running .pte files") from error
    runtime._unsafe_reset_threadpool(_ONE_THREAD)
    program = runtime._load_program(str(path), enable_etdump=is_traced)
    return program, program.load_method(METHOD)
