"""What rows of the edge benchmarks say, in figures counted from them: gains, and beside them where there are none.

Each function returns statements under what they are about. Rows may lack models, and runtimes may have refused some.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median

from benchmarks.edge.runs import Row

__all__ = [
    "Summary",
    "summarize_executorch",
    "summarize_onnx",
    "summarize_onnx_bands",
    "summarize_tflite",
    "summarize_tflite_bands",
]

Summary = dict[str, list[str]]

_TIME_LIMIT = 1.5  # of bands, which keep to it by their estimate
_DELEGATES = ("portable", "xnnpack")
_LARGE_RUN_BYTES = 1 << 20  # in smaller runs, what they take beside tensors is a good part


@dataclass(frozen=True, slots=True)
class Change:
    """What a size of a model was, and what it became."""

    model: str
    before: int
    after: int

    @property
    def saved_percent(self) -> float:
        """How much less it is, rounded as in the tables."""
        return round(100 * (1 - self.after / self.before), 1) + 0.0 if self.before else 0.0


# ------------------------------------------------------------------------------------------------ one file each
def summarize_tflite(rows: Sequence[Row]) -> Summary:
    """Plans for .tflite models."""
    ran = [row for row in rows if "before" in row["micro"]]
    smaller = [row for row in ran if "after" in row["micro"]]
    others = [row for row in ran if row not in smaller]
    in_place = [_in_place(row) for row in ran]
    written = [row for row in in_place if "after" in row["micro"]]
    by_plan = {row["model"] for row in smaller}
    return {
        "By the plan": [
            *_sizes("Arena", map(_arena, ran)),
            *_why_not(others),
            *_names("Not run there", [row for row in rows if row not in ran]),
            *_bits("Outputs", [_part(row, "micro") for row in smaller]),
            *_plan_times([_part(row, "micro") for row in smaller]),
            *_growth(smaller),
        ],
        "In place, with another order and without recomputation": [
            *_sizes("Arena", map(_arena, in_place)),
            *_names("Smaller so, and not by the plan", [row for row in written if row["model"] not in by_plan]),
            *_bits("Outputs", [_part(row, "micro") for row in written]),
        ],
        "The plan on LiteRT": _litert(smaller),
    }


def summarize_tflite_bands(rows: Sequence[Row], plans: Sequence[Row]) -> Summary:
    """Row bands of .tflite models, also beside what a plan alone makes of the same ones."""
    ran = [row for row in rows if "after" in row.get("micro", {})]
    planned = {row["model"]: _arena(row).after for row in plans if "before" in row["micro"]}
    summary: Summary = {}
    for name, is_int8 in (("float32", False), ("int8", True)):
        group = [row for row in ran if row["model"].endswith("_int8") == is_int8]
        exact = sum(row["planned_bytes"] == row["micro"]["after"]["head_bytes"] for row in group)
        summary[f"In bands, {name}"] = [
            *_sizes("Arena", map(_arena, group)),
            *_beside_plan(map(_arena, group), planned),
            *([f"Tensors and scratch: as planned, to the byte, on {exact} of {len(group)}."] if group else []),
            *_bits("Outputs", [_part(row, "micro") for row in group]),
            *_times("Time", [_part(row, "micro") for row in group], limit=_TIME_LIMIT),
            *_growth(group),
        ]
    none = [row for row in rows if not row["stretches"]]
    refused = [row for row in rows if row["stretches"] and row not in ran]
    summary["Not in bands"] = [*_names("None found", none), *_names("Not run there", refused)]
    return {**summary, "Bands on LiteRT": _litert(ran)}


def summarize_onnx(rows: Sequence[Row]) -> Summary:
    """Plans for .onnx models."""
    return {f"Level {level}": _onnx_level(group) for level, group in _groups(rows, "level").items()}


def summarize_onnx_bands(rows: Sequence[Row], plans: Sequence[Row]) -> Summary:
    """Row bands of .onnx models, also beside what a plan alone makes of the same ones."""
    summary: Summary = {}
    for level, group in _groups([row for row in rows if row["stretches"]], "level").items():
        planned = {row["model"]: row["after"]["run_bytes"] for row in plans if row["level"] == level}
        summary[f"In bands, level {level}"] = [
            *_sizes("Beside the recipe alone", (_run(row, "before") for row in group)),
            *_beside_plan((_run(row, "before") for row in group), planned),
            *_beside_default(group),
            *_bits("Outputs beside the recipe's", group),
            *_times("Time beside the recipe", group, limit=_TIME_LIMIT),
            *_onnx_costs(group),
        ]
    return {**summary, "Not in bands": _names("None found", [row for row in rows if not row["stretches"]])}


def summarize_executorch(rows: Sequence[Row]) -> Summary:
    """Plans for programs of ExecuTorch."""
    groups = _groups(rows, "delegate").items()
    summary = {f"Delegate {delegate}": _executorch_delegate(group) for delegate, group in groups}
    return {**summary, "XNNPACK beside ExecuTorch's own kernels": _xnnpack(rows)}


# ------------------------------------------------------------------------------------------------ one group each
def _onnx_level(rows: Sequence[Row]) -> list[str]:
    same = [
        row | {"is_op_bound": row["largest_working_set_bytes"] >= row["own_order_bytes"]}
        for row in rows
        if _run(row, "before").saved_percent == 0
    ]
    return [
        *_sizes("Beside the recipe alone", (_run(row, "before") for row in rows)),
        *_why_not(same),
        *_beside_default(rows),
        *_bits("Outputs beside the recipe's", rows),
        *_bits_of_default(rows),
        *_plan_times(rows),
        *_onnx_costs(rows),
    ]


def _executorch_delegate(rows: Sequence[Row]) -> list[str]:
    smaller = [row for row in rows if row["is_exported"]]
    sizes = (
        Change(row["model"], row["before_bytes"], row["after_bytes" if row["is_exported"] else "before_bytes"])
        for row in rows
    )
    offsets = (Change(row["model"], row["buffer_bytes"], row["by_offsets_bytes"]) for row in smaller)
    held = (Change(row["model"], _held_bytes(row["before"]), _held_bytes(row["after"])) for row in smaller)
    exact = sum(row["after_bytes"] == row["planned_bytes"] + row["padding_bytes"] for row in rows)
    return [
        *_sizes("Planned buffer", sizes),
        *_why_not([row for row in rows if row not in smaller]),
        *_sizes("By offsets alone, of these", offsets),
        f"In the file what was planned, to the byte, ExecuTorch's padding apart, on {exact} of {len(rows)}.",
        *_bits("Outputs", rows),
        *_plan_times(smaller),
        *_sizes("What malloc hands out", held),
    ]


def _litert(rows: Sequence[Row]) -> list[str]:
    ran = [row for row in rows if "after" in row["litert"]]
    arenas = (
        Change(row["model"], *(row["litert"][when]["arena_bytes"] for when in ("before", "after"))) for row in ran
    )
    return [
        *_sizes("Arena", arenas),
        *_bits("Outputs", [_part(row, "litert") for row in ran]),
        *_names("Not run there", [row for row in rows if row not in ran]),
    ]


def _xnnpack(rows: Sequence[Row]) -> list[str]:
    """Programs as they are without a plan."""
    own, theirs = ({row["model"]: row["before"] for row in rows if row["delegate"] == name} for name in _DELEGATES)
    both = [(own[model], theirs[model]) for model in own if theirs.get(model, {}).get("cpu_seconds")]
    if not both:
        return []
    faster = [mine["cpu_seconds"] / other["cpu_seconds"] for mine, other in both]
    held = [_held_bytes(other) / _held_bytes(mine) for mine, other in both]
    return [
        f"Speed, on {len(both)} models: {_spread(faster, '×{:.1f}')}.",
        f"What malloc hands out: {_spread(held, '×{:.1f}')}.",
    ]


# ------------------------------------------------------------------------------------------------ one statement each
def _sizes(label: str, changes: Iterable[Change]) -> list[str]:
    """On how many models a size fell, rose, stayed, and by how much."""
    changes = list(changes)
    if not changes:
        return []
    smaller = sorted((change for change in changes if change.saved_percent > 0), key=_saved_percent)
    larger = sorted((change for change in changes if change.saved_percent < 0), key=_saved_percent)
    parts = [f"smaller on {len(smaller) or 'none'} of {len(changes)}"]
    if smaller:
        parts[0] += f", by {_spread(map(_saved_percent, smaller), '{:.1f}', ' %')} (most: {smaller[-1].model})"
    if larger:
        worst = ", ".join(f"{change.model} by {-change.saved_percent:.1f} %" for change in larger)
        parts.append(f"larger on {len(larger)} ({worst})")
    if len(smaller) + len(larger) < len(changes):
        parts.append(f"the same on {len(changes) - len(smaller) - len(larger)}")
    return [f"{label}: {'; '.join(parts)}."]


def _beside_plan(changes: Iterable[Change], planned: Mapping[str, int]) -> list[str]:
    """Against what a plan alone comes to, where it was measured, too."""
    both = (Change(each.model, planned[each.model], each.after) for each in changes if each.model in planned)
    return _sizes("Beside the plan alone", both)


def _beside_default(rows: Sequence[Row]) -> list[str]:
    return [
        *_sizes("Beside the default options", (_run(row, "default") for row in rows)),
        *_times("Time beside the default options", rows, before="default"),
        *_names("`--check` writes no file", [row for row in rows if not row["is_exported"]]),
    ]


def _why_not(rows: Sequence[Row]) -> list[str]:
    """Of models without a gain, those that are bound by an operator, and the others."""
    return [
        *_names("Op-bound", [row for row in rows if row["is_op_bound"]]),
        *_names("Nothing found", [row for row in rows if not row["is_op_bound"]]),
    ]


def _names(label: str, rows: Sequence[Row]) -> list[str]:
    names = list(dict.fromkeys(row["model"] for row in rows))
    return [f"{label}: {len(names)} ({', '.join(names)})."] if names else []


def _bits(label: str, rows: Sequence[Row]) -> list[str]:
    """Losses by name, and how far they are off where that was measured."""
    different = [row for row in rows if row["num_different_outputs"]]
    off = max((row.get("largest_difference", 0) for row in different), default=0)
    far = f" by up to {off:.0e} of the largest element" if off else ""
    names = ", ".join(row["model"] for row in different)
    others = f"; off{far} on {names}" if different else ""
    return [f"{label}: the same to the bit on {len(rows) - len(different)} of {len(rows)}{others}."] if rows else []


def _bits_of_default(rows: Sequence[Row]) -> list[str]:
    off = [row["default_difference"] for row in rows if row["default_difference"]]
    others = f"; off elsewhere, by up to {max(off):.0e} of the largest element" if off else ""
    return [
        f"Outputs beside the default options': the same to the bit on {len(rows) - len(off)} of {len(rows)}{others}."
    ]


def _times(label: str, rows: Sequence[Row], *, before: str = "before", limit: float | None = None) -> list[str]:
    """CPU time relative to that before, and who is slower than a limit."""
    ratios = {
        row["model"]: row["after"]["cpu_seconds"] / row[before]["cpu_seconds"]
        for row in rows
        if row[before]["cpu_seconds"]
    }
    if not ratios:
        return []
    slow = [f"{model} (×{ratio:.2f})" for model, ratio in ratios.items() if limit is not None and ratio > limit]
    beyond = f"; more than ×{limit}: {', '.join(slow)}" if slow else ""
    return [f"{label}: {_spread(ratios.values(), '×{:.2f}')}{beyond}."]


def _plan_times(rows: Sequence[Row]) -> list[str]:
    """What recomputation costs, and how times scatter where there is none."""
    recomputed = [row for row in rows if row["num_recomputes"]]
    same = [row for row in rows if not row["num_recomputes"]]
    tdi = _spread((row["tdi_percent"] for row in recomputed), "{:.1f}", " %") if recomputed else ""
    return [
        *_times(f"Time of the {len(recomputed)} that recompute, for a TDI of {tdi}", recomputed),
        *_times(f"Time of the {len(same)} that execute the same operators, so what measurements scatter by", same),
    ]


def _growth(rows: Sequence[Row]) -> list[str]:
    """What a smaller arena costs elsewhere."""
    if not rows:
        return []
    tails = [row["micro"]["after"]["tail_bytes"] - row["micro"]["before"]["tail_bytes"] for row in rows]
    files = [row["flash_delta_bytes"] for row in rows]
    return [f"Persistent part: {_spread(tails, '{:+,.0f}', ' B')}. File: {_spread(files, '{:+,.0f}', ' B')}."]


def _onnx_costs(rows: Sequence[Row]) -> list[str]:
    """Whether plans promise what is measured, and what the open session takes."""
    large = [row for row in rows if row["after"]["run_bytes"] >= _LARGE_RUN_BYTES]
    off = [100 * (row["after"]["run_bytes"] / row["planned_bytes"] - 1) for row in large]
    sessions = (Change(row["model"], *(row[when]["session_bytes"] for when in ("before", "after"))) for row in rows)
    beyond = [f"Measured beyond the plan, of runs of 1 MiB and more: {_spread(off, '{:+.1f}', ' %')}."] if off else []
    return [*beyond, *_sizes("Open session", sessions)]


# ------------------------------------------------------------------------------------------------ figures
def _arena(row: Row) -> Change:
    """Of a model that is not written, as it was."""
    before, after = row["micro"]["before"], row["micro"].get("after", row["micro"]["before"])
    return Change(row["model"], before["total_bytes"], after["total_bytes"])


def _in_place(row: Row) -> Row:
    """A row as if it were about elementwise operators in place; as it was where no such file is written or run."""
    micro = row["in_place"].get("micro", {})
    return row | {"micro": micro if "after" in micro else {"before": row["micro"]["before"]}}


def _run(row: Row, before: str) -> Change:
    return Change(row["model"], row[before]["run_bytes"], row["after"]["run_bytes"])


def _part(row: Row, runtime: str) -> Row:
    """A row with what one runtime says of it in the first place."""
    return {**row, **row[runtime]}


def _held_bytes(run: Row) -> int:
    return int(run["method_bytes"] + run["run_bytes"])


def _saved_percent(change: Change) -> float:
    return change.saved_percent


def _groups(rows: Iterable[Row], key: str) -> dict[str, list[Row]]:
    """Rows by what they hold under a key, in their order."""
    groups: dict[str, list[Row]] = {}
    for row in rows:
        groups.setdefault(row[key], []).append(row)
    return groups


def _spread(values: Iterable[float], form: str, unit: str = "") -> str:
    """The least and the most as a format writes them, and the median; or the one that all are."""
    values = list(values)
    low, middle, high = (form.format(value) for value in (min(values), median(values), max(values)))
    return f"{low}{unit}" if low == high else f"{low} to {high}{unit}, median {middle}{unit}"
