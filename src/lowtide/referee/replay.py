"""What a plan means: its steps, carried out one by one on nothing but names and sizes.

    step        0: compute a    1: compute v    2: evict a     3: evict v
    value a     ■───────────────■───────────────╴
    value v                     ■───────────────■──────────────╴        v is a view of a
    instance a#0 ■──────────────■───────────────■              ╴        lives until its last value is evicted

A *storage instance* is the bytes that one execution of a node allocates for one value. Values refer to instances; an
instance lives until no resident value refers to it. Rules that are a matter of choice, decided here:

- An alias of a sibling output refers to the instance of *this* execution, also where the sibling itself was still
  resident and its fresh copy is dropped: that is what executing the operation does.
- An alias that is still resident keeps the instance to which it referred.
- Overwriting an input ends all values that refer to its instance, except the outputs that overwrite it and their
  aliases.
- Every node is executed at least once: its effects (random state, running statistics) belong to the result.
- The boundary needs no rule of its own: what depends on it needs its outputs, or comes ``after`` it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from lowtide.errors import PlanRejected
from lowtide.ir import Compute, Graph, Interval, Lifespan, Node, Step, Value

__all__ = ["Replay", "lifespans_of_any_size", "replay"]


@dataclass(frozen=True, slots=True)
class Replay:
    """The figures of a legal sequence of steps, recomputed from scratch.

    Attributes:
        memory_bytes: Bytes of all counted instances and the workspace at each step; at an evict step: after it.
        peak_bytes: The largest of ``memory_bytes``; 0 without steps.
        peak_step: The first step (0-based) with that much memory; None without steps.
        duration: Sum over the compute steps.
        num_recomputes: Executions beyond the first, nodes that only make views left out.
        num_copies_by_node: How often each node was executed.
        first_executions: All nodes in the order in which they were executed first.
        lifespans: For which steps each counted instance and each workspace above 0 bytes needs an address, fresh copies
            that are dropped at once included, by the step at which they begin.
    """

    memory_bytes: tuple[int, ...]
    peak_bytes: int
    peak_step: int | None
    duration: int
    num_recomputes: int
    num_copies_by_node: Mapping[str, int]
    first_executions: tuple[str, ...]
    lifespans: tuple[Lifespan, ...]


def replay(graph: Graph, steps: Sequence[Step], *, durations: Sequence[int] | None = None) -> Replay:
    """Carry out the steps of a plan.

    Args:
        graph: What is executed.
        steps: What to compute and what to evict.
        durations: Of the graph's nodes, in their order, in the graph's unit; None for those of the graph.

    Returns:
        What the steps need and take.

    Raises:
        PlanRejected: The first rule that is broken, with the step.
    """
    duration_by_node = _duration_by_node(graph, durations)
    machine = _carry_out(graph, steps)
    memory_bytes = tuple(machine.memory_bytes)
    peak_bytes = max(memory_bytes, default=0)
    copies = machine.num_copies_by_node
    return Replay(
        memory_bytes=memory_bytes,
        peak_bytes=peak_bytes,
        peak_step=memory_bytes.index(peak_bytes) if memory_bytes else None,
        duration=sum(count * duration_by_node[name] for name, count in copies.items()),
        num_recomputes=sum(copies[node.name] - 1 for node in graph.nodes if not node.is_view),
        num_copies_by_node=copies,
        first_executions=tuple(copies),
        lifespans=tuple(lifespan for lifespan in machine.lifespans() if lifespan.size_bytes),
    )


def lifespans_of_any_size(graph: Graph, steps: Sequence[Step]) -> tuple[Lifespan, ...]:
    """The lifespans of a legal sequence of steps, those of 0 bytes included.

    Raises:
        PlanRejected: The first rule that is broken, with the step.
    """
    return _carry_out(graph, steps).lifespans()


def _carry_out(graph: Graph, steps: Sequence[Step]) -> _Machine:
    machine = _Machine(graph)
    for step in steps:
        machine.carry_out(step)
    machine.check_end()
    return machine


def _duration_by_node(graph: Graph, durations: Sequence[int] | None) -> Mapping[str, int]:
    if durations is None:
        return {node.name: node.duration for node in graph.nodes}
    if len(durations) != len(graph.nodes):
        raise PlanRejected(
            "durations", f"{len(durations)} durations for {len(graph.nodes)} nodes: give one for each, in their order"
        )
    for node, duration in zip(graph.nodes, durations, strict=True):
        if duration < 0:
            raise PlanRejected("durations", f"duration {duration!r} of node {node.name!r} is below 0")
    return {node.name: duration for node, duration in zip(graph.nodes, durations, strict=True)}


@dataclass(slots=True, eq=False)
class _Instance:
    """The bytes that one execution allocated for one value, and who refers to them."""

    name: str
    occurrence: int
    size_bytes: int
    is_counted: bool
    start: int
    end: int | None = None
    values: set[str] = field(default_factory=set)


class _Machine:
    """What is resident, and what has been."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.step = 0
        self.memory_bytes: list[int] = []
        self.num_copies_by_node: dict[str, int] = {}
        self._instance_by_value: dict[str, _Instance] = {}
        self._instances: list[_Instance] = []
        self._workspaces: list[Lifespan] = []
        self._resident_bytes = 0
        for graph_input in graph.inputs:
            instance = self._allocate(graph_input.name, 0, graph_input.size_bytes, is_counted=graph_input.is_counted)
            self._refer(graph_input.name, instance)

    def carry_out(self, step: Step) -> None:
        """Check one step, do it, and note the memory it needs."""
        memory_bytes = self._compute(step.node) if isinstance(step, Compute) else self._evict(step.value)
        self.memory_bytes.append(memory_bytes)
        self.step += 1

    def check_end(self) -> None:
        """Check what must hold after the last step."""
        if missing := [name for name in self.graph.order if name not in self.num_copies_by_node]:
            raise PlanRejected("every-node", f"node {missing[0]!r} is never computed: compute every node")
        for name in self.graph.outputs:
            if name not in self._instance_by_value:
                raise PlanRejected(
                    "outputs-resident", f"graph output {name!r} is not resident after the last step: keep it"
                )
        kept = set(self.graph.outputs)
        for name in self._instance_by_value:
            if name not in kept and self.graph.value_by_name[name].evictable:
                raise PlanRejected("only-outputs", f"value {name!r} is still resident after the last step: evict it")

    def lifespans(self) -> tuple[Lifespan, ...]:
        """Every counted instance and every workspace so far, by the step at which it begins."""
        spans = [
            Lifespan(
                name=instance.name,
                occurrence=instance.occurrence,
                interval=Interval(instance.start, self.step if instance.end is None else instance.end),
                size_bytes=instance.size_bytes,
            )
            for instance in self._instances
            if instance.is_counted
        ]
        return tuple(sorted(spans + self._workspaces, key=lambda span: span.interval.start))

    def _evict(self, name: str) -> int:
        value = self.graph.value_by_name.get(name)
        if value is None:
            raise self._broken("known-value", f"value {name!r:.200} is not in the graph: evict one of its values")
        if name not in self._instance_by_value:
            raise self._broken("evict-resident", f"value {name!r} is evicted but not resident: leave the step out")
        if not value.evictable:
            raise self._broken("evictable", f"value {name!r} is not evictable: leave the step out")
        instance = self._forget(name)
        self._free_if_unused(instance, end=self.step)
        return self._resident_bytes

    def _compute(self, name: str) -> int:
        node = self.graph.node_by_name.get(name)
        if node is None:
            raise self._broken("known-node", f"node {name!r:.200} is not in the graph: compute one of its nodes")
        occurrence = self.num_copies_by_node.get(name, 0)
        self._check_may_run(node, occurrence)
        produced = [value for value in node.outputs if not occurrence or not value.first_only]
        fresh = {
            value.name: self._allocate(value.name, occurrence, value.size_bytes, is_counted=True)
            for value in produced
            if value.owns_storage
        }
        memory_bytes = self._resident_bytes + node.workspace_bytes
        if node.workspace_bytes:
            scratch = Interval(self.step, self.step + 1)
            self._workspaces.append(Lifespan(name, occurrence, scratch, node.workspace_bytes, is_workspace=True))
        self._bind(node, produced, fresh)
        self.num_copies_by_node[name] = occurrence + 1
        return memory_bytes

    def _check_may_run(self, node: Node, occurrence: int) -> None:
        if occurrence and not node.recomputable:
            raise self._broken("recomputable", f"node {node.name!r} must not be executed twice: keep its outputs")
        if not occurrence:
            for name in node.after:
                if name not in self.num_copies_by_node:
                    raise self._broken("after", f"node {node.name!r} comes before node {name!r}: compute that first")
        self._check_resident(node, "input", node.inputs)
        if occurrence:
            self._check_resident(node, "recompute input", node.recompute_inputs)

    def _check_resident(self, node: Node, role: str, names: Iterable[str]) -> None:
        for name in names:
            if name not in self._instance_by_value:
                rule = f"{role}s-resident".replace(" ", "-")
                raise self._broken(rule, f"{role} {name!r} of node {node.name!r} is not resident: keep or recompute it")

    def _bind(self, node: Node, produced: Sequence[Value], fresh: Mapping[str, _Instance]) -> None:
        """Let the produced values refer to their instances, end what they overwrite, drop fresh copies of residents."""
        instance_by_source = {name: self._instance_by_value[name] for name in node.inputs}
        instance_by_source.update(fresh)
        overwritten = {value.overwrites for value in produced if value.overwrites is not None}
        ended = [instance_by_source[name] for name in sorted(overwritten)]
        siblings = {value.name: value for value in node.outputs}
        for instance in ended:
            for name in tuple(instance.values):
                self._forget(name)
        for value in produced:
            source = _source_of(value, siblings)
            instance = instance_by_source[source.overwrites or source.alias_of or source.name]
            is_ended = source.overwrites is None and instance in ended
            if not is_ended and value.name not in self._instance_by_value:
                self._refer(value.name, instance)
        for instance in [*fresh.values(), *ended]:
            self._free_if_unused(instance, end=self.step + 1)

    def _allocate(self, name: str, occurrence: int, size_bytes: int, *, is_counted: bool) -> _Instance:
        instance = _Instance(name, occurrence, size_bytes, is_counted, start=self.step)
        self._instances.append(instance)
        self._resident_bytes += size_bytes if is_counted else 0
        return instance

    def _free_if_unused(self, instance: _Instance, *, end: int) -> None:
        if instance.values or instance.end is not None:
            return
        instance.end = end
        self._resident_bytes -= instance.size_bytes if instance.is_counted else 0

    def _refer(self, name: str, instance: _Instance) -> None:
        self._instance_by_value[name] = instance
        instance.values.add(name)

    def _forget(self, name: str) -> _Instance:
        instance = self._instance_by_value.pop(name)
        instance.values.remove(name)
        return instance

    def _broken(self, rule: str, message: str) -> PlanRejected:
        return PlanRejected(rule, message, step=self.step)


def _source_of(value: Value, siblings: Mapping[str, Value]) -> Value:
    """The end of a chain of aliases among the outputs of one node."""
    while value.alias_of is not None and value.alias_of in siblings:
        value = siblings[value.alias_of]
    return value
