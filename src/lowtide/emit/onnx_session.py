"""Opens an .onnx file in ONNX Runtime so that it executes the nodes as they are written, one after the other."""

from __future__ import annotations

import importlib
import os
from collections.abc import Sequence
from typing import Any

from lowtide.errors import MissingDependency
from lowtide.importers.onnx_options import execution_options

__all__ = ["onnx_session", "onnx_session_options"]

_ANY_NUMBER = 0


def onnx_session(
    path: str | os.PathLike[str] | bytes,
    *,
    threads: int | None = None,
    providers: Sequence[str] = ("CPUExecutionProvider",),
) -> Any:
    """Open what ``lowtide export`` wrote; under other options ONNX Runtime merges recomputed nodes again.

    Args:
        path: The .onnx file, or its bytes.
        threads: Threads within a node; ONNX Runtime's choice by default. Kernels keep a scratch buffer per thread.
        providers: Execution providers; plans are made for the CPU's.

    Returns:
        An ``onnxruntime.InferenceSession``.

    Raises:
        MissingDependency: The extra ``onnx`` is not installed.
    """
    return _onnxruntime().InferenceSession(
        path if isinstance(path, bytes) else os.fspath(path),
        onnx_session_options(threads=threads),
        providers=list(providers),
    )


def onnx_session_options(*, threads: int | None = None) -> Any:
    """The options of :func:`onnx_session`, for those who set more of them.

    No optimisation (the file is optimised already), nodes in the order of the file, every tensor a block of its own
    that is freed after its last use.

    Args:
        threads: Threads within a node; ONNX Runtime's choice by default.

    Returns:
        An ``onnxruntime.SessionOptions``.

    Raises:
        MissingDependency: The extra ``onnx`` is not installed.
    """
    return execution_options(_onnxruntime(), threads=_ANY_NUMBER if threads is None else threads)


def _onnxruntime() -> Any:
    try:
        return importlib.import_module("onnxruntime")
    except ModuleNotFoundError as error:
        raise MissingDependency("onnxruntime", extra="onnx", needed_for="running .onnx files") from error
