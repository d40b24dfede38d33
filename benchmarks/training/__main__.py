"""``python -m benchmarks.training``: measure, and write one JSON line per contender and round."""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

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


def describe_run(options: argparse.Namespace) -> dict[str, Any]:
    """What one must know to run it again: machine, versions, threads, seed."""
    return {
        "record": "run",
        "format": "lowtide.benchmark.training",
        "version": 1,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "commit": _commit(),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "processor": _processor(),
        "num_cores": len(os.sched_getaffinity(0)),
        "load_average_at_start": [round(load, 2) for load in os.getloadavg()],
        "python": platform.python_version(),
        "packages": {package: metadata.version(package) for package in _PACKAGES},
        "num_threads": options.threads,
        "seed": options.seed,
        "num_rounds": options.rounds,
        "optimizer": "sgd, momentum 0.9",
        "dtype": "float32",
    }


def _commit() -> str:
    done = subprocess.run(
        ["git", "describe", "--always", "--dirty"],
        cwd=Path(__file__).parent,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.stdout.strip() or "unknown"


def _processor() -> str:
    for line in Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines():
        if line.startswith("model name"):
            return line.partition(":")[2].strip()
    return platform.processor() or "unknown"


if __name__ == "__main__":
    sys.exit(main())
