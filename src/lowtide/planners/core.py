"""The native core as the planners see it: a flat graph in, recomputations and loads out."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate

from lowtide import _search
from lowtide.planners.flat import FlatGraph, Recomputation

__all__ = ["load_bytes_by_stage", "native_problem", "recomputations_from"]


def native_problem(flat: FlatGraph) -> _search.Problem:
    """Hand a flat graph to the native core."""
    return _search.Problem(
        duration=flat.duration,
        recompute_duration=flat.recompute_duration,
        workspace_bytes=flat.workspace_bytes,
        recompute_workspace_bytes=flat.recompute_workspace_bytes,
        last_stage=flat.last_stage,
        read_starts=_starts(flat.reads),
        reads=[storage for row in flat.reads for storage in row],
        recompute_read_starts=_starts(flat.recompute_reads),
        recompute_reads=[storage for row in flat.recompute_reads for storage in row],
        size_bytes=flat.size_bytes,
        producer=flat.producer,
        is_recreated=list(map(int, flat.is_recreated)),
        is_kept=list(map(int, flat.is_kept)),
    )


def load_bytes_by_stage(problem: _search.Problem, recomputations: Iterable[Recomputation]) -> list[int]:
    """Most bytes resident in each stage.

    Raises:
        ValueError: A node cannot be recomputed in that stage.
    """
    chosen = list(recomputations)
    return _search.load_bytes(problem, stages=[r.stage for r in chosen], nodes=[r.node for r in chosen])


def recomputations_from(stages: Sequence[int], nodes: Sequence[int]) -> list[Recomputation]:
    """Pair up the columns that the native core answers with."""
    return [Recomputation(stage, node) for stage, node in zip(stages, nodes, strict=True)]


def _starts(rows: Sequence[Sequence[int]]) -> list[int]:
    return list(accumulate(map(len, rows), initial=0))
