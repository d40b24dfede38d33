"""A simulation's trace, from the engine's log; see :mod:`lowtide.ir.event_log`."""

from __future__ import annotations

from collections.abc import Sequence

from lowtide import _online
from lowtide.ir import Trace
from lowtide.ir.event_log import LogEvent, LoggedProgram, events_of_log
from lowtide.simulator.program import CompiledTrace

__all__ = ["trace_of_events"]


def trace_of_events(
    compiled: CompiledTrace, log: Sequence[LogEvent], *, config: _online.EngineConfig, policy: str
) -> Trace:
    """Write what happened in a simulation as a trace.

    Args:
        compiled: The program that ran.
        log: The engine's log.
        config: The engine's options.
        policy: Name of the policy.

    Returns:
        A trace of the program's values without views. Of a policy blind to addresses, one without blocks.
    """
    program = LoggedProgram(compiled.names, compiled.calls, compiled.alignment)
    return Trace(
        capacity_bytes=config.capacity,
        alignment=compiled.alignment,
        policy=policy,
        seed=config.seed,
        cost_model=compiled.cost_model,
        events=tuple(events_of_log(program, log, has_addresses=not config.is_ideal)),
        meta={**compiled.meta, "source": "simulation"},
    )
