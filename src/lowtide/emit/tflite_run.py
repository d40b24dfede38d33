"""Runs .tflite models on the runtimes that are installed, and measures them from outside.

TensorFlow Lite Micro (its interpreter for Python, with its reference kernels) says what its arena holds; LiteRT's arena
is the span of the addresses at which its tensors lie. Pointers are 64 bits here: the persistent part of a
microcontroller's arena is smaller.
"""

from __future__ import annotations

import importlib.util
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from lowtide.errors import LowtideError, MissingDependency
from lowtide.importers.runtime_process import NoAnswer, run_runtime
from lowtide.importers.tflite_arena import micro_arena
from lowtide.importers.tflite_file import TfliteFile, parse_tflite
from lowtide.importers.tflite_ops import present
from lowtide.importers.tflite_tensors import shape_of, type_of

__all__ = ["LitertRun", "MicroRun", "RuntimeRefused", "random_inputs", "run_on_litert", "run_on_micro"]

_SPARE_BYTES = 64 * 2**20
_SPARE_SHARE = 4
_ALLOCATION = re.compile(r"Arena allocation (total|head|tail) (\d+) bytes")
_NAMES = {"micro": "TensorFlow Lite Micro", "litert": "LiteRT"}
_CHILD = "lowtide.emit.tflite_child"

Inputs = Mapping[str, npt.NDArray[Any]]
"""Arrays by ``set_input``: ``0_1`` is input 1 of set 0."""


class RuntimeRefused(LowtideError):
    """A runtime does not take a model, or dies of it; the message has its own words."""


@dataclass(frozen=True, slots=True)
class MicroRun:
    """A model on TensorFlow Lite Micro.

    Attributes:
        outputs: By ``set_output``.
        head_bytes: Tensors and scratch of kernels.
        tail_bytes: The persistent part: structures, data of kernels, variable tensors; pointers of 64 bits.
        smallest_bytes: The smallest arena in which the model can be set up, by trying; None where not asked for.
        seconds: Processor time of an inference, the shortest of several.
    """

    outputs: Mapping[str, npt.NDArray[Any]]
    head_bytes: int
    tail_bytes: int
    smallest_bytes: int | None
    seconds: float

    @property
    def total_bytes(self) -> int:
        """What ``arena_used_bytes()`` says."""
        return self.head_bytes + self.tail_bytes


@dataclass(frozen=True, slots=True)
class LitertRun:
    """A model on LiteRT.

    Attributes:
        outputs: By ``set_output``.
        arena_bytes: Span of the addresses of its tensors; temporaries of kernels between them count, those beyond
            do not.
        seconds: Processor time of an inference on one thread, the shortest of several.
    """

    outputs: Mapping[str, npt.NDArray[Any]]
    arena_bytes: int
    seconds: float


def random_inputs(file: TfliteFile, *, num_sets: int = 3, seed: int = 0) -> Inputs:
    """Random arrays for every input of a model: normal for floats, the whole range for 8 and 16 bits, else 0 and 1.

    Indices, say of GATHER, are integers of 32 bits: 0 and 1 are in range nearly everywhere.
    """
    rng = np.random.default_rng(seed)
    inputs: dict[str, npt.NDArray[Any]] = {}
    for number in range(num_sets):
        for position, index in enumerate(present(file.subgraph.inputs)):
            tensor = file.subgraph.tensors[index]
            inputs[f"{number}_{position}"] = _random_array(rng, type_of(tensor).lower(), shape_of(tensor))
    return inputs


def _random_array(rng: np.random.Generator, dtype: str, shape: tuple[int, ...]) -> npt.NDArray[Any]:
    if dtype.startswith("float"):
        return np.asarray(rng.standard_normal(shape), dtype=dtype)
    if dtype in ("int8", "uint8", "int16", "uint16"):
        limits = np.iinfo(dtype)
        return rng.integers(limits.min, limits.max, size=shape, endpoint=True, dtype=dtype)
    try:
        return np.asarray(rng.integers(0, 2, size=shape), dtype=dtype)
    except TypeError:
        raise RuntimeRefused(f"an input is of type {dtype.upper()}, for which no random data is made here") from None


def run_on_micro(
    data: bytes, inputs: Inputs, *, arena_bytes: int | None = None, repeats: int = 5, find_smallest: bool = False
) -> MicroRun:
    """Run a model on the TensorFlow Lite Micro that is installed.

    Args:
        data: The .tflite file.
        inputs: What ``random_inputs`` makes.
        arena_bytes: Size of the arena; None for plenty.
        repeats: Inferences that are timed, beyond one per set of inputs.
        find_smallest: Whether to find the smallest arena that is enough.

    Raises:
        MissingDependency: ``tflite-micro`` is not installed.
        RuntimeRefused: It does not take the model.
    """
    if not _is_installed("tflite_micro"):
        raise MissingDependency("tflite-micro", extra="tflite", needed_for="running on TensorFlow Lite Micro")
    file = parse_tflite(data, "the model")
    if arena_bytes is None:
        arena_bytes = _SPARE_SHARE * micro_arena(file).head_bytes + _SPARE_BYTES
    request = {"arena_bytes": arena_bytes, "repeats": repeats, "num_outputs": len(file.subgraph.outputs)}
    answer, outputs, printed = _run("micro", data, inputs, request)
    sizes = {part: int(size) for part, size in _ALLOCATION.findall(printed)}
    if not {"head", "tail"} <= sizes.keys():
        raise RuntimeRefused(f"TensorFlow Lite Micro did not say what its arena holds: {_tail(printed)}")
    smallest_bytes = None
    if find_smallest:
        start_bytes = sizes["head"] + sizes["tail"]
        smallest_bytes = _run("micro", data, {}, {"smallest_from_bytes": start_bytes})[0]["smallest_bytes"]
    return MicroRun(outputs, sizes["head"], sizes["tail"], smallest_bytes, answer["seconds"])


def run_on_litert(data: bytes, inputs: Inputs, *, delegate: bool = False, repeats: int = 5) -> LitertRun:
    """Run a model on the LiteRT that is installed.

    Args:
        data: The .tflite file.
        inputs: What ``random_inputs`` makes.
        delegate: Whether XNNPACK takes what it can; without it, every operator has LiteRT's own kernel.
        repeats: Inferences that are timed, beyond one per set of inputs.

    Raises:
        MissingDependency: ``ai-edge-litert`` is not installed.
        RuntimeRefused: It does not take the model.
    """
    if not _is_installed("ai_edge_litert"):
        raise MissingDependency("ai-edge-litert", extra="tflite", needed_for="running on LiteRT")
    answer, outputs, _ = _run("litert", data, inputs, {"delegate": delegate, "repeats": repeats})
    return LitertRun(outputs, answer["arena_bytes"], answer["seconds"])


def _is_installed(package: str) -> bool:
    return importlib.util.find_spec(package) is not None


def _run(
    runtime: str, data: bytes, inputs: Inputs, request: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, npt.NDArray[Any]], str]:
    """Run the child; return its answer, its outputs, and what it printed to stderr."""
    with tempfile.TemporaryDirectory(prefix="lowtide-tflite-") as name:
        folder = Path(name)
        (folder / "model.tflite").write_bytes(data)
        (folder / "request.json").write_text(json.dumps(request), encoding="utf-8")
        np.savez(folder / "inputs.npz", **inputs)  # type: ignore[arg-type]  # named arrays, which the stub forgets
        try:
            answer = run_runtime(_CHILD, folder, arguments=[runtime], last_words=_tail)
        except NoAnswer as error:
            raise RuntimeRefused(f"{_NAMES[runtime]} {error}") from None
        with np.load(folder / "outputs.npz") as stored:
            outputs = {key: stored[key] for key in stored.files}
    return answer.fields, outputs, answer.printed


def _tail(printed: str) -> str:
    """What a runtime said, in one line: its own lines, without Python's traceback."""
    said: Sequence[str] = printed.split("Traceback (most recent call last)", maxsplit=1)[0].split("\n")
    said = [line.strip() for line in said if line.strip() and not line.startswith(("INFO:", "WARNING:"))]
    if not said:
        said = [line.strip() for line in printed.splitlines() if line.strip()][-1:]
    return "; ".join(said)[:400]
