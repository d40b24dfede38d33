"""How ONNX Runtime is told to execute a file as it is written, and what random data a model is run with."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["LEVELS", "UnsuitableModel", "execution_options", "random_feeds"]

LEVELS = {"portable": "ORT_ENABLE_EXTENDED", "machine": "ORT_ENABLE_ALL", "none": "ORT_DISABLE_ALL"}
"""How far a model is optimised: fusions that run everywhere; layouts for this machine's processor, too; not at all."""

_DTYPE_BY_ORT_TYPE = {
    "tensor(float)": "float32",
    "tensor(double)": "float64",
    "tensor(float16)": "float16",
    "tensor(bool)": "bool",
    **{f"tensor({sign}int{bits})": f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)},
}


class UnsuitableModel(Exception):
    """A model that is not taken; the message is for the user."""


def execution_options(ort: Any, *, threads: int) -> Any:
    """Session options with which ONNX Runtime executes the nodes of a file as they are, one after the other."""
    options = ort.SessionOptions()
    options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
    options.execution_mode = ort.ExecutionMode.ORT_SEQUENTIAL
    options.execution_order = ort.ExecutionOrder.PRIORITY_BASED
    options.enable_mem_reuse = False
    options.enable_cpu_mem_arena = False
    options.enable_mem_pattern = False
    options.log_severity_level = 3
    options.intra_op_num_threads = threads
    return options


def random_feeds(inputs: Sequence[Any], *, seed: int) -> dict[str, npt.NDArray[Any]]:
    """Random arrays for the inputs of a session: normal for floats, 8 bits over their range, other integers 0 and 1."""
    rng = np.random.default_rng(seed)
    feeds: dict[str, npt.NDArray[Any]] = {}
    for wanted in inputs:
        dtype = _DTYPE_BY_ORT_TYPE.get(wanted.type)
        if dtype is None:
            raise UnsuitableModel(f"input {wanted.name!r:.80} is of type {wanted.type}: no random data is made for it")
        shape = tuple(wanted.shape)
        if dtype.startswith("float"):
            feeds[wanted.name] = np.asarray(rng.standard_normal(shape), dtype=dtype)
        elif dtype in ("int8", "uint8"):
            limits = np.iinfo(dtype)
            feeds[wanted.name] = rng.integers(limits.min, limits.max, size=shape, endpoint=True, dtype=dtype)
        else:
            feeds[wanted.name] = np.asarray(rng.integers(0, 2, size=shape), dtype=dtype)
    return feeds
