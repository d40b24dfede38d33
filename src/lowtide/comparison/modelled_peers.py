"""What PyTorch itself offers against memory, on the cost model: its recomputations as plans of the same graph.

    torch.utils.checkpoint      forward   [block 1] [block 2] ...    what only a block reads is dropped at its end
                                backward  block 2 again, its uses, block 1 again, its uses
    activation_memory_budget    the partitioner's forward and backward, for each of several ratios

Every copy lives until its last use, and addresses are given as to any plan: peers are shown at their best. Measured
rows show what really comes of them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType

from lowtide.ir import Graph, Status, Step
from lowtide.ir.sequence import steps_from_sequence
from lowtide.ir.working_set import owner_by_value
from lowtide.planners.protocol import PlanRequest, Proposal
from lowtide.referee import replay
from lowtide.units import Bytes

__all__ = ["MODELLED_PEERS", "ModelledPeer", "checkpointed_sequence"]

_NUM_RATIOS = 20


@dataclass(slots=True)
class ModelledPeer:
    """A planner whose plans are fixed before any budget: within one, the fastest that fits.

    No time limit applies: they are made once for all budgets, and one cut short would look worse than the peer is.

    Attributes:
        name: Of its rows.
        sequences_of: From the graph to what the peer would execute of it, in each of its settings; once the second
            argument returns true, in some of them.
    """

    name: str
    sequences_of: Callable[[Graph, Callable[[], bool]], Sequence[Sequence[str]]]
    searches_order: bool = True
    _graph: Graph | None = field(default=None, init=False)
    _plans: list[tuple[Bytes, int, tuple[Step, ...]]] = field(default_factory=list, init=False)

    def propose(self, request: PlanRequest) -> Proposal:
        """Propose the fastest within the budget, or else the one of the smallest peak."""
        plans = self._plans_of(request)
        if not plans:
            return Proposal(status=Status.TIMEOUT, steps=None)
        fitting = [plan for plan in plans if plan[0] <= request.budget_bytes]
        if not fitting:
            return Proposal(status=Status.TIMEOUT, steps=min(plans, key=lambda plan: plan[:2])[2])
        return Proposal(status=Status.FEASIBLE, steps=min(fitting, key=lambda plan: (plan[1], plan[0]))[2])

    def _plans_of(self, request: PlanRequest) -> list[tuple[Bytes, int, tuple[Step, ...]]]:
        """Peak, duration and steps of each setting; the referee's word on them."""
        graph, should_stop = request.graph, request.should_stop or (lambda: False)
        if self._graph is not graph:
            self._plans = []
            for sequence in self.sequences_of(graph, should_stop):
                steps = steps_from_sequence(graph, sequence)
                replayed = replay(graph, steps)
                self._plans.append((replayed.peak_bytes, replayed.duration, steps))
            self._graph = None if should_stop() else graph  # of some settings: not all that there is to know
        return self._plans


def checkpointed_sequence(graph: Graph, block_paths: Sequence[str]) -> tuple[str, ...]:
    """What runs when every block is under ``torch.utils.checkpoint``: its forward again before backward needs it.

    As torch does without reentry, a block runs again up to the last value that backward reads of it.

    Args:
        graph: A training graph with a boundary, in whose nodes ``meta["module"]`` says where they come from.
        block_paths: Module paths of the blocks; none within another.

    Returns:
        Node names: the given order, and before a backward node the block that it needs.
    """
    if graph.boundary is None:
        return graph.order
    boundary = graph.order.index(graph.boundary.name)
    backward = graph.order[boundary + 1 :]
    blocks_by_start: dict[str, list[list[str]]] = {}
    for path in block_paths:
        block = [name for name in graph.order[:boundary] if _is_within(graph, name, path)]
        dropped = _dropped_values(graph, block, backward)
        starts = [name for name in backward if not dropped.isdisjoint(graph.node_by_name[name].inputs)]
        if starts:
            blocks_by_start.setdefault(starts[0], []).append(_up_to_last(graph, block, dropped))
    return (
        *graph.order[: boundary + 1],
        *(each for name in backward for block in (*blocks_by_start.get(name, ()), (name,)) for each in block),
    )


def _dropped_values(graph: Graph, block: Sequence[str], backward: Sequence[str]) -> set[str]:
    """What backward reads of the block's values and nobody else reads after its end."""
    inside, owners = frozenset(block), owner_by_value(graph)
    own = {value.name for name in block for value in graph.node_by_name[name].outputs}
    kept = {owners[name] for name in graph.outputs}
    kept |= {owners[name] for name in own if not graph.value_by_name[name].evictable}
    later = frozenset(backward)
    for name in graph.order:
        if name not in inside and name not in later:
            kept |= {owners[read] for read in graph.node_by_name[name].inputs}
    for name in block:
        if not graph.node_by_name[name].recomputable:
            kept |= {owners[value.name] for value in graph.node_by_name[name].outputs}
    read = {value for name in backward for value in graph.node_by_name[name].inputs}
    return {value for value in own & read if owners[value] in own and owners[value] not in kept}


def _up_to_last(graph: Graph, block: Sequence[str], dropped: set[str]) -> list[str]:
    makes = [any(value.name in dropped for value in graph.node_by_name[name].outputs) for name in block]
    end = max(index for index, makes_one in enumerate(makes) if makes_one) + 1
    return [name for name in block[:end] if graph.node_by_name[name].recomputable]


def _is_within(graph: Graph, name: str, path: str) -> bool:
    module = f"{graph.node_by_name[name].meta.get('module', '')}."
    return module.startswith(f"{path}.")


def _checkpoint(target: str) -> ModelledPeer:
    def sequences_of(graph: Graph, _: Callable[[], bool]) -> Sequence[Sequence[str]]:
        from lowtide.measure.torch_peer_orders import block_paths_of

        return [checkpointed_sequence(graph, block_paths_of(target))]

    return ModelledPeer("checkpoint", sequences_of)


def _activation_memory_budget(target: str) -> ModelledPeer:
    def sequences_of(_: Graph, should_stop: Callable[[], bool]) -> Sequence[Sequence[str]]:
        from lowtide.measure.torch_peer_orders import partitions_of

        ratios = [step / _NUM_RATIOS for step in range(_NUM_RATIOS + 1)]
        return partitions_of(target, ratios=ratios, should_stop=should_stop)

    return ModelledPeer("amb", sequences_of)


MODELLED_PEERS: Mapping[str, Callable[[str], ModelledPeer]] = MappingProxyType(
    {
        "checkpoint": _checkpoint,
        "amb-aot_eager": _activation_memory_budget,
        "amb-inductor": _activation_memory_budget,
    }
)
"""By the name of the measured peer, from a model (``pkg.module:function``): both backends share one partitioner."""
