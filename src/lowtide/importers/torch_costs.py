"""What the ops of an fx graph cost: measured on this machine, or estimated the same everywhere.

Profiled: each distinct signature (op, shapes, strides, dtypes, devices, other arguments) is timed once on tensors of
its own, never the whole graph. Estimated: from bytes and floating-point operations. Views and unpacking cost nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum

from torch import fx

from lowtide.importers.torch_cost_cache import CostCache, default_cost_cache
from lowtide.importers.torch_cost_call import OpCall, UnknownArgument, call_of, is_free
from lowtide.importers.torch_cost_estimate import LAUNCH_NS, RNG_STATE_NS, estimate_duration_ns
from lowtide.importers.torch_cost_profile import as_plain_torch, make_cooler, profile_call

__all__ = ["CostCache", "CostMode", "NodeCost", "cost_nodes", "default_cost_cache"]

_logger = logging.getLogger("lowtide")


class CostMode(StrEnum):
    """Where durations come from."""

    PROFILED = "profiled"
    ESTIMATED = "estimated"


@dataclass(frozen=True, slots=True)
class NodeCost:
    """What one execution of an op costs.

    Attributes:
        duration_ns: Time, in nanoseconds; whole microseconds where anything was measured.
        workspace_bytes: Scratch that it takes and gives back while it runs, beyond its outputs, in bytes; a multiple of
            64. 0 where it is estimated.
    """

    duration_ns: int
    workspace_bytes: int


_FREE = NodeCost(duration_ns=0, workspace_bytes=0)


def cost_nodes(nodes: Sequence[fx.Node], *, mode: CostMode, cache: CostCache | None) -> list[NodeCost]:
    """Cost the ops of an fx graph of ATen ops.

    Args:
        nodes: Nodes whose ``meta["val"]`` holds fake tensors of concrete shape; only ``call_function`` nodes cost
            anything.
        mode: Measured on this machine, or estimated from bytes and operations.
        cache: Costs measured before, which are looked up and added to; None to measure everything.

    Returns:
        One cost per node, in the order of the nodes. What cannot be measured is estimated.
    """
    if mode is CostMode.ESTIMATED:
        return [_estimate(node) for node in nodes]
    with as_plain_torch():
        profiler = _Profiler(cache)
        costs = [_in_microseconds(profiler.cost(node)) for node in nodes]
    if cache is not None:
        cache.save()
    return costs


def _in_microseconds(cost: NodeCost) -> NodeCost:
    """Whole ones: no clock tells more, and a solver in floating point proves optima of whole microseconds.

    What costs anything costs at least one.
    """
    if cost.duration_ns == 0:
        return cost
    return replace(cost, duration_ns=max(1, round(cost.duration_ns / 1000)) * 1000)


class _Profiler:
    """Measures each signature once."""

    def __init__(self, cache: CostCache | None) -> None:
        self._cache = cache
        self._cooler = make_cooler()
        self._cost_by_signature: dict[str, NodeCost] = {}

    def cost(self, node: fx.Node) -> NodeCost:
        if is_free(node):
            return _FREE
        try:
            call = call_of(node)
            signature = call.signature()
        except UnknownArgument as reason:
            _logger.debug("%s (%s) is estimated, not measured: %s", node.name, node.target, reason)
            return _estimate(node)
        if signature not in self._cost_by_signature:
            self._cost_by_signature[signature] = self._look_up(signature) or self._measure(signature, call)
        return self._cost_by_signature[signature]

    def _look_up(self, signature: str) -> NodeCost | None:
        found = None if self._cache is None else self._cache.get(signature)
        return None if found is None else NodeCost(duration_ns=found[0], workspace_bytes=found[1])

    def _measure(self, signature: str, call: OpCall) -> NodeCost:
        try:
            profile = profile_call(call, cooler=self._cooler)
        except Exception as error:  # noqa: BLE001 - an op may raise anything on made-up tensors
            reason = (str(error).splitlines() or [""])[0][:200]
            _logger.debug("%s is estimated, not measured: %s: %s", call.name, type(error).__name__, reason)
            return NodeCost(duration_ns=estimate_duration_ns(call), workspace_bytes=0)
        duration_ns = profile.duration_ns + (RNG_STATE_NS if call.carries_rng_state else 0)
        if profile.workspace_bytes is None:
            return NodeCost(duration_ns=duration_ns, workspace_bytes=0)
        if self._cache is not None:
            self._cache.put(signature, duration_ns=duration_ns, workspace_bytes=profile.workspace_bytes)
        return NodeCost(duration_ns=duration_ns, workspace_bytes=profile.workspace_bytes)


def _estimate(node: fx.Node) -> NodeCost:
    if is_free(node):
        return _FREE
    try:
        return NodeCost(duration_ns=estimate_duration_ns(call_of(node)), workspace_bytes=0)
    except (UnknownArgument, TypeError):  # a symbolic size has no number of bytes
        return NodeCost(duration_ns=LAUNCH_NS, workspace_bytes=0)
