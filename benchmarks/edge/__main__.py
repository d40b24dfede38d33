"""``python -m benchmarks.edge``: .tflite models before and after, on TensorFlow Lite Micro and LiteRT.

One JSON line per model, then a table. Downloads mediapipe's wheel (35 MB) by pip, once, and keeps its models in a cache
folder outside the repository. Needs the extra ``tflite``. Row bands: ``python -m benchmarks.edge.bands``.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterator
from pathlib import Path

from benchmarks.edge.models import CACHE, all_models
from benchmarks.edge.rows import measure_model, table
from benchmarks.edge.runs import Row, parser_of, write_rows

RESULTS = Path(__file__).parents[1] / "results" / "edge_tflite.jsonl"


def main() -> int:
    """Measure every model."""
    options = parser_of("python -m benchmarks.edge", __doc__, cache=CACHE, results=RESULTS, repeats=7).parse_args()
    packages = ("tflite-micro", "ai-edge-litert", "numpy")
    write_rows(options, rows(options), (table,), kind="edge_tflite", packages=packages)
    return 0


def rows(options: argparse.Namespace) -> Iterator[Row]:
    """One per model."""
    for origin, model in all_models(options.cache, options.only, offline=options.offline):
        yield measure_model(
            model.name,
            model.for_micro or model.data,
            origin=origin,
            changes=model.changes,
            seconds=options.seconds,
            repeats=options.repeats,
            seed=options.seed,
        )


if __name__ == "__main__":
    raise SystemExit(main())
