"""SOURCE, as commands take it: a graph's file, a generator's specification, or a function that makes a model."""

from __future__ import annotations

import importlib
import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from lowtide import api
from lowtide.errors import InputError, LowtideError
from lowtide.ir import Graph, Trace, serde

__all__ = [
    "DIM_HELP",
    "EXECUTORCH",
    "IN_PLACE",
    "SOURCE_HELP",
    "add_working_folder_to_path",
    "capture_target",
    "is_existing",
    "is_onnx",
    "is_target",
    "is_tflite",
    "load_source",
    "load_trace",
    "read_target",
]

SOURCE_HELP = (
    "graph.json, a published instance, a trace or op log, model.tflite, model.onnx, generate:SPEC, or "
    "pkg.module:function."
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
_RETURNS = "must return (model, example_inputs) or (model, example_inputs, loss_function)"


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
    trace = load_trace(source)
    if trace is not None:
        from lowtide.importers.trace_graph import graph_of_trace

        return graph_of_trace(trace)
    if (is_existing(source) and Path(source).is_file()) or source.endswith(".json"):
        from lowtide.importers.instances import load_any_graph

        return load_any_graph(source)
    if is_target(source):
        return capture_target(source, inference=False, costs="profiled")
    raise InputError(f"SOURCE {_shortened(source)!r} is no file: give {SOURCE_HELP.rstrip('.')}")


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


def capture_target(target: str, *, inference: bool, costs: str) -> Graph:
    """Call ``pkg.module:function`` and capture the model that it returns.

    Raises:
        InputError: There is no such function, it raises, or it returns something else.
    """
    model, inputs, loss = read_target(target)
    return api.capture(model, inputs, loss=None if inference else loss, inference=inference, costs=costs)


def read_target(target: str) -> tuple[Any, tuple[Any, ...], Callable[..., Any] | None]:
    """Call ``pkg.module:function``; return the model, its example inputs and perhaps the loss function.

    Raises:
        InputError: There is no such function, it raises, or it returns something else.
    """
    if not is_target(target):
        raise InputError(f"TARGET {target!r} is no function: write pkg.module:function")
    function = _find_function(target)
    try:
        returned = function()
    except LowtideError:
        raise
    except (Exception, SystemExit) as error:
        raise InputError(f"{target} raised {_describe(error)}: it must work without arguments") from error
    if inspect.iscoroutine(returned):
        returned.close()
        raise InputError(f"{target} is an async function: write a plain one (def), which is called without a loop")
    return _read_returned(target, returned)


def add_working_folder_to_path() -> None:
    """Let modules in the working folder be imported, as ``python -m`` does."""
    folder = os.getcwd()  # noqa: PTH109  (sys.path holds texts)
    if folder not in sys.path and "" not in sys.path:
        sys.path.insert(0, folder)


def is_target(text: str) -> bool:
    """Whether a text is written as ``pkg.module:function``."""
    module, separator, attribute = text.partition(":")
    return bool(separator) and all(name.isidentifier() for dotted in (module, attribute) for name in dotted.split("."))


def _find_function(target: str) -> Callable[[], Any]:
    module_name, _, attribute = target.partition(":")
    add_working_folder_to_path()
    try:
        found: Any = importlib.import_module(module_name)
    except LowtideError:
        raise
    except (Exception, SystemExit) as error:
        if isinstance(error, ModuleNotFoundError) and f"{module_name}.".startswith(f"{error.name}."):
            raise InputError(
                f"{target}: there is no module {error.name!r} on Python's path: run from its folder, or install it"
            ) from error
        raise InputError(f"{target}: importing {module_name!r} raised {_describe(error)}") from error
    for name in attribute.split("."):
        if not hasattr(found, name):
            raise InputError(f"{target}: module {module_name!r} has no {attribute!r}")
        found = getattr(found, name)
    if not callable(found):
        raise InputError(f"{target} is {_kind_of(found)}, not a function")
    return found  # type: ignore[no-any-return]  # checked to be callable


def _read_returned(target: str, returned: object) -> tuple[Any, tuple[Any, ...], Callable[..., Any] | None]:
    if not isinstance(returned, tuple | list) or len(returned) not in (2, 3):
        raise InputError(f"{target} {_RETURNS}, what it returned is {_kind_of(returned)}")
    model, inputs = _eager(returned[0]), returned[1]
    loss = returned[2] if len(returned) == 3 else None
    if not callable(model):
        raise InputError(f"{target} {_RETURNS}: the model is {_kind_of(model)}")
    if not isinstance(inputs, tuple | list | Mapping):
        raise InputError(f"{target} {_RETURNS}: the example inputs are {_kind_of(inputs)}, write a tuple or a dict")
    if loss is not None and not callable(loss):
        raise InputError(f"{target} {_RETURNS}: the loss function is {_kind_of(loss)}")
    if isinstance(inputs, Mapping):
        from lowtide.importers.torch_keywords import by_position

        return *by_position(model, inputs), loss
    return model, tuple(inputs), loss


def _eager(model: Any) -> Any:
    """What can be called: of a program that torch.export made, the module."""
    if not type(model).__module__.startswith("torch."):
        return model
    from lowtide.importers.torch_export import module_of

    return module_of(model)


def _kind_of(thing: object) -> str:
    if isinstance(thing, tuple | list):
        return f"a {type(thing).__name__} of {len(thing)}"
    return "None" if thing is None else f"of type {type(thing).__name__}"


def _describe(error: BaseException) -> str:
    return f"{type(error).__name__}: {error}"
