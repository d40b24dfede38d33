"""Asks the installed ONNX Runtime what it makes of a model, and runs that once for types, shapes and durations."""

from __future__ import annotations

import importlib.util
import json
import os
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from lowtide.errors import FormatError, MissingDependency
from lowtide.importers.onnx_file import OnnxFile, onnx_module
from lowtide.importers.onnx_options import LEVELS
from lowtide.importers.runtime_process import NoAnswer, run_runtime

__all__ = ["ObservedValue", "OptimisedModel", "optimise_onnx"]

_CHILD = "lowtide.importers.onnx_child"
_LONGEST_MESSAGE = 400
_ADDRESS_SPACE_SHARE = 2


@dataclass(frozen=True, slots=True)
class ObservedValue:
    """A value as it was when the model ran.

    Attributes:
        shape: Its shape.
        dtype: Its type, as numpy names it.
        size_bytes: What its elements take.
    """

    shape: tuple[int, ...]
    dtype: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class OptimisedModel:
    """A model as ONNX Runtime executes it.

    Attributes:
        model: The ``ModelProto`` after its optimisations; shared, never changed.
        value_by_name: Inputs and what nodes of the graph make.
        duration_by_node: Nanoseconds of nodes by position; those too quick for the profiler may be missing.
        version: Of the runtime.
    """

    model: Any
    value_by_name: Mapping[str, ObservedValue]
    duration_by_node: Mapping[int, int]
    version: str


def optimise_onnx(file: OnnxFile, *, level: str = "portable", seed: int = 0) -> OptimisedModel:
    """Optimise a model and run the result with random inputs.

    Args:
        file: The file, its dimensions fixed.
        level: ``"portable"``: fusions that every machine executes; ``"machine"``: layouts for this machine's
            processor, too; ``"none"``: the file as it is.
        seed: Of the inputs.

    Raises:
        FormatError: ONNX Runtime refuses the model or dies of it, or a value is no tensor of numbers.
        MissingDependency: The extra ``onnx`` is not installed.
    """
    onnx = onnx_module()
    if importlib.util.find_spec("onnxruntime") is None:
        raise MissingDependency("onnxruntime", extra="onnx", needed_for="planning .onnx files")
    with tempfile.TemporaryDirectory(prefix="lowtide-onnx-") as name:
        folder = Path(name)
        try:
            (folder / "model.onnx").write_bytes(file.model.SerializeToString())
        except ValueError:
            raise FormatError(f"{file.where}: with its weights it has more than 2 GiB: not taken yet") from None
        request = {"level": LEVELS[level], "seed": seed, "memory_bytes": _most_memory_bytes()}
        (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
        answer = _ask(folder, file.where)
        model = onnx.load(str(folder / "optimised.onnx"))
    return OptimisedModel(
        model=model,
        value_by_name={
            key: ObservedValue(tuple(found["shape"]), found["dtype"], found["size_bytes"])
            for key, found in answer["values"].items()
        },
        duration_by_node={int(index): duration for index, duration in answer["durations"].items() if index.isdigit()},
        version=answer["version"],
    )


def _ask(folder: Path, where: str) -> dict[str, Any]:
    try:
        answer = run_runtime(_CHILD, folder, last_words=_last_words).fields
    except NoAnswer as error:
        raise FormatError(f"{where}: ONNX Runtime {error}") from None
    if "refusal" in answer:
        raise FormatError(f"{where}: {answer['refusal']}")
    return answer


def _last_words(printed: str) -> str:
    """What a child's exception says, in one line: whatever follows the last, indented, line of its traceback."""
    lines = [line for line in printed.splitlines() if line.strip()]
    last_indented = max((number for number, line in enumerate(lines) if line.startswith("  ")), default=-1)
    said = lines[last_indented + 1 :] or lines[-1:] or ["it said nothing"]
    return " ".join(" ".join(said).split())[:_LONGEST_MESSAGE]


def _most_memory_bytes() -> int | None:
    """Address space that the child may take: twice the machine's memory, as libraries reserve more than they use."""
    try:
        return _ADDRESS_SPACE_SHARE * os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    except (ValueError, OSError):
        return None
