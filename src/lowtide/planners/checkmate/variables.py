"""The decision variables of Checkmate.

    R[t, k]      node k is computed in stage t                       runs
    S[t, s]      storage s is resident from stage t - 1 into stage t  kept
    U[t, k]      memory when node k is computed in stage t           memory
    FREE[t, s, k] storage s is freed once k is computed in stage t    freed

Source: Jain et al. 2020, section 4. Departure: R is by node, S and FREE by storage, of which a node may make several.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lowtide.planners.checkmate.instance import Instance
from lowtide.planners.checkmate.program import Program

__all__ = ["Variables", "make_variables"]


@dataclass(frozen=True)
class Variables:
    """Indices of the program's variables; what cannot happen has none.

    Attributes:
        runs: R, by (stage, node); node <= stage.
        kept: S, by (stage, storage); from the stage behind that of the producer's first execution up to the number of
            nodes, the moment behind the last stage.
        memory: U, by (stage, node), as a share of the budget.
        freed: FREE, by (stage, storage, node).
    """

    runs: Mapping[tuple[int, int], int]
    kept: Mapping[tuple[int, int], int]
    memory: Mapping[tuple[int, int], int]
    freed: Mapping[tuple[int, int, int], int]


def make_variables(program: Program, instance: Instance) -> Variables:
    """Create the variables of an instance; the budget is the bound of U."""
    stages = range(instance.num_nodes)
    events = [(stage, node) for stage in stages for node in range(stage + 1) if instance.may_run(stage, node)]
    return Variables(
        runs={
            (stage, node): program.add_binary(cost=0.0 if node == stage else instance.durations[node])
            for stage, node in events
        },
        kept={
            (stage, storage): program.add_binary()
            for storage, producer in enumerate(instance.producers)
            for stage in range(producer + 1, instance.num_nodes + 1)
        },
        memory={event: program.add_continuous(most=1.0) for event in events},
        freed={
            (stage, storage, node): program.add_binary()
            for stage, node in events
            for storage in instance.touched_in(stage, node)
        },
    )
