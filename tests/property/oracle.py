"""A second, slow reading of what a plan means, to compare the referee with.

Nothing is counted as it goes: a state is a plain mapping from resident values to instances, every step makes a new one,
and all figures come from looking at the states again. It says only yes or no, never why.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeAlias

from lowtide.ir import Compute, Graph, Input, Layout, Node, Step, Value

Instance: TypeAlias = tuple[str, int]
State: TypeAlias = dict[str, Instance]


class Illegal(Exception):
    """The steps break a rule."""


def states_of(graph: Graph, steps: Sequence[Step]) -> list[tuple[set[Instance], int, State]]:
    """The instances that exist at each step, its workspace, and what is resident after it; raises Illegal."""
    state: State = {item.name: (item.name, 0) for item in graph.inputs}
    seen: list[tuple[set[Instance], int, State]] = []
    executed: list[str] = []
    for step in steps:
        if isinstance(step, Compute):
            node = next((item for item in graph.nodes if item.name == step.node), None)
            require(node is not None)
            assert node is not None
            fresh, after = execute(node, executed.count(node.name), state, executed, graph)
            seen.append(({*state.values(), *fresh}, node.workspace_bytes, after))
            executed.append(node.name)
            state = after
        else:
            require(step.value in state and graph.value_by_name[step.value].evictable)
            state = {name: instance for name, instance in state.items() if name != step.value}
            seen.append((set(state.values()), 0, state))
    require(set(executed) == set(graph.order) and set(graph.outputs) <= set(state))
    require(all(name in graph.outputs or not graph.value_by_name[name].evictable for name in state))
    return seen


def execute(node: Node, count: int, state: State, executed: Sequence[str], graph: Graph) -> tuple[set[Instance], State]:
    """The fresh instances of an execution, and what is resident after it."""
    require(set(node.inputs) <= set(state))
    require(count == 0 or (node.recomputable and set(node.recompute_inputs) <= set(state)))
    require(count > 0 or set(node.after) <= set(executed))
    made = [value for value in node.outputs if count == 0 or not value.first_only]
    where = {value.name: place(value, node, count, state) for value in made}
    lost = {state[value.overwrites] for value in made if value.overwrites}
    after = {name: instance for name, instance in state.items() if instance not in lost}
    for value in made:
        root = chain(value, node)[-1]
        is_stale = root.overwrites is None and where[value.name] in lost
        if value.name not in after and not is_stale:
            after[value.name] = where[value.name]
    return {(value.name, count) for value in made if value.alias_of is None and value.overwrites is None}, after


def chain(value: Value, node: Node) -> list[Value]:
    """The value and the siblings whose view it is, one after another."""
    nexts = [sibling for sibling in node.outputs if sibling.name == value.alias_of]
    return [value, *(chain(nexts[0], node) if nexts else [])]


def place(value: Value, node: Node, count: int, state: State) -> Instance:
    """The instance to which an output refers."""
    root = chain(value, node)[-1]
    source = root.overwrites or root.alias_of
    return (root.name, count) if source is None else state[source]


def require(condition: bool) -> None:
    if not condition:
        raise Illegal


def size_of(instance: Instance, graph: Graph) -> int:
    value = graph.value_by_name[instance[0]]
    return 0 if isinstance(value, Input) and not value.is_counted else value.size_bytes


def memory_of(graph: Graph, steps: Sequence[Step]) -> list[int] | None:
    """Bytes at each step, or None where the steps are illegal."""
    try:
        states = states_of(graph, steps)
    except Illegal:
        return None
    return [sum(size_of(item, graph) for item in instances) + scratch for instances, scratch, _ in states]


def frees_an_instance(graph: Graph, steps: Sequence[Step], index: int) -> bool:
    """Whether the eviction at this step is that of the last value of its instance."""
    states = [after for _, _, after in states_of(graph, steps)]
    before = states[index - 1] if index else {item.name: (item.name, 0) for item in graph.inputs}
    return set(before.values()) != set(states[index].values())


def is_layout_valid(graph: Graph, steps: Sequence[Step], layout: Layout) -> bool:
    """Look at every pair of placements at every step."""
    boxes_by_step: list[list[tuple[int, int]]] = []
    address: Mapping[tuple[bool, str, int], tuple[int, int]] = {
        (item.is_workspace, item.name, item.occurrence): (item.offset, item.size_bytes) for item in layout.placements
    }
    if len(address) != len(layout.placements):
        return False
    needed: dict[tuple[bool, str, int], int] = {}
    optional = {(False, item.name, 0) for item in graph.inputs if item.is_counted}  # may be gone before step 0
    needed.update({key: size_of((key[1], 0), graph) for key in optional})
    executed: list[str] = []
    for step, (instances, scratch, _) in zip(steps, states_of(graph, steps), strict=True):
        keys = {(False, *item): size_of(item, graph) for item in instances if is_counted(item, graph)}
        if isinstance(step, Compute):
            keys[True, step.node, executed.count(step.node)] = scratch
            executed.append(step.node)
        needed.update(keys)
        boxes_by_step.append([address[key] for key, size_bytes in keys.items() if size_bytes and key in address])
    is_complete = all(key in address for key, size_bytes in needed.items() if size_bytes)
    is_exact = all(
        key in needed and needed[key] == size and not (key[0] and size == 0) for key, (_, size) in address.items()
    )
    is_aligned = all(offset >= 0 and offset % graph.alignment == 0 for offset, _ in address.values())
    return is_complete and is_exact and is_aligned and all(map(are_disjoint, boxes_by_step))


def is_counted(instance: Instance, graph: Graph) -> bool:
    value = graph.value_by_name[instance[0]]
    return not isinstance(value, Input) or value.is_counted


def are_disjoint(boxes: Sequence[tuple[int, int]]) -> bool:
    return all(
        one[0] + one[1] <= other[0] or other[0] + other[1] <= one[0]
        for index, one in enumerate(boxes)
        for other in boxes[index + 1 :]
    )
