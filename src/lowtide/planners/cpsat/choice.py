"""What a solution decides: the runs, and what has to be present at each stage because of them."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from lowtide.ir import Compute, Graph, Step
from lowtide.planners.cpsat.problem import Problem
from lowtide.planners.cpsat.stages import StageCase

__all__ = ["Choice", "choice_from_solution", "choice_from_steps", "stage_cases"]


@dataclass(frozen=True, slots=True)
class Choice:
    """Runs, and what they need.

    Attributes:
        runs: Pairs (stage, column): the column runs again in the stage.
        present: Pairs (stage, storage): the storage is present at the first execution of the stage.
        wanted: Those of ``present`` that some later execution can make use of.
    """

    runs: frozenset[tuple[int, int]]
    present: frozenset[tuple[int, int]]
    wanted: frozenset[tuple[int, int]]


def choice_from_steps(graph: Graph, problem: Problem, steps: Sequence[Step]) -> Choice:
    """Read the runs off a plan in the given order; every copy is kept up to its last use only.

    Args:
        graph: What the plan is for.
        problem: The same graph.
        steps: The plan.
    """
    position = {name: index for index, name in enumerate(graph.order)}
    runs: set[tuple[int, int]] = set()
    stage = 0
    for step in steps:
        if not isinstance(step, Compute):
            continue
        column = position[step.node]
        if column == stage:
            stage += 1
        elif stage in problem.runs_of(column):
            runs.add((stage, column))
    needed = frozenset(_wanted(problem, runs, None))
    return Choice(frozenset(runs), needed, needed)


def choice_from_solution(
    problem: Problem, runs: frozenset[tuple[int, int]], present: frozenset[tuple[int, int]]
) -> Choice:
    """What a solution of the model decides, and what of it is of use.

    Args:
        problem: What is planned.
        runs: The solution's runs.
        present: The solution's presences.
    """
    return Choice(runs, present, frozenset(_wanted(problem, runs, present)))


def stage_cases(problem: Problem, choice: Choice) -> Iterator[StageCase]:
    """The stages in which columns run again, one by one."""
    columns_by_stage: dict[int, list[int]] = {}
    for stage, column in sorted(choice.runs):
        columns_by_stage.setdefault(stage, []).append(column)
    storages = range(len(problem.storages))
    for stage, columns in columns_by_stage.items():
        yield StageCase(
            stage=stage,
            before=frozenset(index for index in storages if (stage - 1, index) in choice.present),
            after=frozenset(
                index
                for index in storages
                if (stage, index) in choice.wanted and problem.storages[index].column != stage
            ),
            runs=tuple(columns),
        )


def _wanted(
    problem: Problem,
    runs: frozenset[tuple[int, int]] | set[tuple[int, int]],
    present: frozenset[tuple[int, int]] | None,
) -> Iterator[tuple[int, int]]:
    """Where a storage is of use: there, to a run of the next stage, or later on.

    Args:
        problem: What is planned.
        runs: Pairs (stage, column).
        present: Where storages are present; None: wherever runs in the given order need them, so that a copy ends
            where the next one is made.
    """
    read_at: list[set[int]] = [set() for _ in problem.storages]
    for stage, column in runs:
        for index in problem.columns[column].reads:
            owner = problem.storages[index]
            is_made_before = owner.can_return and owner.column < column and (stage, owner.column) in runs
            if present is not None or not is_made_before:
                read_at[index].add(stage)
    for index, storage in enumerate(problem.storages):
        is_wanted = False
        for stage in range(problem.num_stages - 1, storage.column - 1, -1):
            is_made_next = present is None and storage.can_return and (stage + 1, storage.column) in runs
            is_wanted = storage.is_needed_at(stage) or stage + 1 in read_at[index] or (is_wanted and not is_made_next)
            if is_wanted and (present is None or (stage, index) in present):
                yield stage, index
