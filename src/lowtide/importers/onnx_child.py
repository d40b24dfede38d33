"""What ``onnx_run`` starts: ``python -m lowtide.importers.onnx_child FOLDER``.

FOLDER has ``model.onnx`` and ``request.json``; ``optimised.onnx`` and ``answer.json`` are written into it: what ONNX
Runtime makes of the model, the type and shape of every value of that, and how long each node takes. A process of its
own, because a model that is nonsense can end it.
"""

from __future__ import annotations

import importlib
import json
import resource
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from lowtide.importers.onnx_options import UnsuitableModel, execution_options, random_feeds

__all__ = ["main"]

_NUM_PROFILED = 3
_NS_BY_US = 1000


def main(folder: Path) -> None:
    """Optimise the model of a folder, run the result, and write what it is made of."""
    request = json.loads((folder / "request.json").read_text(encoding="utf-8"))
    _limit_memory(request["memory_bytes"])
    answer: dict[str, Any]
    try:
        answer = _observe(folder, request)
    except UnsuitableModel as error:
        answer = {"refusal": str(error)}
    (folder / "answer.json").write_text(json.dumps(answer), encoding="utf-8")


def _observe(folder: Path, request: Mapping[str, Any]) -> dict[str, Any]:
    ort = importlib.import_module("onnxruntime")
    optimised = folder / "optimised.onnx"
    options = ort.SessionOptions()
    options.graph_optimization_level = getattr(ort.GraphOptimizationLevel, request["level"])
    options.optimized_model_filepath = str(optimised)
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    _session(ort, folder / "model.onnx", options)
    values = _values(ort, folder, optimised, request["seed"])
    return {
        "version": ort.__version__,
        "values": values,
        "durations": _durations(ort, folder, optimised, request["seed"]),
    }


def _session(ort: Any, path: Path, options: Any) -> Any:
    return ort.InferenceSession(str(path), options, providers=["CPUExecutionProvider"])


def _values(ort: Any, folder: Path, optimised: Path, seed: int) -> dict[str, Any]:
    """Type and shape of every value that a node of the graph makes, by running with all of them as outputs."""
    onnx = importlib.import_module("onnx")
    model = onnx.load(str(optimised))
    kept = {output.name for output in model.graph.output}
    names = dict.fromkeys(name for node in model.graph.node for name in node.output if name)
    model.graph.output.extend(onnx.ValueInfoProto(name=name) for name in names if name not in kept)
    watched = folder / "watched.onnx"
    onnx.save(model, str(watched))
    session = _session(ort, watched, execution_options(ort, threads=1))
    feeds = random_feeds(session.get_inputs(), seed=seed)
    wanted = [output.name for output in session.get_outputs()]
    found: dict[str, Any] = {name: _described(name, array) for name, array in feeds.items()}
    for name, array in zip(wanted, session.run(wanted, feeds), strict=True):
        found[name] = _described(name, array)
    return found


def _described(name: str, value: object) -> dict[str, Any]:
    if isinstance(value, np.generic):
        value = np.asarray(value)
    if not isinstance(value, np.ndarray) or value.dtype == object:
        raise UnsuitableModel(f"value {name!r:.80} is no tensor of numbers: sequences, maps and text are not planned")
    return {"shape": list(value.shape), "dtype": str(value.dtype), "size_bytes": int(value.nbytes)}


def _durations(ort: Any, folder: Path, optimised: Path, seed: int) -> dict[str, int]:
    """Nanoseconds of each node by its position, the shortest of several runs, as ONNX Runtime's profiler sees it."""
    options = execution_options(ort, threads=1)
    options.enable_profiling = True
    options.profile_file_prefix = str(folder / "profile")
    session = _session(ort, optimised, options)
    feeds = random_feeds(session.get_inputs(), seed=seed)
    for _ in range(_NUM_PROFILED):
        session.run(None, feeds)
    shortest: dict[str, int] = {}
    for event in json.loads(Path(session.end_profiling()).read_text(encoding="utf-8")):
        if event.get("cat") != "Node" or not event.get("name", "").endswith("_kernel_time"):
            continue
        index = str(event["args"].get("node_index", ""))
        duration = max(1, int(event["dur"])) * _NS_BY_US
        shortest[index] = min(duration, shortest.get(index, duration))
    return shortest


def _limit_memory(memory_bytes: int | None) -> None:
    """Let an allocation of absurd size fail instead of taking the machine down."""
    if memory_bytes is not None:
        hard = resource.getrlimit(resource.RLIMIT_AS)[1]
        limit = memory_bytes if hard == resource.RLIM_INFINITY else min(memory_bytes, hard)
        resource.setrlimit(resource.RLIMIT_AS, (limit, hard))


if __name__ == "__main__":
    main(Path(sys.argv[1]))
