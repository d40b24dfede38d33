"""``python -m benchmarks.comparison``: ``lowtide compare --measure`` on models; what the files hold is kept.

What each of PyTorch's means took within a budget, and at its least, ``lowtide.compile`` is then given as a budget, too.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable
from pathlib import Path

from benchmarks.training.__main__ import describe_run
from lowtide.cli import main as lowtide
from lowtide.comparison.rows import EAGER

MODELS = ("unet", "gpt2")
BUDGETS = "80%,70%,60%,50%,40%,30%"
RESULTS = Path(__file__).parents[1] / "results"
RUNS = "comparison_runs.jsonl"
OURS = "lowtide.compile"


def results_of(folder: Path, model: str) -> Path:
    """Where the rows of a model are."""
    return folder / f"comparison_{model}.jsonl"


def main() -> int:
    """Compare on every model, one after the other."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.comparison", description=__doc__)
    parser.add_argument("--model", action="append", metavar="NAME", help="of lowtide.models; repeat it; default: all")
    parser.add_argument("--budgets", default=BUDGETS, metavar="B,B,...", help="default: " + BUDGETS.replace("%", "%%"))
    parser.add_argument("--peers", metavar="P,P,...", help="as of lowtide compare; default: all")
    parser.add_argument("--no-measure", action="store_true", help="the cost model alone")
    parser.add_argument("--time-limit", type=float, default=10.0, metavar="S", help="for each planner (default 10)")
    parser.add_argument("-o", "--output", type=Path, default=RESULTS, metavar="FOLDER", help=f"default: {RESULTS}")
    options = parser.parse_args()
    options.output.mkdir(parents=True, exist_ok=True)
    run = {
        **describe_run(argparse.Namespace(threads=1, seed=0, rounds=3), "comparison"),
        "models": options.model or MODELS,
        "peers": options.peers,
        "is_measured": not options.no_measure,
    }
    with (options.output / RUNS).open("a", encoding="utf-8") as runs:
        print(json.dumps(run), file=runs)
    for model in options.model or MODELS:
        path = results_of(options.output, model)
        shared = ["compare", f"model:{model}", "--time-limit", str(options.time_limit), "-o", str(path)]
        measure = [] if options.no_measure else ["--measure"]
        peers = [] if options.peers is None else ["--peers", options.peers]
        code = lowtide([*shared, "--budgets", options.budgets, *measure, *peers])
        if code:
            return code
        if measure and (taken := budgets_that_peers_took(path.read_text(encoding="utf-8").splitlines()[1:])):
            few = ["--planners", "greedy", "--policies", "coop", "--peers", OURS]
            code = lowtide([*shared, "--budgets", ",".join(taken), *measure, *few])
            if code:
                return code
    return 0


def budgets_that_peers_took(lines: Iterable[str]) -> list[str]:
    """Peaks of what is not lowtide, in tenths of a percent of eager's, rounded down; none where eager has not run.

    Args:
        lines: The rows of a comparison, as JSON.
    """
    rows = [row for row in map(json.loads, lines) if row["kind"] == "measured" and row["outcome"] == "completed"]
    eager_bytes = next((row["peak_bytes"] for row in rows if row["method"] == EAGER), None)
    if eager_bytes is None:
        return []
    taken = {1000 * row["peak_bytes"] // eager_bytes for row in rows if not row["method"].startswith("lowtide")}
    return [f"{tenths / 10:g}%" for tenths in sorted(taken, reverse=True) if tenths < 1000]


if __name__ == "__main__":
    sys.exit(main())
