"""SOURCE, as commands take it: a graph's file, a generator's specification, or a function that makes a model."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from lowtide.cli.targets import capture_target, is_target, refuse_python_file
from lowtide.errors import InputError
from lowtide.ir import Graph, Trace, serde

__all__ = [
    "DIM_HELP",
    "EXECUTORCH",
    "IN_PLACE",
    "SOURCE_HELP",
    "is_existing",
    "is_onnx",
    "is_tflite",
    "load_source",
    "load_trace",
]

_FILES = "graph.json, a published instance, a trace or op log, model.tflite, model.onnx"
SOURCE_HELP = "\n\n".join(  # a line each
    [
        "One of:",
        "graph.json, a published instance, a trace (.jsonl) or op log",
        "model.tflite, in-place:model.tflite",
        "model.onnx, machine:model.onnx",
        "pkg.module:function (of train.py: train:function)",
        "executorch:pkg.module:function, executorch-xnnpack:...",
        "model:NAME of lowtide.models, such as model:unet",
        "generate:SPEC, such as generate:unet?depth=5",
    ]
)
DIM_HELP = "A dimension that an .onnx file leaves open, by its name or as INPUT.AXIS=SIZE; may be repeated."
_LONGEST_FIRST_LINE = 4096
_LONGEST_NAME = 200
_GENERATE = "generate:"
IN_PLACE = "in-place:"
"""Before a .tflite file: elementwise operators write over their inputs where nobody misses them."""
MACHINE = "machine:"
"""Before an .onnx file: ONNX Runtime optimises it for this machine's processor, too; the result runs only there."""
EXECUTORCH = {"executorch:": "portable", "executorch-xnnpack:": "xnnpack"}
"""Before pkg.module:function: the model as ExecuTorch executes it, and by whom its nodes are executed."""


def load_source(source: str, *, dims: Sequence[str] = ()) -> Graph:
    """Read, generate or capture the graph that a SOURCE names.

    Args:
        source: What it names.
        dims: Dimensions that an .onnx file leaves open: ``batch=1``, or by input and axis ``x.0=1``.

    Raises:
        InputError: There is no such thing, or it is broken.
    """
    if dims and not source.lower().endswith(".onnx"):
        raise InputError(f"--dim {dims[0]!r}: only .onnx files leave dimensions open, SOURCE is {source!r}")
    _refuse_misplaced_prefix(source)
    if source.startswith(_GENERATE):
        from lowtide.importers.generate import graph_from_spec

        return graph_from_spec(source)
    if source.lower().endswith(".tflite"):
        from lowtide.importers.tflite import capture_tflite

        return capture_tflite(source.removeprefix(IN_PLACE), in_place=source.startswith(IN_PLACE))
    if source.lower().endswith(".onnx"):
        from lowtide.importers.onnx import capture_onnx
        from lowtide.importers.onnx_file import parse_dims

        level = "machine" if source.startswith(MACHINE) else "portable"
        return capture_onnx(source.removeprefix(MACHINE), dims=parse_dims(dims), level=level)
    if source.startswith(tuple(EXECUTORCH)):
        from lowtide.cli.executorch import import_target

        return import_target(source).graph
    refuse_python_file(source)
    trace = load_trace(source)
    if trace is not None:
        from lowtide.importers.trace_graph import graph_of_trace

        return graph_of_trace(trace)
    if (is_existing(source) and Path(source).is_file()) or source.endswith(".json"):
        from lowtide.importers.instances import load_any_graph

        return load_any_graph(source)
    if is_target(source):
        return capture_target(source, inference=False, costs="profiled")
    raise InputError(f"SOURCE {_shortened(source)!r} is no file: give {_FILES}, generate:SPEC, or pkg.module:function")


def _refuse_misplaced_prefix(source: str) -> None:
    """Say what a prefix is for to whom wrote it before something else; a module may be called ``machine``."""
    for prefix, ending in ((IN_PLACE, ".tflite"), (MACHINE, ".onnx")):
        is_function = is_target(source) and not source.lower().endswith((".py", ".tflite"))
        if source.startswith(prefix) and not source.lower().endswith(ending) and not is_function:
            raise InputError(f"SOURCE {_shortened(source)!r}: {prefix} stands before {ending} files only")


def is_tflite(source: str | Path) -> bool:
    """Whether a SOURCE names a .tflite file."""
    return Path(source).suffix.lower() == ".tflite"


def is_onnx(source: str | Path) -> bool:
    """Whether a SOURCE names an .onnx file."""
    return Path(source).suffix.lower() == ".onnx"


def load_trace(source: str) -> Trace | None:
    """Read a SOURCE that is a trace, or an op log of DTR's simulator; None where it is something else.

    Raises:
        InputError: It is one, but broken, or a missing ``.jsonl``.
    """
    start = _start_of(Path(source))
    if '"INSTRUCTION"' in start:
        from lowtide.importers.oplogs import read_oplog

        return read_oplog(source)
    if source.endswith(".jsonl") or '"lowtide.trace"' in start:
        return serde.load_trace(source)
    return None


def _start_of(path: Path) -> str:
    """The first line of a file, or nothing where there is none; whoever reads it in full says what is wrong."""
    try:
        if not path.is_file():
            return ""
        with path.open(encoding="utf-8", errors="replace") as file:
            return file.readline(_LONGEST_FIRST_LINE)
    except (OSError, ValueError):
        return ""


def is_existing(path: str | os.PathLike[str]) -> bool:
    """Whether there is such a file or folder; false, too, for what none can be named."""
    return os.path.exists(path)  # noqa: PTH110  (pathlib's raises where a name is too long)


def _shortened(text: str) -> str:
    return text if len(text) <= _LONGEST_NAME else f"{text[:_LONGEST_NAME]}..."
