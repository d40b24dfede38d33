"""``python -m benchmarks.training.bounds``: what no plan can beat at checkpoint's peak, added to the result file.

Each model is captured with profiled costs, and the bound of its order of first executions is proven for the budget at
which ``python -m benchmarks.training`` compared lowtide with checkpoint. Bounds that the file has are replaced.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch

import lowtide
import lowtide.models
from benchmarks.jsonl import read_jsonl
from benchmarks.training.course import AT_CHECKPOINT_PEAK
from lowtide.planners.bounds import best_bound

RESULTS = Path(__file__).parents[1] / "results" / "training.jsonl"


def main() -> int:
    """Prove one bound per model."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training.bounds", description=__doc__)
    parser.add_argument("--seconds", type=float, default=120.0, metavar="S", help="for each bound (default 120)")
    parser.add_argument("--results", type=Path, default=RESULTS, metavar="FILE", help=f"default: {RESULTS}")
    options = parser.parse_args()
    records = read_jsonl(options.results)
    kept = [record for record in records if record["record"] != "bound"]
    (num_threads,) = {record["num_threads"] for record in kept if record["record"] == "run"}
    torch.set_num_threads(num_threads)
    bounds = [
        bound_record(record["model"], record["budget_bytes"], seconds=options.seconds)
        for record in kept
        if record["record"] == "contender" and record["setting"] == AT_CHECKPOINT_PEAK and "error" not in record
    ]
    options.results.write_text("".join(json.dumps(record) + "\n" for record in [*kept, *bounds]), encoding="utf-8")
    return 0


def bound_record(model: str, budget_bytes: int, *, seconds: float) -> dict[str, Any]:
    """Capture a model of ``lowtide.models`` and prove how much longer than plain its shortest plan takes."""
    module, inputs, loss = getattr(lowtide.models, model)()
    graph = lowtide.capture(module, inputs, loss=loss)
    started = time.perf_counter()
    bound = best_bound(graph, budget_bytes, time_limit_seconds=seconds)
    if bound is None or bound.is_infeasible:
        raise RuntimeError(f"{model} has a plan within {budget_bytes} bytes, and {bound} says otherwise")
    tdi_percent = 100 * (bound.duration - graph.baseline_duration) / graph.baseline_duration
    print(f"{model}: at least {tdi_percent:.2f} %, {time.perf_counter() - started:.0f} s", file=sys.stderr)
    return {
        "record": "bound",
        "model": model,
        "budget_bytes": budget_bytes,
        "lower_bound_tdi_percent": round(tdi_percent, 3),
        "seconds": round(time.perf_counter() - started, 1),
    }


if __name__ == "__main__":
    raise SystemExit(main())
