"""Traces to simulate: small ones by hand, and random ones with everything in them."""

from __future__ import annotations

from random import Random

from lowtide.ir import Call, Event, Mark, MarkKind, Trace
from lowtide.ir.trace_sizes import LEAF_OP

MIB = 1 << 20


def leaf(name: str, size_bytes: int = MIB) -> Call:
    return Call(LEAF_OP, (), (name,), meta={"size_bytes": {name: size_bytes}, "kind": "parameter"})


def op(text: str, *, size_bytes: int = MIB, cost: int = 1000, in_place: bool = False, backward: bool = False) -> Call:
    """``"a b -> c"``; an op in place overwrites its first input."""
    inputs, outputs = (tuple(side.split()) for side in text.split("->"))
    overwrites = {outputs[0]: inputs[0]} if in_place else {}
    sizes = {name: size_bytes for name in outputs if name not in overwrites}
    return Call(
        "op",
        inputs,
        outputs,
        overwrites_by_output=overwrites,
        cost=cost,
        backward=backward,
        meta={"size_bytes": sizes} if sizes else {},
    )


def release(*names: str) -> list[Mark]:
    return [Mark(MarkKind.RELEASE, name) for name in names]


def trace_of(*events: Event, alignment: int = 64) -> Trace:
    return Trace(None, alignment, None, 0, "by hand", events)


def chain(length: int, *, size_bytes: int = MIB, cost: int = 1000) -> Trace:
    """x -> a0 -> a1 ... forward, then gradients back to the front, each of which needs the activation of its layer."""
    events: list[Event] = [leaf("x", size_bytes)]
    for index in range(length):
        source = f"a{index - 1}" if index else "x"
        events.append(op(f"{source} -> a{index}", size_bytes=size_bytes, cost=cost))
    gradient = f"a{length - 1}"
    for index in reversed(range(length)):
        source = f"a{index - 1}" if index else "x"
        events.append(op(f"{gradient} {source} -> g{index}", size_bytes=size_bytes, cost=cost, backward=True))
        events += release(f"a{index}") if gradient == f"a{index}" else release(gradient, f"a{index}")
        gradient = f"g{index}"
    return trace_of(*events)


def random_trace(rng: Random, *, num_calls: int, largest_bytes: int = 64 * 40, is_plain: bool = False) -> Trace:
    """Leaves, ops of one or two outputs, ops in place, views, scratch, opaque ops, releases in any order.

    A plain one has no ops in place, no opaque ones, no empty values, and keeps its leaves.
    """
    events: list[Event] = []
    alive: list[str] = []
    storage: dict[str, str] = {}
    num_values = 0

    def fresh() -> str:
        nonlocal num_values
        num_values += 1
        return f"v{num_values - 1}"

    def bind(name: str, owner: str | None = None) -> str:
        alive.append(name)
        storage[name] = storage[owner] if owner else name
        return name

    def end(names: list[str]) -> None:
        for name in names:
            alive.remove(name)
            events.append(Mark(MarkKind.RELEASE, name))

    kept: set[str] = set()
    events += [leaf(bind(fresh()), rng.randint(1, largest_bytes)) for _ in range(rng.randint(1, 3))]
    if is_plain:
        kept.update(alive)
    for index in range(num_calls):
        backward = index > num_calls * 0.6
        inputs = rng.sample(alive, min(len(alive), rng.randint(1, 3)))
        draw = rng.random()
        meta: dict[str, object] = {"recomputable": False} if rng.random() < 0.05 and not is_plain else {}
        if rng.random() < 0.1:
            meta["workspace_bytes"] = rng.randint(1, largest_bytes)
        cost = rng.randint(0, 2000)
        if draw < 0.2 and not is_plain:
            old = inputs[0]
            name = fresh()
            events.append(Call("in_place", tuple(inputs), (name,), {}, {name: old}, cost, False, backward, meta=meta))
            shared = [other for other in alive if storage[other] == storage[old]]
            owner = storage[old]
            end(list(reversed(shared)))
            alive.append(name)
            storage[name] = owner
        elif draw < 0.3:
            name = fresh()
            events.append(Call("view", (inputs[0],), (name,), {name: inputs[0]}, cost=0, backward=backward))
            bind(name, inputs[0])
        else:
            names = [fresh() for _ in range(rng.choice([1, 1, 1, 2]))]
            sizes = {name: rng.randint(1 if is_plain else 0, largest_bytes) for name in names}
            meta["size_bytes"] = sizes
            events.append(Call("op", tuple(inputs), tuple(names), cost=cost, backward=backward, meta=meta))
            for name in names:
                bind(name)
        while len(alive) > rng.randint(3, 12):
            gone = rng.choice(alive)
            if storage[gone] in kept:
                break
            end([other for other in alive if storage[other] == storage[gone]])
    return Trace(None, 64, None, 0, "random", tuple(events))


def residual_chain(num_blocks: int, *, num_inner: int) -> Trace:
    """Blocks of two branches, forward and back: a chain of ops, small but for the last, and one op beside it.

    y ──▶ m0 ──▶ m1 ... ──▶ + ──▶ y'
      └───────▶ d ─────────┘
    """
    large = 4 * MIB
    events: list[Event] = [leaf("x", large)]
    source = "x"
    for index in range(num_blocks):
        branch = source
        for inner in range(num_inner):
            is_last = inner == num_inner - 1
            events.append(op(f"{branch} -> m{index}_{inner}", size_bytes=large if is_last else MIB))
            branch = f"m{index}_{inner}"
        events.append(op(f"{source} -> d{index}", size_bytes=large))
        events.append(op(f"{branch} d{index} -> y{index}", size_bytes=large))
        source = f"y{index}"
    gradient = source
    for index in reversed(range(num_blocks)):
        source = f"y{index - 1}" if index else "x"
        inner_names = [f"m{index}_{inner}" for inner in range(num_inner)]
        read = f"{gradient} {inner_names[-1]} {inner_names[0]} {source}"
        events.append(op(f"{read} -> g{index}", size_bytes=large, backward=True))
        events += release(*dict.fromkeys([gradient, f"y{index}", f"d{index}", *inner_names]))
        gradient = f"g{index}"
    return trace_of(*events)
