"""``python -m benchmarks.online.report``: docs/budget-benchmarks.md, from the result file alone.

With ``--check`` nothing is written; exit code 1 if the page does not say what the results do.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from statistics import mean, median, quantiles
from typing import Any

from benchmarks.marked import markdown_table, renew_pages
from lowtide.units import format_bytes

__all__ = ["main", "render"]

_ROOT = Path(__file__).parents[2]
_RESULTS = _ROOT / "benchmarks" / "results" / "online.jsonl"
_PAGE = _ROOT / "docs" / "budget-benchmarks.md"
_TRACKING_HEADER = ("program", "ops a step", "plain eager", "tracked", "step")
_HEADER = ("setting", "arena", "slow-down", "recomputes a step", "evictions a step", "search", "bits")

Record = Mapping[str, Any]


def main() -> int:
    """Write the page, or check it."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.online.report", description=__doc__)
    parser.add_argument("--check", action="store_true", help="write nothing, exit 1 if the page is not up to date")
    parser.add_argument("--results", type=Path, default=_RESULTS, metavar="FILE")
    options = parser.parse_args()
    text = render(options.results.read_text(encoding="utf-8").splitlines())
    return renew_pages({_PAGE: text}, program="benchmarks.online.report", is_check=options.check)


def render(lines: Iterable[str]) -> str:
    """The page's text.

    Args:
        lines: Of a result file: JSON objects. It may hold several runs, of different parts each.
    """
    records = [json.loads(line) for line in lines]
    runs = [record for record in records if record["record"] == "run"]
    run, commits = runs[0], ", ".join(dict.fromkeys(run["commit"] for run in runs))
    parts = [
        "# Benchmarks: training within `lowtide.budget`",
        "",
        (
            "Written by `python -m benchmarks.online.report` from "
            "[benchmarks/results/online.jsonl](../benchmarks/results/online.jsonl), which "
            "`python -m benchmarks.online` writes: every number below is in that file."
        ),
        "",
        (
            f"{run['processor']}, {run['num_cores']} cores, {run['num_threads']} thread, load average "
            f"{run['load_average_at_start'][0]} at the start, torch {run['packages']['torch']}, "
            f"commit {commits}. SGD with momentum. Slow-down: CPU seconds of {run['steps_per_round']} steps by "
            f"those of plain eager in the same round, median of {run['num_rounds']} interleaved rounds "
            "(least and most in brackets). r: budget = P + r (peak - P), P = alive in the arena after "
            "the optimizer's step. Bits: parameters, buffers, gradients, momenta after four steps against plain eager."
        ),
        "",
    ]
    for program in dict.fromkeys(record["program"] for record in records if record["record"] == "setting"):
        parts += _program(program, [record for record in records if record.get("program") == program])
    parts += _tracking([record for record in records if record["record"] == "tracking"])
    parts += _growth([record for record in records if record["record"] == "growth"])
    parts += _endurance([record for record in records if record["record"] == "endurance"])
    parts += ["Which budgets do not fit, by bytes: [operator-hook](decisions/operator-hook.md#consequence).", ""]
    return "\n".join(parts)


def _program(name: str, records: Sequence[Record]) -> list[str]:
    (described,) = [record for record in records if record["record"] == "program"]
    rounds = [record for record in records if record["record"] == "round"]
    kept, peak = (format_bytes(described[key]) for key in ("kept_bytes", "peak_bytes"))
    rows = [_row(record, rounds) for record in records if record["record"] == "setting"]
    return [
        f"## {name}",
        "",
        f"Peak in the arena without a limit {peak}, P {kept}.",
        "",
        *markdown_table(_HEADER, rows),
        "",
    ]


def _row(record: Record, rounds: Sequence[Record]) -> tuple[str, ...]:
    label = record["setting"]
    if "error" in record:
        return (label, format_bytes(record["budget_bytes"]), "out of memory", "", "", "", "")
    ratios = [item["cpu_seconds"][label] / mean(item["eager_cpu_seconds"]) for item in rounds]
    slow_down = f"x{median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
    different = record["num_tensors_different"]
    bits = "equal" if different == 0 else f"{different} of {record['num_tensors_compared']} tensors differ"
    if "num_ops_per_step" not in record:
        return (label, format_bytes(record["peak_bytes"]), slow_down, "", "", "", bits)
    return (
        label,
        format_bytes(record["peak_bytes"]),
        slow_down,
        f"{record['num_recomputes_per_step']:.0f}",
        f"{record['num_evictions_per_step']:.0f}",
        f"{record['mean_search_us']:.0f} us",
        bits,
    )


def _tracking(records: Sequence[Record]) -> list[str]:
    if not records:
        return []
    text = (
        "Steps within a budget that never runs out, against plain eager in turn: what it costs to see, record and "
        "place every op. CPU time by op, medians of the rounds; in brackets the quarter and three quarters."
    )
    lines = [_TRACKING_HEADER, tuple("---" for _ in _TRACKING_HEADER), *map(_tracking_row, records)]
    return ["## Tracking without eviction", "", text, "", *("| " + " | ".join(line) + " |" for line in lines), ""]


def _tracking_row(record: Record) -> tuple[str, ...]:
    plain, tracked, num_ops = record["eager_cpu_seconds"], record["cpu_seconds"], record["num_ops_per_step"]
    added = [1e6 * (with_it - without) / num_ops for without, with_it in zip(plain, tracked, strict=True)]
    low, middle, high = quantiles(added, n=4)
    ratio = median(with_it / without for without, with_it in zip(plain, tracked, strict=True))
    return (
        record["program"],
        f"{num_ops:.0f}",
        f"{1e6 * median(plain) / num_ops:.2f} us",
        f"{middle:+.2f} us ({low:+.2f} to {high:+.2f})",
        f"x{ratio:.3f}",
    )


def _growth(records: Sequence[Record]) -> list[str]:
    if not records:
        return []
    items = [
        f"- {record['program']} at r {record['ratio']}: {format_bytes(record['growth_bytes'])} from malloc beside an "
        f"arena of {format_bytes(record['budget_bytes'])} (allowed: 2 % + 8 MB, "
        f"{format_bytes(record['allowed_bytes'])}); plain eager takes {format_bytes(record['eager_growth_bytes'])}."
        for record in records
    ]
    return ["## Beside the arena", "", *items, ""]


def _endurance(records: Sequence[Record]) -> list[str]:
    if not records:
        return []
    items = [
        f"- {record['num_steps']} steps at r {record['ratio']}: {_range(record['num_cells'])} cells, "
        f"{_range(record['num_records'])} records and {_range(record['resident_bytes'])} bytes after a step; "
        f"{record['num_evictions']} evictions, {record['num_recomputes']} recomputes; "
        f"{record['num_tensors_different']} of {record['num_tensors_compared']} tensors differ from plain eager's."
        for record in records
    ]
    return ["## Endurance", "", *items, ""]


def _range(values: Sequence[int]) -> str:
    return str(values[0]) if min(values) == max(values) else f"{min(values)} to {max(values)}"


if __name__ == "__main__":
    sys.exit(main())
