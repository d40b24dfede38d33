"""What ``onnx_check`` runs under the malloc meter: one model, once for its memory, several times for its time."""

from __future__ import annotations

import importlib
import time
from collections.abc import Mapping
from typing import Any

import numpy as np

from lowtide.emit.onnx_session import onnx_session_options
from lowtide.importers.onnx_options import LEVELS, random_feeds
from lowtide.measure import active_meter

__all__ = ["measure_model"]


def measure_model(
    *, model_file: str, outputs_file: str, how: str, threads: int, num_sets: int, seed: int, repeats: int
) -> dict[str, Any]:
    """Run a model under the meter.

    Args:
        model_file: The .onnx file.
        outputs_file: Outputs are written into this .npz, as ``set/name``.
        how: ``"default"``: under ONNX Runtime's own options; or one of ``LEVELS``: as ``onnx_session`` does, optimised
            to that level first.
        threads: Threads within a node.
        num_sets: Sets of random inputs.
        seed: Of the first set.
        repeats: Runs that are timed.

    Returns:
        ``session_bytes`` held by the open session, ``run_bytes`` on top of that at the peak of a run, inputs included,
        and ``seconds`` of processor time of a run, the shortest of several.
    """
    ort = importlib.import_module("onnxruntime")
    meter = active_meter()
    before_bytes = meter.live_bytes()
    session = ort.InferenceSession(model_file, _options(ort, how, threads), providers=["CPUExecutionProvider"])
    session_bytes = meter.live_bytes() - before_bytes
    held_bytes = meter.live_bytes()
    outputs: dict[str, Any] = {}
    run_bytes = 0
    feeds: Mapping[str, Any] = {}
    for number in range(num_sets):
        feeds = random_feeds(session.get_inputs(), seed=seed + number)
        input_bytes = sum(array.nbytes for array in feeds.values())
        if number == 0:
            held_bytes = meter.reset_peak()
        found = _run(ort, session, feeds)
        if number == 0:
            run_bytes = meter.peak_bytes() - held_bytes + input_bytes
        names = [output.name for output in session.get_outputs()]
        outputs.update({f"{number}/{name}": value.numpy() for name, value in zip(names, found, strict=True)})
        del found
    np.savez(outputs_file, **outputs)
    durations = []
    for _ in range(repeats):
        started = time.process_time()
        _run(ort, session, feeds)
        durations.append(time.process_time() - started)
    return {
        "session_bytes": session_bytes,
        "run_bytes": run_bytes,
        "seconds": min(durations, default=0.0),
    }


def _options(ort: Any, how: str, threads: int) -> Any:
    if how == "default":
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.log_severity_level = 3
        return options
    options = onnx_session_options(threads=threads)
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, LEVELS[how])
    return options


def _run(ort: Any, session: Any, feeds: Mapping[str, Any]) -> list[Any]:
    """Run with bound inputs and outputs, so that Python copies nothing."""
    binding = session.io_binding()
    values = {name: ort.OrtValue.ortvalue_from_numpy(array) for name, array in feeds.items()}
    for name, value in values.items():
        binding.bind_ortvalue_input(name, value)
    for output in session.get_outputs():
        binding.bind_output(output.name, "cpu")
    session.run_with_iobinding(binding)
    return list(binding.get_outputs())
