"""Layouters on address-assignment instances (CSV: id,lower,upper,size) and on plans of graphs.

    python benchmarks/planner/layouts.py --instances DIR [--capacity 1048576] [--time-limit 60]
    python benchmarks/planner/layouts.py --graphs DIR --budgets 100%,80%,50%

Instances of google/minimalloc have this form (half-open lifespans); none are shipped with lowtide.
"""

from __future__ import annotations

import argparse
import csv
import time
from pathlib import Path

import lowtide
from lowtide.ir import Interval, Lifespan
from lowtide.ir.serde import load_graph
from lowtide.layouts.protocol import Layouter, LayoutRequest
from lowtide.layouts.table import LAYOUTERS, layouter_named
from lowtide.referee import replay


def read_instance(path: Path) -> tuple[Lifespan, ...]:
    """Read one instance: a row per buffer, lower and upper step half-open, size in bytes."""
    with path.open(encoding="utf-8", newline="") as file:
        return tuple(
            Lifespan(row["id"], 0, Interval(int(row["lower"]), int(row["upper"])), int(row["size"]))
            for row in csv.DictReader(file)
        )


def peak_of(lifespans: tuple[Lifespan, ...]) -> int:
    """Largest sum of sizes at one step."""
    changes = [(span.interval.start, span.size_bytes) for span in lifespans]
    changes += [(span.interval.end, -span.size_bytes) for span in lifespans]
    peak = live = 0
    for _, change in sorted(changes):  # what ends goes before what begins
        live += change
        peak = max(peak, live)
    return peak


def measure(layouter: Layouter, request: LayoutRequest, label: str) -> None:
    """Place once and print one line."""
    started = time.perf_counter()
    proposal = layouter.place(request)
    seconds = time.perf_counter() - started
    footprint, peak = proposal.layout.footprint_bytes, peak_of(request.lifespans)
    verdict = ""
    if request.capacity_bytes is not None:
        verdict = "fits" if footprint <= request.capacity_bytes else "does not fit"
    print(
        f"{label:32} {len(request.lifespans):6} {layouter.name:9} peak {peak:12} footprint {footprint:12} "
        f"(+{100 * (footprint / peak - 1) if peak else 0:.2f} %) {seconds:7.3f} s {verdict}",
        flush=True,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--instances", type=Path, help="folder of CSV files")
    parser.add_argument("--graphs", type=Path, help="folder of graph.json files")
    parser.add_argument("--budgets", default="100%,80%,60%,50%", help="of each graph, for live bytes")
    parser.add_argument("--capacity", type=int, default=1_048_576, help="bytes, of every instance")
    parser.add_argument("--time-limit", type=float, default=60.0, help="seconds per layout")
    parser.add_argument("--layouts", default=",".join(sorted(LAYOUTERS)), help="names")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    layouters = [layouter_named(name) for name in options.layouts.split(",")]
    for path in sorted(options.instances.glob("*.csv")) if options.instances else ():
        for layouter in layouters:
            request = LayoutRequest(
                read_instance(path),
                capacity_bytes=options.capacity,
                time_limit_seconds=options.time_limit,
                seed=options.seed,
            )
            measure(layouter, request, path.name)
    for path in sorted(options.graphs.glob("*.json")) if options.graphs else ():
        graph = load_graph(path)
        for budget in options.budgets.split(","):
            result = lowtide.plan(graph, budget=budget, bound=False, layout=None, time_limit_seconds=options.time_limit)
            if result.plan is None:
                print(f"{path.stem + ' ' + budget:32} no plan ({result.status})", flush=True)
                continue
            for layouter in layouters:
                request = LayoutRequest(
                    replay(graph, result.plan.steps).lifespans,
                    alignment=graph.alignment,
                    time_limit_seconds=options.time_limit,
                    seed=options.seed,
                )
                measure(layouter, request, f"{path.stem} {budget}")


if __name__ == "__main__":
    main()
