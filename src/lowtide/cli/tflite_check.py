"""What ``lowtide export --check`` prints: what two models need on the runtimes, and what an engineer pastes."""

from __future__ import annotations

import math

from lowtide.cli.output import count_of, print_line, print_table, print_text
from lowtide.emit.tflite_bands import largest_difference
from lowtide.emit.tflite_check import RuntimeCheck, TfliteCheck
from lowtide.emit.tflite_run import LitertRun, MicroRun

__all__ = ["print_tflite_check"]

_ARENA_ALIGNMENT = 16


def print_tflite_check(checked: TfliteCheck) -> None:
    """Print the check of a rewritten .tflite model."""
    for runtime in (checked.micro, checked.litert):
        print_text()
        _print_runtime(runtime, checked)
    after = checked.micro.after
    if isinstance(after, MicroRun):
        print_text()
        _print_paste(after, checked)


def _print_runtime(runtime: RuntimeCheck, checked: TfliteCheck) -> None:
    before, after = runtime.before, runtime.after
    if before is None or after is None:
        print_text(f"{runtime.runtime}: not checked: {runtime.refusal}")
        return
    sets = count_of(checked.num_sets, "set")
    what = (
        f"identical to the bit, {sets} of random inputs"
        if runtime.is_identical
        else f"{runtime.num_different} of {checked.num_outputs} DIFFER, {_describe_difference(runtime)}"
    )
    print_text(f"{runtime.runtime}: outputs {what}")
    print_table(
        ("measured", "before", "after", "change"),
        [
            *((name, str(old), str(new), _change(old, new)) for name, old, new in _sizes(before, after)),
            ("ms an inference, here", f"{1e3 * before.seconds:.2f}", f"{1e3 * after.seconds:.2f}",
             _change(before.seconds, after.seconds)),
        ],
        right=(1, 2, 3),
    )  # fmt: skip


def _describe_difference(runtime: RuntimeCheck) -> str:
    difference = largest_difference(runtime)
    return "not by rounding" if math.isinf(difference) else f"by at most {difference:.1e} of the largest element"


def _sizes(before: MicroRun | LitertRun, after: MicroRun | LitertRun) -> list[tuple[str, int, int]]:
    if isinstance(before, MicroRun) and isinstance(after, MicroRun):
        return [
            ("arena_used_bytes", before.total_bytes, after.total_bytes),
            ("  tensors and scratch", before.head_bytes, after.head_bytes),
            ("  persistent, here", before.tail_bytes, after.tail_bytes),
        ]
    if isinstance(before, LitertRun) and isinstance(after, LitertRun):
        return [("arena, span of tensors", before.arena_bytes, after.arena_bytes)]
    return []


def _change(before: float, after: float) -> str:
    return f"{100 * (after / before - 1):+.1f} %" if before else ""


def _print_paste(after: MicroRun, checked: TfliteCheck) -> None:
    smallest = after.total_bytes if after.smallest_bytes is None else after.smallest_bytes
    print_text("To paste (sizes with this machine's 64-bit pointers; a 32-bit target's persistent part is smaller):")
    print_line(f"  constexpr int kTensorArenaSize = {smallest};")
    print_line(
        f"    // tensors {after.head_bytes - checked.scratch_bytes}, scratch of kernels {checked.scratch_bytes},"
    )
    print_line(f"    // persistent {after.tail_bytes}; the smallest arena that sets up, found by trying")
    print_line(f"  alignas({_ARENA_ALIGNMENT}) uint8_t tensor_arena[kTensorArenaSize];")
    new_ops = ", ".join(checked.new_ops) or "none"
    print_line(f"  tflite::MicroMutableOpResolver<{len(checked.ops)}> resolver;  // new operators: {new_ops}")
    print_text(f"  Operators: {', '.join(checked.ops)}. Flash: {checked.flash_delta_bytes:+d} bytes.")
