"""The nouns, all frozen: graph, plan, layout, trace, interval, and their files (serde)."""

from lowtide.ir.block import Block, End
from lowtide.ir.graph import BOUNDARY_OP, INPUTS_OP, Graph, Input, InputKind, Node, Value
from lowtide.ir.interval import Interval
from lowtide.ir.layout import Layout, Lifespan, Placement
from lowtide.ir.plan import Compute, Evict, Incumbent, Plan, PlanResult, Scope, Status, Step
from lowtide.ir.trace import BlockKind, Call, Event, Mark, MarkKind, Memory, MemoryKind, Trace

__all__ = [
    "BOUNDARY_OP",
    "INPUTS_OP",
    "Block",
    "BlockKind",
    "Call",
    "Compute",
    "End",
    "Event",
    "Evict",
    "Graph",
    "Incumbent",
    "Input",
    "InputKind",
    "Interval",
    "Layout",
    "Lifespan",
    "Mark",
    "MarkKind",
    "Memory",
    "MemoryKind",
    "Node",
    "Placement",
    "Plan",
    "PlanResult",
    "Scope",
    "Status",
    "Step",
    "Trace",
    "Value",
]
