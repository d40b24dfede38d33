"""The whole program, one constraint after another."""

from __future__ import annotations

from lowtide.planners.checkmate.constraints import (
    add_copies,
    add_dependencies,
    add_end,
    add_freed_if_no_hazard,
    add_frontier,
    add_kept_from_before,
    add_memory,
    add_unfreed_if_hazard,
)
from lowtide.planners.checkmate.instance import Instance
from lowtide.planners.checkmate.program import Program
from lowtide.planners.checkmate.variables import Variables, make_variables

__all__ = ["build_program"]


def build_program(instance: Instance) -> tuple[Program, Variables]:
    """Build the mixed-integer program of an instance."""
    program = Program()
    variables = make_variables(program, instance)
    for stage, node in variables.runs:
        add_dependencies(program, instance, variables, stage, node)
    for stage, storage in variables.kept:
        add_kept_from_before(program, instance, variables, stage, storage)
    for stage in range(instance.num_nodes):
        add_frontier(program, variables, stage)
        add_memory(program, instance, variables, stage)
    for stage, storage, node in variables.freed:
        add_freed_if_no_hazard(program, instance, variables, stage, storage, node)
        add_unfreed_if_hazard(program, instance, variables, stage, storage, node)
    for node in range(instance.num_nodes):
        add_copies(program, instance, variables, node)
    add_end(program, instance, variables)
    return program, variables
