"""Two-phase rounding of the linear relaxation: first S, then the least R that goes with it.

Source: Jain et al. 2020, section 5 and algorithm 1: S is S* rounded at one half, or drawn with S* as probabilities; R
then computes in each stage the stage's own node, what the next stage keeps but this one was not given, and the inputs
of all these that it was not given either. Departure: a storage that cannot be computed again is kept for as long as
something needs it, whatever the rounding said.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from lowtide.planners.checkmate.instance import Instance
from lowtide.planners.checkmate.program import Floats
from lowtide.planners.checkmate.variables import Variables

__all__ = ["complete_runs", "kept_shares", "rounded_at_half", "rounded_by_chance"]

Bools = npt.NDArray[np.bool_]


def kept_shares(instance: Instance, variables: Variables, values: Floats) -> Floats:
    """S* as an array [stages + 1, storages], 0 where there is no variable."""
    shares = np.zeros((instance.num_nodes + 1, instance.num_storages))
    for (stage, storage), variable in variables.kept.items():
        shares[stage, storage] = min(1.0, max(0.0, values[variable]))
    return shares


def rounded_at_half(shares: Floats) -> Bools:
    """S with a storage kept where its share is above one half."""
    return np.asarray(shares > 0.5, dtype=np.bool_)


def rounded_by_chance(shares: Floats, *, seed: int) -> Iterator[Bools]:
    """One S after another, drawn with the shares as probabilities."""
    rng = np.random.default_rng(seed)
    while True:
        yield rng.random(shares.shape) < shares


def complete_runs(instance: Instance, kept: Bools) -> frozenset[tuple[int, int]] | None:
    """The least R for an S, first executions left out.

    Args:
        instance: What is planned.
        kept: S, [stages + 1, storages]; what stays behind the last stage is known from the instance.

    Returns:
        Pairs (stage, node); None where a recomputation would read what is made only later.
    """
    runs: set[tuple[int, int]] = set()
    wanted = {storage for storage, is_kept in enumerate(instance.is_kept) if is_kept}
    for stage in reversed(range(instance.num_nodes)):
        given = frozenset(np.flatnonzero(kept[stage]).tolist())
        computed, wanted = _complete_stage(instance, stage, wanted, given)
        if any(instance.producers[storage] >= stage for storage in wanted):
            return None
        runs.update((stage, node) for node in computed if node != stage)
    return frozenset(runs)


def _complete_stage(
    instance: Instance, stage: int, wanted: set[int], given: frozenset[int]
) -> tuple[list[int], set[int]]:
    """The nodes to compute in a stage for what is wanted behind it, and what is then wanted behind the stage before."""
    wanted = set(wanted)
    computed: list[int] = []
    made: set[int] = set()
    before: set[int] = set()  # read by a node that comes before the one that would make it in this stage
    for node in range(stage, -1, -1):
        makes = instance.made_in(stage, node) if instance.may_run(stage, node) else ()
        if node == stage or any(storage in wanted and storage not in given for storage in makes):
            computed.append(node)
            made.update(makes)
            reads = instance.read_in(stage, node)
            before.update(storage for storage in reads if instance.producers[storage] >= node)
            wanted.update(reads)
    return computed, (wanted - made) | before
