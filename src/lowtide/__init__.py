"""Train and run neural networks within a memory budget given in bytes, with the same result to the bit.

    graph = lowtide.capture(model, inputs, loss=loss)
    result = lowtide.plan(graph, budget="60%")

The public names are loaded when they are first used: ``import lowtide`` imports neither torch nor a solver.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from lowtide.api import (
        Analysis,
        PlannerFailed,
        analyze,
        budget,
        capture,
        compare,
        compile,  # noqa: A004 - the name users know from torch.compile
        last_compilation,
        minimum_budget,
        plan,
        require_plan,
        simulate,
        sweep,
        verify,
    )
    from lowtide.emit.onnx_session import onnx_session
    from lowtide.errors import (
        BudgetOverrun,
        CompileError,
        FormatError,
        GraphError,
        InfeasibleBudget,
        InputError,
        LayoutRejected,
        LowtideError,
        MissingDependency,
        NoPlanFound,
        PlanningError,
        PlanRejected,
        RefereeError,
        ShimError,
        TraceRejected,
        UnitError,
    )
    from lowtide.ir import Graph, Plan, PlanResult, Status, Trace
    from lowtide.ir.serde import load_graph, load_plan, load_trace, save_graph, save_plan, save_trace
    from lowtide.referee import VerifiedPlan
    from lowtide.runtime.errors import LowtideOutOfMemory
    from lowtide.simulator.result import Simulation

__version__ = "0.1.0"

__all__ = [
    "Analysis",
    "BudgetOverrun",
    "CompileError",
    "FormatError",
    "Graph",
    "GraphError",
    "InfeasibleBudget",
    "InputError",
    "LayoutRejected",
    "LowtideError",
    "LowtideOutOfMemory",
    "MissingDependency",
    "NoPlanFound",
    "Plan",
    "PlanRejected",
    "PlanResult",
    "PlannerFailed",
    "PlanningError",
    "RefereeError",
    "ShimError",
    "Simulation",
    "Status",
    "Trace",
    "TraceRejected",
    "UnitError",
    "VerifiedPlan",
    "__version__",
    "analyze",
    "budget",
    "capture",
    "compare",
    "compile",
    "last_compilation",
    "load_graph",
    "load_plan",
    "load_trace",
    "minimum_budget",
    "onnx_session",
    "plan",
    "require_plan",
    "save_graph",
    "save_plan",
    "save_trace",
    "simulate",
    "sweep",
    "verify",
]

# Every name but the version, and the module that defines it.
_MODULE_BY_NAME = {
    **dict.fromkeys(
        (
            "Analysis",
            "PlannerFailed",
            "analyze",
            "budget",
            "capture",
            "compare",
            "compile",
            "last_compilation",
            "minimum_budget",
            "plan",
            "require_plan",
            "simulate",
            "sweep",
            "verify",
        ),
        "lowtide.api",
    ),
    **dict.fromkeys((name for name in __all__ if name.endswith(("Error", "Rejected"))), "lowtide.errors"),
    **dict.fromkeys(("BudgetOverrun", "InfeasibleBudget", "MissingDependency", "NoPlanFound"), "lowtide.errors"),
    **dict.fromkeys(("Graph", "Plan", "PlanResult", "Status", "Trace"), "lowtide.ir"),
    **dict.fromkeys(
        ("load_graph", "load_plan", "load_trace", "save_graph", "save_plan", "save_trace"), "lowtide.ir.serde"
    ),
    "Simulation": "lowtide.simulator.result",
    "VerifiedPlan": "lowtide.referee",
    "LowtideOutOfMemory": "lowtide.runtime.errors",
    "onnx_session": "lowtide.emit.onnx_session",
}


def __getattr__(name: str) -> Any:
    """Load a public name at its first use."""
    if name not in _MODULE_BY_NAME:
        raise AttributeError(f"module 'lowtide' has no attribute {name!r}")
    found = getattr(importlib.import_module(_MODULE_BY_NAME[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
