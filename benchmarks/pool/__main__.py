"""``python -m benchmarks.pool``: CPU time per call of the pool at 100 to 100,000 blocks, one JSON line per row.

The C++ core is measured by a program of its own (``churn.cpp``, compiled with ``$CXX`` or ``g++``), since a call from
Python costs more than the pool itself; the Python pools are measured beside it. Takes half a minute.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.machine import describe_run
from lowtide.pool.native import NativePool
from lowtide.pool.reference import ReferencePool

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
RESULTS = HERE.parent / "results" / "pool.jsonl"
NUM_BLOCKS = (100, 1_000, 10_000, 100_000)
LARGEST_REFERENCE = 1_000


def main() -> int:
    """Measure the core, then both Python pools."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.pool", description=__doc__)
    parser.add_argument("--calls", type=int, default=1_000_000, metavar="N", help="of the core (default 1,000,000)")
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="the fastest of N counts (default 3)")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, metavar="FILE", help=f"default: {RESULTS}")
    options = parser.parse_args()
    rows = fastest([row for _ in range(options.rounds) for row in core_rows(options.calls)])
    for num_blocks in NUM_BLOCKS:
        rows.append(python_row(NativePool, num_blocks, num_calls=40_000))
        if num_blocks <= LARGEST_REFERENCE:
            rows.append(python_row(ReferencePool, num_blocks, num_calls=1_000))
    lines = [{**describe_run("pool"), "num_rounds": options.rounds}, *rows]
    options.output.parent.mkdir(parents=True, exist_ok=True)
    options.output.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    print(table(rows))
    print(options.output)
    return 0


def core_rows(num_calls: int) -> list[dict[str, Any]]:
    """What ``churn.cpp`` measures."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "churn"
        compiler = [os.environ.get("CXX", "g++"), "-std=c++20", "-O3", f"-I{ROOT / 'native' / 'include'}"]
        subprocess.run([*compiler, str(HERE / "churn.cpp"), "-o", str(program)], check=True)
        command = [str(program), str(num_calls), *map(str, NUM_BLOCKS)]
        output = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return [{"record": "row", "pool": "core", **json.loads(line)} for line in output.splitlines()]


def fastest(rows: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Of rows that differ in time only, the one of least time."""
    best: dict[tuple[str, int], dict[str, Any]] = {}
    for row in rows:
        key = (row["calls"], row["num_blocks"])
        if key not in best or row["cpu_ns_per_call"] < best[key]["cpu_ns_per_call"]:
            best[key] = row
    return list(best.values())


def python_row(make: type[NativePool] | type[ReferencePool], num_blocks: int, *, num_calls: int) -> dict[str, Any]:
    """Free a random block and allocate another, through the protocol."""
    rng = random.Random(7)
    pool = make(capacity_bytes=64 * 1024 * num_blocks)
    live = [f"v{index}" for index in range(num_blocks)]
    for owner in live:
        pool.allocate(owner, size_bytes=64 * rng.randint(1, 64))
    draws = [(rng.randrange(num_blocks), 64 * rng.randint(1, 64)) for _ in range(num_calls // 2)]
    started = time.process_time()
    for owner, size_bytes in draws:
        pool.free(live[owner])
        pool.allocate(live[owner], size_bytes=size_bytes)
    seconds = time.process_time() - started
    return {
        "record": "row",
        "pool": make.__name__,
        "calls": "best fit: free, allocate",
        "num_blocks": len(pool.blocks()),
        "num_calls": num_calls,
        "cpu_ns_per_call": round(1e9 * seconds / num_calls, 1),
    }


def table(rows: Sequence[dict[str, Any]]) -> str:
    """The rows for people."""
    lines = [f"{'pool':<14} {'calls':<26} {'blocks':>8} {'CPU ns per call':>16}"]
    lines += [
        f"{row['pool']:<14} {row['calls']:<26} {row['num_blocks']:>8,} {row['cpu_ns_per_call']:>16,.0f}" for row in rows
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
