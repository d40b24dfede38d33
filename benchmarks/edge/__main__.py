"""``python -m benchmarks.edge``: .tflite models before and after, on TensorFlow Lite Micro and LiteRT.

One JSON line per model, then a table. Downloads mediapipe's wheel (35 MB) by pip, once, and keeps its models in a cache
folder outside the repository. Needs the extra ``tflite``.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import json
import os
import platform
import sys
import tempfile
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

from benchmarks.edge.models import WHEEL, Model, mediapipe_models
from benchmarks.edge.nets import built_nets
from benchmarks.edge.rows import Row, measure_model, table

RESULTS = Path(__file__).parents[1] / "results" / "edge_tflite.jsonl"
CACHE = Path(tempfile.gettempdir()) / "lowtide-benchmark-edge"


def main() -> int:
    """Measure every model."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.edge", description=__doc__)
    parser.add_argument("--only", metavar="TEXT", default="", help="only models whose name holds this")
    parser.add_argument("--cache", type=Path, default=CACHE, metavar="DIR", help=f"for downloads; default: {CACHE}")
    parser.add_argument("--offline", action="store_true", help="only nets that are built here")
    parser.add_argument("--seconds", type=float, default=10.0, metavar="S", help="of each search (default 10)")
    parser.add_argument("--repeats", type=int, default=7, metavar="N", help="inferences that are timed (default 7)")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of planner and inputs")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, metavar="FILE", help=f"default: {RESULTS}")
    options = parser.parse_args()
    rows: list[Row] = []
    options.output.parent.mkdir(parents=True, exist_ok=True)
    with options.output.open("w", encoding="utf-8") as results:
        print(json.dumps(describe_run(options)), file=results)
        for origin, model in models(options):
            rows.append(
                measure_model(
                    model.name,
                    model.for_micro or model.data,
                    origin=origin,
                    changes=model.changes,
                    seconds=options.seconds,
                    repeats=options.repeats,
                    seed=options.seed,
                )
            )
            print(json.dumps(rows[-1]), file=results, flush=True)
            print(table(rows[-1:]).splitlines()[-1], file=sys.stderr, flush=True)
    print(table(rows))
    print(options.output)
    return 0


def models(options: argparse.Namespace) -> Iterator[tuple[str, Model]]:
    """Real ones, then built ones."""
    if not options.offline:
        for model in mediapipe_models(options.cache, options.only):
            yield WHEEL, model
    for name, data in built_nets(options.only).items():
        yield "built, random weights", Model(name, data, None, ())


def describe_run(options: argparse.Namespace) -> dict[str, object]:
    """What one must know to run it again."""
    return {
        "record": "run",
        "format": "lowtide.benchmark.edge_tflite",
        "version": 1,
        "started": datetime.now(UTC).isoformat(timespec="seconds"),
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "num_cores": len(os.sched_getaffinity(0)),
        "load_average_at_start": [round(load, 2) for load in os.getloadavg()],
        "python": platform.python_version(),
        "packages": {name: importlib.metadata.version(name) for name in ("tflite-micro", "ai-edge-litert", "numpy")},
        "seconds": options.seconds,
        "repeats": options.repeats,
        "seed": options.seed,
    }


if __name__ == "__main__":
    raise SystemExit(main())
