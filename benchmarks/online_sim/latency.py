"""How long a search takes as blocks become more, and how many ops a whole simulation carries out in a second."""

from __future__ import annotations

import time
from random import Random
from typing import Any

from lowtide.ir import Call, Event, Trace
from lowtide.ir.trace_sizes import LEAF_OP
from lowtide.policies.protocol import Policy
from lowtide.simulator.program import CompiledTrace, compile_trace
from lowtide.simulator.run import simulate

__all__ = ["NUM_BLOCKS", "latency_row", "pressed_trace", "speed_row"]

NUM_BLOCKS = (100, 1_000, 10_000, 100_000)
_UNIT_BYTES = 16 * 1024  # above what counts as small
_MOST_SEARCHES = 600
_EVICTED_SHARE = 0.35


def pressed_trace(num_blocks: int) -> tuple[Trace, int]:
    """As many values as blocks, each made from two before it; then requests that push 35 % of them out.

    Returns:
        The trace, and the bytes that hold all values, but none of the requests.
    """
    rng = Random(num_blocks)
    events: list[Event] = [Call(LEAF_OP, (), ("x",), meta={"size_bytes": {"x": _UNIT_BYTES}, "kind": "user"})]
    total_bytes = _UNIT_BYTES
    for index in range(num_blocks):
        inputs = {"x"} if not index else {f"v{index - 1}", f"v{rng.randrange(max(index - 20, 0), index)}"}
        size_bytes = _UNIT_BYTES * rng.randint(1, 8)
        total_bytes += size_bytes
        name = f"v{index}"
        cost = rng.randint(1_000, 2 * size_bytes)
        events.append(Call("op", tuple(sorted(inputs)), (name,), cost=cost, meta={"size_bytes": {name: size_bytes}}))
    num_searches = min(int(num_blocks * _EVICTED_SHARE), _MOST_SEARCHES)
    size_bytes = int(total_bytes * _EVICTED_SHARE / num_searches) // 64 * 64
    for index in range(num_searches):
        name = f"r{index}"
        events.append(Call("request", ("x",), (name,), cost=1_000, meta={"size_bytes": {name: size_bytes}}))
    return Trace(None, 64, None, 0, "synthetic", tuple(events)), total_bytes


def latency_row(policy: Policy, num_blocks: int, *, num_rounds: int) -> dict[str, Any]:
    """Mean microseconds of finding, evicting and finding again, upkeep of projected costs included; fastest round.

    ``cpu_us`` is all CPU time of the simulation by its searches: an upper bound that other work on the machine leaves
    as it is.
    """
    trace, total_bytes = pressed_trace(num_blocks)
    compiled = compile_trace(trace)
    runs, cpu_seconds = [], []
    for _ in range(num_rounds):
        started = time.process_time()
        runs.append(simulate(compiled, budget=total_bytes + 4096, policy=policy, thrash_limit=1e6))
        cpu_seconds.append(time.process_time() - started)
    best = min(runs, key=lambda run: run.mean_search_us)
    return {
        "record": "latency",
        "policy": policy.name,
        "num_blocks": num_blocks,
        "completed": best.completed,
        "num_searches": best.num_searches,
        "evicted_share": best.num_evictions / num_blocks,
        "mean_search_us": round(best.mean_search_us, 3),
        "cpu_us": round(1e6 * min(cpu_seconds) / max(best.num_searches, 1), 3),
    }


def speed_row(network: str, compiled: CompiledTrace, policy: Policy, *, ratio: float) -> dict[str, Any]:
    """Ops executed, recomputations included, per second of CPU time, without compiling the trace; fastest of three."""
    seconds = []
    for _ in range(3):
        started = time.process_time()
        run = simulate(compiled, budget=f"r={ratio}", policy=policy)
        seconds.append(time.process_time() - started)
    num_ops = run.num_calls + run.num_recomputes
    return {
        "record": "speed",
        "network": network,
        "policy": policy.name,
        "ratio": ratio,
        "num_ops": num_ops,
        "ops_per_second": round(num_ops / max(min(seconds), 1e-9)),
    }
