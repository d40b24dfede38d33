"""The constraints of Checkmate, one function each.

Source: Jain et al. 2020, section 4; equation numbers are those of the paper. Their stages and nodes are counted from 1.
"""

from __future__ import annotations

from lowtide.planners.checkmate.instance import Instance
from lowtide.planners.checkmate.program import Program
from lowtide.planners.checkmate.variables import Variables

__all__ = [
    "add_copies",
    "add_dependencies",
    "add_end",
    "add_freed_if_no_hazard",
    "add_frontier",
    "add_kept_from_before",
    "add_memory",
    "add_unfreed_if_hazard",
    "hazards",
]


def add_frontier(program: Program, variables: Variables, stage: int) -> None:
    """Stage t computes node t for the first time (frontier-advancing stages): R[t, t] = 1."""
    program.fix(variables.runs[stage, stage], 1.0)


def add_dependencies(program: Program, instance: Instance, variables: Variables, stage: int, node: int) -> None:
    """A node is computed only if each input is computed in the stage or kept: R[t, j] <= R[t, i] + S[t, i] (1b)."""
    for storage in instance.read_in(stage, node):
        sources = [(variables.kept[stage, storage], 1.0)] if (stage, storage) in variables.kept else []
        producer = instance.producers[storage]
        if producer < node and (stage, producer) in variables.runs and storage in instance.made_in(stage, producer):
            sources.append((variables.runs[stage, producer], 1.0))
        program.add_row([(variables.runs[stage, node], -1.0), *sources], least=0.0)


def add_kept_from_before(program: Program, instance: Instance, variables: Variables, stage: int, storage: int) -> None:
    """What is kept into a stage was computed in the one before or kept: S[t, i] <= R[t-1, i] + S[t-1, i] (1c)."""
    if stage == 0:
        return  # graph inputs are there before the first stage
    sources = [(variables.kept[stage - 1, storage], 1.0)] if (stage - 1, storage) in variables.kept else []
    producer = instance.producers[storage]
    if (stage - 1, producer) in variables.runs and storage in instance.made_in(stage - 1, producer):
        sources.append((variables.runs[stage - 1, producer], 1.0))
    program.add_row([(variables.kept[stage, storage], -1.0), *sources], least=0.0)


def add_end(program: Program, instance: Instance, variables: Variables) -> None:
    """Behind the last stage the storages that stay are resident, the others are not; takes the place of (1e)."""
    for storage, is_kept in enumerate(instance.is_kept):
        program.fix(variables.kept[instance.num_nodes, storage], float(is_kept))


def add_memory(program: Program, instance: Instance, variables: Variables, stage: int) -> None:
    """U[t, k] is what is kept into the stage, and what is made up to node k, less what is freed before k (2, 3).

    As a share of the budget; U's upper bound of 1 is the budget (1d), less the workspace of the running node.
    """
    before: int | None = None
    for node in range(stage + 1):
        if (stage, node) not in variables.runs:
            continue
        run, here = variables.runs[stage, node], variables.memory[stage, node]
        made = sum(instance.sizes[storage] for storage in instance.made_in(stage, node))
        terms = [(here, -1.0), (run, _share(instance, made))]
        if before is None:
            kept = ((index, variables.kept.get((stage, index))) for index in range(instance.num_storages))
            terms += [(v, _share(instance, instance.sizes[s])) for s, v in kept if v is not None and instance.sizes[s]]
        else:
            terms.append((variables.memory[stage, before], 1.0))
            terms += [
                (variables.freed[stage, storage, before], -_share(instance, instance.sizes[storage]))
                for storage in instance.touched_in(stage, before)
                if instance.sizes[storage]
            ]
        program.add_row(terms, least=0.0, most=0.0)
        scratch = instance.workspaces[node] + (instance.dropped[node] if node < stage else 0)
        if scratch:
            program.add_row([(here, 1.0), (run, _share(instance, scratch))], most=1.0)
        before = node


def hazards(
    instance: Instance, variables: Variables, stage: int, storage: int, node: int
) -> tuple[list[tuple[int, float]], float, int]:
    """What keeps a storage from being freed once a node is computed in a stage (5).

    Returns:
        Terms and a constant that add up to the number of hazards: the node is not computed, the storage is kept into
        the next stage, a later node of the stage reads it; and the largest such number.
    """
    terms = [(variables.runs[stage, node], -1.0), (variables.kept[stage + 1, storage], 1.0)]
    terms += [
        (variables.runs[stage, user], 1.0)
        for user in instance.users[storage]
        if user > node and (stage, user) in variables.runs and storage in instance.read_in(stage, user)
    ]
    return terms, 1.0, len(terms)


def add_freed_if_no_hazard(
    program: Program, instance: Instance, variables: Variables, stage: int, storage: int, node: int
) -> None:
    """Without a hazard the storage is freed: 1 - FREE <= hazards (6a)."""
    terms, constant, _ = hazards(instance, variables, stage, storage, node)
    program.add_row([*terms, (variables.freed[stage, storage, node], 1.0)], least=1.0 - constant)


def add_unfreed_if_hazard(
    program: Program, instance: Instance, variables: Variables, stage: int, storage: int, node: int
) -> None:
    """With a hazard it is not: hazards <= most hazards x (1 - FREE) (6b)."""
    terms, constant, most = hazards(instance, variables, stage, storage, node)
    program.add_row([*terms, (variables.freed[stage, storage, node], float(most))], most=most - constant)


def add_copies(program: Program, instance: Instance, variables: Variables, node: int) -> None:
    """A node is computed at most ``max_copies`` times; not in the paper."""
    if instance.max_copies is None:
        return
    runs = [variables.runs[stage, node] for stage in range(node, instance.num_nodes) if (stage, node) in variables.runs]
    if len(runs) > instance.max_copies:
        program.add_row([(run, 1.0) for run in runs], most=float(instance.max_copies))


def _share(instance: Instance, size_bytes: int) -> float:
    return size_bytes / max(1, instance.budget_bytes)
