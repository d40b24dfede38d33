"""What the runtimes say of a model, as JSON values."""

from __future__ import annotations

from benchmarks.edge.runs import Row
from lowtide.emit.tflite_bands import largest_difference
from lowtide.emit.tflite_check import RuntimeCheck
from lowtide.emit.tflite_run import LitertRun, MicroRun


def check_record(check: RuntimeCheck) -> Row:
    """Both runs and how their outputs compare, or the runtime's refusal."""
    if check.before is None or check.after is None:
        return {"refusal": check.refusal}
    return {
        "before": run_record(check.before),
        "after": run_record(check.after),
        "num_different_outputs": check.num_different,
        "largest_difference": largest_difference(check),
        "num_outputs": len(check.before.outputs),
    }


def run_record(run: MicroRun | LitertRun) -> Row:
    """What a run took."""
    if isinstance(run, MicroRun):
        return {
            "total_bytes": run.total_bytes,
            "head_bytes": run.head_bytes,
            "tail_bytes": run.tail_bytes,
            "smallest_bytes": run.smallest_bytes,
            "cpu_seconds": run.seconds,
        }
    return {"arena_bytes": run.arena_bytes, "cpu_seconds": run.seconds}
