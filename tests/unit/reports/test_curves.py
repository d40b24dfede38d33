"""Memory over time, cut into pieces."""

from __future__ import annotations

from lowtide.ir import Graph, Input, Node, Value
from lowtide.ir.sequence import baseline_steps, steps_from_sequence
from lowtide.referee import replay
from lowtide.reports.curves import Curve, curve_of


def chain() -> Graph:
    """Memory 5, 9, 12 while a (duration 2), b (1), c (0) run; c's step has no duration, but its peak counts."""
    return Graph(
        name="chain",
        inputs=(Input("x", 1, evictable=False),),
        nodes=(
            Node("a", "op", 2, ("x",), (Value("va", 4),)),
            Node("b", "op", 1, ("va",), (Value("vb", 4),)),
            Node("c", "op", 0, ("va", "vb"), (Value("vc", 3),)),
        ),
        outputs=("vc",),
        order=("a", "b", "c"),
    )


def test_curve_has_the_peak_of_each_piece() -> None:
    graph = chain()
    steps = baseline_steps(graph)
    assert curve_of(graph, steps, replay(graph, steps), duration=3, num_pieces=3) == Curve((5, 5, 12))
    assert curve_of(graph, steps, replay(graph, steps), duration=6, num_pieces=6) == Curve((5, 5, 9, 12, 0, 0))


def test_curve_covers_recomputation() -> None:
    graph = chain()
    steps = steps_from_sequence(graph, ("a", "b", "a", "c"))
    assert curve_of(graph, steps, replay(graph, steps), duration=5, num_pieces=5) == Curve((5, 5, 9, 9, 12))
