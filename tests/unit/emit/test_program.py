"""Steps as executions and copies, by hand."""

from lowtide.emit.program import Execution, needed_executions, program_of
from lowtide.ir import Compute, Evict, Graph, Input, Node, Value


def node(name: str, *inputs: str, alias_of: str | None = None) -> Node:
    size_bytes = 0 if alias_of else 16
    return Node(name, "RELU", 1, inputs, (Value(f"{name}.out", size_bytes, alias_of=alias_of),))


def graph(*nodes: Node, outputs: tuple[str, ...]) -> Graph:
    order = tuple(each.name for each in nodes)
    return Graph("g", (Input("x", 16, evictable=False),), nodes, outputs, order)


DIAMOND = graph(node("a", "x"), node("b", "a.out"), node("c", "a.out", "b.out"), outputs=("c.out",))


def test_once_each() -> None:
    program = program_of(DIAMOND, [Compute("a"), Compute("b"), Compute("c"), Evict("a.out"), Evict("b.out")])
    assert program.executions[2] == Execution(
        "c", {"a.out": ("a.out", 0), "b.out": ("b.out", 0)}, {"c.out": ("c.out", 0)}
    )


def test_a_recomputed_value_is_a_copy_of_its_own() -> None:
    steps = [
        Compute("a"), Compute("b"), Evict("a.out"), Compute("a"), Compute("c"), Evict("a.out"), Evict("b.out"),
    ]  # fmt: skip
    program = program_of(DIAMOND, steps)
    assert [execution.node for execution in program.executions] == ["a", "b", "a", "c"]
    assert program.executions[1].copy_by_input == {"a.out": ("a.out", 0)}
    assert program.executions[3].copy_by_input["a.out"] == ("a.out", 1)
    assert program.kept["a.out"] == ("a.out", 0)


def test_a_fresh_copy_of_what_is_resident_is_read_by_nobody() -> None:
    steps = [Compute("a"), Compute("a"), Compute("b"), Compute("c"), Evict("a.out"), Evict("b.out")]
    program = program_of(DIAMOND, steps)
    assert program.executions[1].copy_by_output == {"a.out": ("a.out", 1)}
    assert program.executions[2].copy_by_input == {"a.out": ("a.out", 0)}


def test_what_is_dropped_unread_and_executed_again_is_not_needed() -> None:
    """Also what only that reads; a node that is executed once stays, though nothing reads it."""
    steps = [
        Compute("a"), Compute("b"), Evict("b.out"), Evict("a.out"), Compute("a"), Compute("b"), Compute("c"),
        Evict("a.out"), Evict("b.out"),
    ]  # fmt: skip
    program = program_of(DIAMOND, steps)
    assert needed_executions(program) == program.executions[2:]
    unread = graph(node("a", "x"), node("b", "a.out"), outputs=("a.out",))
    program = program_of(unread, [Compute("a"), Compute("b"), Evict("b.out")])
    assert needed_executions(program) == program.executions
    twice = [Compute("a"), Compute("b"), Evict("b.out"), Compute("b"), Evict("b.out")]
    assert [execution.node for execution in needed_executions(program_of(unread, twice))] == ["a", "b"]


def test_an_output_keeps_the_copy_that_is_there_at_the_end() -> None:
    both = graph(node("a", "x"), node("b", "a.out"), outputs=("a.out", "b.out"))
    program = program_of(both, [Compute("a"), Compute("b"), Evict("a.out"), Compute("a")])
    assert program.kept == {"x": ("x", 0), "a.out": ("a.out", 1), "b.out": ("b.out", 0)}


def test_a_view_has_the_bytes_of_the_copy_that_it_was_made_of() -> None:
    viewed = graph(
        node("a", "x"), node("v", "a.out", alias_of="a.out"), node("w", "v.out", alias_of="v.out"), node("b", "w.out"),
        outputs=("b.out",),
    )  # fmt: skip
    steps = [
        Compute("a"), Compute("v"), Evict("a.out"), Evict("v.out"), Compute("a"), Compute("v"), Compute("w"),
        Compute("b"), Evict("a.out"), Evict("v.out"), Evict("w.out"),
    ]  # fmt: skip
    program = program_of(viewed, steps)
    assert program.storage_by_copy[("v.out", 0)] == ("a.out", 0)
    assert program.storage_by_copy[("v.out", 1)] == ("a.out", 1)
    assert program.storage_by_copy[("w.out", 0)] == ("a.out", 1)


def test_what_is_overwritten_comes_back_as_another_copy() -> None:
    in_place = Node("b", "RELU", 1, ("a.out",), (Value("b.out", 0, overwrites="a.out"),))
    written = graph(node("a", "x"), in_place, node("c", "a.out", "b.out"), outputs=("c.out",))
    steps = [Compute("a"), Compute("b"), Compute("a"), Compute("c"), Evict("a.out"), Evict("b.out")]
    program = program_of(written, steps)
    assert program.storage_by_copy[("b.out", 0)] == ("a.out", 0)
    assert program.executions[3].copy_by_input == {"a.out": ("a.out", 1), "b.out": ("b.out", 0)}
