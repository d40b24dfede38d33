"""``python -m benchmarks.planner.capturing MODEL FILE``: a training graph of ``lowtide.models``, captured into a file.

MODEL is ``name?option=number&...``, the options whole numbers: ``gpt2?depth=24``. A program of its own, since torch
stays in memory once it is there.
"""

from __future__ import annotations

import argparse
import importlib
from pathlib import Path

import lowtide
from lowtide.ir.serde import save_graph


def capture_model(spec: str, *, costs: str) -> lowtide.Graph:
    """Capture one training step of a model.

    Raises:
        ValueError: There is no such model.
    """
    name, _, query = spec.partition("?")
    models = importlib.import_module("lowtide.models")
    if name not in models.__all__ or not name.islower():
        raise ValueError(f"there is no model {name!r} in lowtide.models")
    options = {key: int(number) for key, _, number in (item.partition("=") for item in query.split("&") if query)}
    model, inputs, loss_function = getattr(models, name)(**options)
    return lowtide.capture(model, inputs, loss=loss_function, costs=costs)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.planner.capturing", description=__doc__)
    parser.add_argument("model", metavar="MODEL")
    parser.add_argument("file", metavar="FILE", type=Path)
    parser.add_argument("--costs", choices=("profiled", "estimated"), default="profiled")
    options = parser.parse_args()
    graph = capture_model(options.model, costs=options.costs)
    options.file.parent.mkdir(parents=True, exist_ok=True)
    save_graph(graph, options.file)
    print(f"{options.file}: {len(graph.nodes)} nodes")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
