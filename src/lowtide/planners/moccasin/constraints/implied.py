"""Constraints that follow from the others and make the solver see farther; not in the paper.

The faithful model is complete without them: they cut off no plan. CP-SAT's linear relaxation sees little of a
cumulative or a reservoir constraint, so the same facts are stated once more, stage by stage, in literals:

    runs[i, j]      execution i takes place in stage j
    held[i, t]      copy i is retained when the node of stage t runs for the first time (true implies so)

They are of the size copies x stages and are left out where that is too much (see ``model``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ortools.sat.python import cp_model

from lowtide.planners.moccasin.events import event_at
from lowtide.planners.moccasin.problem import Column, Problem, RetainedValue
from lowtide.planners.moccasin.variables import Execution, Variables

__all__ = [
    "StageLiterals",
    "add_held_needs_run",
    "add_instance_held",
    "add_run_needs_inputs",
    "add_stage_inputs_held",
    "add_stage_memory",
    "link_held",
    "link_runs",
]

_Literal = cp_model.IntVar


@dataclass(frozen=True)
class StageLiterals:
    """What happens stage by stage.

    Attributes:
        runs: For each column and recomputation (from execution 1 on): whether it takes place in a stage, by stage.
        held: For each value and copy: whether it is retained at the first execution of a stage, by stage.
    """

    runs: Sequence[Sequence[Mapping[int, _Literal]]]
    held: Mapping[str, Sequence[Mapping[int, _Literal]]]


def link_runs(model: cp_model.CpModel, column: Column, execution: Execution) -> dict[int, _Literal]:
    """Say in which stage a recomputation takes place; an absent one starts at its last event."""
    stages = range(column.position + 1, column.last_stage + 1)
    runs = {stage: model.new_bool_var(f"{column.node} runs in {stage}") for stage in stages}
    model.add_exactly_one(*runs.values(), ~execution.is_present)
    events = {stage: event_at(stage, column.position) for stage in stages}
    weighted = sum(events[stage] * literal for stage, literal in runs.items())
    model.add(execution.start == weighted + events[column.last_stage] * (1 - execution.is_present))
    return runs


def link_held(model: cp_model.CpModel, end: cp_model.IntVar, stages: Sequence[int]) -> dict[int, _Literal]:
    """Literals for the stages at which a copy or an instance is retained; a true one implies that it lasts so long.

    Only this direction is needed: every plan has a solution in which the literals say what is the case.

    Args:
        model: Receives the constraints.
        end: The last event of the copy or instance.
        stages: Stages to speak of, increasing, none before the first in which it can be made.
    """
    held = {stage: model.new_bool_var("") for stage in stages}
    for stage, literal in held.items():
        model.add(end >= event_at(stage, stage)).only_enforce_if(literal)
    return held


def add_held_needs_run(
    model: cp_model.CpModel, held: Mapping[int, _Literal], start_stages: Mapping[int, _Literal] | None
) -> None:
    """What is retained at a stage was retained at the stage before, or made since.

    Args:
        model: Receives the constraints.
        held: By stage.
        start_stages: In which stage it is made, by stage; None where it is made before all stages of ``held``.
    """
    for stage, literal in held.items():
        is_first = stage - 1 not in held
        if is_first and start_stages is None:
            continue
        sources = [] if is_first else [held[stage - 1]]
        if start_stages is not None and stage in start_stages:
            sources.append(start_stages[stage])
        model.add_bool_or(*sources, ~literal)


def add_instance_held(
    model: cp_model.CpModel,
    held_instance: Mapping[int, _Literal],
    held_copy: Mapping[int, _Literal],
    is_in_instance: _Literal | None = None,
) -> None:
    """An instance is held wherever a copy in it is; ``is_in_instance`` is None for the instance's own copy."""
    for stage, literal in held_copy.items():
        conditions = [literal] if is_in_instance is None else [literal, is_in_instance]
        model.add_bool_or(held_instance[stage], *(~condition for condition in conditions))


def add_stage_memory(
    model: cp_model.CpModel, fixed_bytes: int, demands: Sequence[tuple[int, _Literal]], capacity: cp_model.IntVar
) -> None:
    """At a first execution, its outputs and workspace and whatever is retained fit the capacity.

    Args:
        model: Receives one linear constraint.
        fixed_bytes: Bytes of the outputs and the workspace of the stage's node.
        demands: Bytes of every instance made before, and whether it is retained.
        capacity: Most bytes.
    """
    model.add(sum(size_bytes * literal for size_bytes, literal in demands) + fixed_bytes <= capacity)


def add_stage_inputs_held(model: cp_model.CpModel, held_copies: Sequence[_Literal]) -> None:
    """At a first execution some copy of the input is retained."""
    model.add_bool_or(held_copies)


def add_run_needs_inputs(model: cp_model.CpModel, run: _Literal, sources: Sequence[_Literal]) -> None:
    """A recomputation in a stage needs each input retained since the stage before, or made in the same stage."""
    model.add_bool_or(*sources, ~run)


def add_implied(model: cp_model.CpModel, problem: Problem, variables: Variables) -> StageLiterals:
    """Add all implied constraints of a model."""
    runs = [
        [link_runs(model, column, execution) for execution in executions[1:]]
        for column, executions in zip(problem.columns, variables.executions, strict=True)
    ]
    held = {value.name: _held(model, problem, value, variables, runs) for value in problem.values}
    literals = StageLiterals(runs, held)
    _add_all_stage_memory(model, problem, variables, literals)
    for value in problem.values:
        for reader in value.readers:
            add_stage_inputs_held(model, [copy[reader] for copy in held[value.name]])
            _add_all_run_needs(model, value, reader, literals)
    return literals


def _start_stages(
    value: RetainedValue, index: int, runs: Sequence[Sequence[Mapping[int, _Literal]]]
) -> Mapping[int, _Literal] | None:
    return None if value.column is None or index == 0 else runs[value.column][index - 1]


def _held(
    model: cp_model.CpModel,
    problem: Problem,
    value: RetainedValue,
    variables: Variables,
    runs: Sequence[Sequence[Mapping[int, _Literal]]],
) -> list[dict[int, _Literal]]:
    held = []
    for index, copy in enumerate(variables.copies[value.name]):
        start_stages = _start_stages(value, index, runs)
        held.append(link_held(model, copy.end, _stages_after(problem, value)))
        add_held_needs_run(model, held[-1], start_stages)
    return held


def _stages_after(problem: Problem, value: RetainedValue) -> range:
    return range(0 if value.column is None else value.column + 1, len(problem.columns))


def _add_all_stage_memory(
    model: cp_model.CpModel, problem: Problem, variables: Variables, literals: StageLiterals
) -> None:
    demands: dict[int, list[tuple[int, _Literal]]] = {column.position: [] for column in problem.columns}
    fixed_bytes = {column.position: column.workspace_bytes for column in problem.columns}
    for value in problem.values:
        if not value.size_bytes:
            continue
        if value.column is not None:
            fixed_bytes[value.column] += value.size_bytes
        shared = bool(problem.sharers_by_root[value.name])
        for index, instance in enumerate(variables.instances[value.name]):
            held = literals.held[value.name][index]
            if shared:
                held = link_held(model, instance.end, _stages_after(problem, value))
                add_held_needs_run(model, held, _start_stages(value, index, literals.runs))
                add_instance_held(model, held, literals.held[value.name][index])
                for sharer in problem.sharers_by_root[value.name]:
                    for copy_index, choices in enumerate(variables.is_in_instance[sharer.name]):
                        add_instance_held(model, held, literals.held[sharer.name][copy_index], choices[index])
            for stage, literal in held.items():
                demands[stage].append((value.size_bytes, literal))
    for stage, stage_demands in demands.items():
        add_stage_memory(model, fixed_bytes[stage], stage_demands, variables.capacity)


def _add_all_run_needs(model: cp_model.CpModel, value: RetainedValue, reader: int, literals: StageLiterals) -> None:
    for run_by_stage in literals.runs[reader]:
        for stage, run in run_by_stage.items():
            retained = [copy[stage - 1] for copy in literals.held[value.name] if stage - 1 in copy]
            others = [] if value.column is None else literals.runs[value.column]
            remade = [other[stage] for other in others if stage in other]
            add_run_needs_inputs(model, run, [*retained, *remade])
