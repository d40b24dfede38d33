"""What ``tflite_run`` starts: ``python -m lowtide.emit.tflite_child RUNTIME FOLDER``.

FOLDER has ``model.tflite``, ``request.json`` and ``inputs.npz`` (``set_input``, one array each: ``0_1`` is input 1 of
set 0); ``outputs.npz`` and ``answer.json`` are written into it. TensorFlow Lite Micro prints its allocations to stderr,
which the parent reads. A process of its own, because a kernel that is handed nonsense ends the process.
"""

from __future__ import annotations

import importlib
import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["MICRO_MODULE", "main"]

MICRO_MODULE = "tflite_micro.python.tflite_micro.runtime"
_STEP_BYTES = 16
_CLUSTER_GAP_BYTES = 4096
Array = npt.NDArray[Any]


def main(arguments: Sequence[str]) -> None:
    """Run the model of a folder on a runtime, and write what came of it."""
    runtime, folder = arguments[0], Path(arguments[1])
    model = (folder / "model.tflite").read_bytes()
    request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    with np.load(folder / "inputs.npz") as stored:
        inputs = {name: stored[name] for name in stored.files}
    answer, outputs = (_run_micro if runtime == "micro" else _run_litert)(model, inputs, request)
    np.savez(folder / "outputs.npz", **outputs)  # type: ignore[arg-type]  # named arrays, which the stub forgets
    (folder / "answer.json").write_text(json.dumps(answer), encoding="utf-8")


def _run_micro(
    model: bytes, inputs: Mapping[str, Array], request: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Array]]:
    interpreter_class = importlib.import_module(MICRO_MODULE).Interpreter

    def interpreter(arena_bytes: int) -> Any:
        return interpreter_class.from_bytes(model, arena_size=arena_bytes)

    def fits(arena_bytes: int) -> bool:
        try:
            interpreter(arena_bytes)
        except RuntimeError:
            return False
        return True

    if "smallest_from_bytes" in request:
        return {"smallest_bytes": _smallest(fits, request["smallest_from_bytes"])}, {}
    running = interpreter(request["arena_bytes"])

    def infer(arrays: Sequence[Array]) -> list[Array]:
        for index, array in enumerate(arrays):
            running.set_input(array, index)
        running.invoke()
        return [np.array(running.get_output(index)) for index in range(request["num_outputs"])]

    seconds, outputs = _infer_all(infer, inputs, request["repeats"])
    running.print_allocations()
    return {"seconds": seconds}, outputs


def _run_litert(
    model: bytes, inputs: Mapping[str, Array], request: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Array]]:
    litert = importlib.import_module("ai_edge_litert.interpreter")
    resolvers = litert.OpResolverType
    interpreter = litert.Interpreter(
        model_content=model,
        num_threads=1,
        experimental_op_resolver_type=resolvers.AUTO
        if request["delegate"]
        else resolvers.BUILTIN_WITHOUT_DEFAULT_DELEGATES,
    )
    interpreter.allocate_tensors()
    input_indices = [detail["index"] for detail in interpreter.get_input_details()]
    output_indices = [detail["index"] for detail in interpreter.get_output_details()]

    def infer(arrays: Sequence[Array]) -> list[Array]:
        for index, array in zip(input_indices, arrays, strict=True):
            interpreter.set_tensor(index, array)
        interpreter.invoke()
        return [np.array(interpreter.get_tensor(index)) for index in output_indices]

    seconds, outputs = _infer_all(infer, inputs, request["repeats"])
    return {"seconds": seconds, "arena_bytes": _span_bytes(interpreter, input_indices)}, outputs


def _infer_all(
    infer: Callable[[Sequence[Array]], list[Array]], inputs: Mapping[str, Array], repeats: int
) -> tuple[float, dict[str, Array]]:
    """Outputs for every set of inputs, and the shortest processor time of a warm inference."""
    outputs: dict[str, Array] = {}
    sets = sorted({int(name.split("_")[0]) for name in inputs})
    for number in sets:
        for index, output in enumerate(infer(_input_set(inputs, number))):
            outputs[f"{number}_{index}"] = output
    durations = []
    for _ in range(repeats):
        started = time.process_time()
        infer(_input_set(inputs, sets[0]))
        durations.append(time.process_time() - started)
    return min(durations, default=0.0), outputs


def _input_set(inputs: Mapping[str, Array], number: int) -> list[Array]:
    names = [name for name in inputs if name.split("_")[0] == str(number)]
    return [inputs[name] for name in sorted(names, key=lambda name: int(name.split("_")[1]))]


def _smallest(fits: Callable[[int], bool], start_bytes: int) -> int:
    """The smallest multiple of 16 bytes that fits, by bisection; ``start_bytes`` is a good guess."""
    high = -(-start_bytes // _STEP_BYTES) * _STEP_BYTES
    step = _STEP_BYTES
    while not fits(high):
        high += step
        step *= 2
    low, step = high - _STEP_BYTES, _STEP_BYTES
    while low > 0 and fits(low):
        high = low
        step *= 2
        low = high - step
    while high - low > _STEP_BYTES:
        middle = (low + high) // 2 // _STEP_BYTES * _STEP_BYTES
        low, high = (low, middle) if fits(middle) else (middle, high)
    return high


def _span_bytes(interpreter: Any, input_indices: Sequence[int]) -> int:
    """Bytes between the lowest and the highest address of the tensors that lie together with the inputs."""
    spans = []
    for detail in interpreter.get_tensor_details():
        try:
            array = interpreter.tensor(detail["index"])()
        except ValueError:  # a tensor without memory of its own
            continue
        spans.append((array.ctypes.data, array.ctypes.data + array.nbytes))
    home = interpreter.tensor(input_indices[0])().ctypes.data if input_indices else 0
    low = high = None
    for start, end in sorted(spans):
        if high is None or start > high + _CLUSTER_GAP_BYTES:
            if low is not None and high is not None and low <= home < high:
                break
            low, high = start, end
        high = max(high, end)
    return 0 if low is None or high is None else high - low


if __name__ == "__main__":
    main(sys.argv[1:])
