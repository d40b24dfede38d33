"""A session's trace: the engine's log and the shim's notes, written as simulations write theirs."""

from __future__ import annotations

from types import ModuleType

import torch

from lowtide.ir import Call, Trace
from lowtide.ir.event_log import LogEvent, LoggedProgram, LogKind, events_of_log
from lowtide.ir.trace_sizes import LEAF_OP
from lowtide.runtime.options import SessionOptions

__all__ = ["COST_MODEL", "trace_of_session"]

COST_MODEL = "bytes-flops-1"
"""The one in ``native/torch_shim_cost.hpp``."""

_ALIGNMENT_BYTES = 64
_WRITTEN_OP = "lowtide.written"
"""Stands for what happened to a storage past the dispatcher."""

_BACKWARD, _REPLAYABLE, _RANDOM, _EXTERNAL = 1, 2, 4, 8
_TEMPER_SHIFT = 4
_TEMPERS = ("expensive", "cheap", "resident")

_Note = tuple[str, list[int], list[int], list[int], list[int], list[int], float, int]
"""Op, inputs, outputs, what each output overwrote, sizes, tempers, cost, flags."""


def trace_of_session(shim: ModuleType, *, options: SessionOptions, budget_bytes: int) -> Trace:
    """What has happened so far.

    Args:
        shim: Its log is on.
        options: The session's.
        budget_bytes: The session's.

    Returns:
        A trace with blocks. Values are contents of storages, named by number; views are none.
    """
    calls = [_call_of(note) for note in shim.notes()]
    num_variables = 1 + max((variable for note in shim.notes() for variable in note[2]), default=-1)
    program = LoggedProgram([_name(variable) for variable in range(num_variables)], calls, _ALIGNMENT_BYTES)
    log: list[LogEvent] = [(LogKind[kind.upper()], *figures) for kind, *figures in shim.events()]
    return Trace(
        capacity_bytes=shim.stats()["capacity"],
        alignment=_ALIGNMENT_BYTES,
        policy=options.policy,
        seed=options.seed,
        cost_model=COST_MODEL,
        events=tuple(events_of_log(program, log, has_addresses=True)),
        meta={"source": "runtime", "torch": torch.__version__, "budget_bytes": budget_bytes},
    )


def _name(variable: int) -> str:
    return f"v{variable}"


def _call_of(note: _Note) -> Call:
    op, inputs, outputs, overwritten, sizes, tempers, cost, flags = note
    names = [_name(variable) for variable in outputs]
    own = {name: size_bytes for name, size_bytes, old in zip(names, sizes, overwritten, strict=False) if old < 0}
    if not op and not inputs:
        external = {"external": True} if flags & _EXTERNAL else {}
        return Call(op=LEAF_OP, inputs=(), outputs=tuple(names), meta={"size_bytes": own, **external})
    placed = {name: _TEMPERS[temper] for name, temper in zip(names, tempers, strict=False)}
    meta = {"size_bytes": own, "placed": placed, "temper": _TEMPERS[flags >> _TEMPER_SHIFT & 3]}
    if not flags & _REPLAYABLE:
        meta["recomputable"] = False
    return Call(
        op=op.replace("::", ".").rpartition(".")[0] if op.count(".") else op.replace("::", ".") or _WRITTEN_OP,
        inputs=tuple(dict.fromkeys(map(_name, inputs))),
        outputs=tuple(names),
        overwrites_by_output={name: _name(old) for name, old in zip(names, overwritten, strict=False) if old >= 0},
        cost=int(cost),
        rng=bool(flags & _RANDOM),
        backward=bool(flags & _BACKWARD),
        meta=meta,
    )
