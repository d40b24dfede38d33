"""What one impossible stage says about all plans.

A stage that cannot be carried out stays impossible with less present before it, more needed after it, and fewer columns
that run. So the stage is first made as easy as it can be while it stays impossible; then every plan that avoids it has
something else present before, or lacks something after, or runs another column: a clause.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from ortools.sat.python import cp_model

from lowtide.planners.cpsat.model import Model
from lowtide.planners.cpsat.problem import Problem
from lowtide.planners.cpsat.stages import Carried, StageCase, is_beyond

__all__ = ["add_stage_cut", "easiest_case"]

_MAX_STATES = 2_000
"""Of each attempt to make a stage easier; where they are not enough the stage stays as it was."""


def add_stage_cut(model: Model, case: StageCase, carried: Carried) -> None:
    """Forbid what was found impossible, or charge what was found dearer.

    Args:
        model: Receives the cut.
        case: The stage.
        carried: The cheapest way to carry it out: none, or one that takes longer than one run of each column.
    """
    extra = None if carried.sequence is None else carried.duration - case.duration(model.problem)
    assert extra is None or extra > 0
    easiest = easiest_case(model.problem, case, extra_duration=extra)
    model.add_cut(case.stage, list(_escapes(model, easiest)), extra)


def easiest_case(problem: Problem, case: StageCase, *, extra_duration: int | None) -> StageCase:
    """A case that is easier than the given one and still impossible, or still so much dearer."""

    def is_still(easier: StageCase) -> bool:
        return is_beyond(problem, easier, extra_duration=extra_duration, max_states=_MAX_STATES)

    for column in problem.runs_in(case.stage) if extra_duration is None else ():
        if column not in case.runs:
            easier = replace(case, runs=tuple(sorted((*case.runs, column))))
            case = easier if is_still(easier) else case
    for index in sorted(case.after, key=lambda index: problem.storages[index].size_bytes):
        if not problem.storages[index].is_needed_at(case.stage):
            easier = replace(case, after=case.after - {index})
            case = easier if is_still(easier) else case
    for index, storage in enumerate(problem.storages):
        if index not in case.before and storage.may_be_present_at(case.stage - 1):
            easier = replace(case, before=case.before | {index})
            case = easier if is_still(easier) else case
    return case


def _escapes(model: Model, case: StageCase) -> Iterator[cp_model.LiteralT]:
    """Literals one of which is true in every plan that does not run into the case."""
    variables, problem = model.variables, model.problem
    yield from (variables.runs[case.stage, column] for column in problem.runs_in(case.stage) if column not in case.runs)
    for index in range(len(problem.storages)):
        before, after = variables.present.get((case.stage - 1, index)), variables.present.get((case.stage, index))
        if before is not None and index not in case.before:
            yield before
        if after is not None and index in case.after:
            yield ~after
