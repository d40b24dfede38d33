"""``python -m benchmarks.training``: measure, and write one JSON line per contender and round."""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks import machine
from lowtide.measure import measure_in_subprocess

MODELS = ("unet", "resnet50_like", "gpt2", "bert", "swin")
RESULTS = Path(__file__).parents[1] / "results" / "training.jsonl"
_PACKAGES = ("lowtide", "torch", "transformers", "numpy")
_TIMEOUT_SECONDS = 3600.0


def main() -> int:
    """Run every model's course in a process of its own."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.training", description=__doc__)
    parser.add_argument("--model", action="append", metavar="NAME", help="of lowtide.models; repeat it; default: all")
    parser.add_argument("--peer", action="append", metavar="NAME", help="beside eager; repeat it; default: all")
    parser.add_argument("--rounds", type=int, default=5, metavar="N", help="timed steps of each contender (default 5)")
    parser.add_argument("--threads", type=int, default=1, metavar="N", help="threads of torch (default 1)")
    parser.add_argument("--seed", type=int, default=0, metavar="N")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, metavar="FILE", help=f"default: {RESULTS}")
    options = parser.parse_args()
    lines: list[dict[str, Any]] = [describe_run(options)]
    for model in options.model or MODELS:
        started = time.perf_counter()
        course: dict[str, Any] = {"num_rounds": options.rounds, "num_threads": options.threads, "seed": options.seed}
        course["peers"] = options.peer
        answer = measure_in_subprocess(
            "benchmarks.training.course:run_course",
            kwargs={"model": model, **course},
            timeout_seconds=_TIMEOUT_SECONDS,
        )
        lines += answer["records"]
        # After each model: what is measured is kept, whatever happens to the next.
        options.output.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
        print(f"{model}: {len(answer['records'])} records, {time.perf_counter() - started:.0f} s", file=sys.stderr)
    print(options.output)
    return 0


def describe_run(options: argparse.Namespace, kind: str = "training") -> dict[str, Any]:
    """What one must know to run it again; of whoever trains as this benchmark does."""
    return {
        **machine.describe_run(kind, packages=_PACKAGES),
        "num_threads": options.threads,
        "seed": options.seed,
        "num_rounds": options.rounds,
        "optimizer": "sgd, momentum 0.9",
        "dtype": "float32",
    }


if __name__ == "__main__":
    sys.exit(main())
