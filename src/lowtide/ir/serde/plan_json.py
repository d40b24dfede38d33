"""Plans as ``lowtide.plan`` JSON.

Version 2 added the scope's order ``staged``. A plan is written in the oldest version that can say it, so that whoever
reads version 1 goes on reading every other plan.
"""

from __future__ import annotations

import math
from typing import Any

from lowtide.errors import FormatError
from lowtide.ir.layout import Layout, Placement
from lowtide.ir.plan import Compute, Evict, Incumbent, Plan, Scope, Status, Step
from lowtide.ir.serde.fields import Fields
from lowtide.ir.serde.graph_json import check_header, graph_from_document, graph_to_document

__all__ = ["PLAN_VERSION", "plan_from_document", "plan_to_document"]

PLAN_VERSION = 2
_FORMAT = "lowtide.plan"
_ORDERS_BY_VERSION = {1: ("fixed", "free"), 2: ("fixed", "free", "staged")}


def plan_to_document(plan: Plan) -> dict[str, Any]:
    """The JSON document of a plan."""
    return {
        "format": _FORMAT,
        "version": 1 if plan.scope.order in _ORDERS_BY_VERSION[1] else PLAN_VERSION,
        "graph_sha256": plan.graph_sha256,
        "planner": plan.planner,
        "seed": plan.seed,
        "threads": plan.threads,
        "status": str(plan.status),
        "scope": {"order": plan.scope.order, "max_copies": plan.scope.max_copies},
        "budget_bytes": plan.budget_bytes,
        "peak_bytes": plan.peak_bytes,
        "footprint_bytes": plan.footprint_bytes,
        "duration": plan.duration,
        "baseline_duration": plan.baseline_duration,
        "lower_bound_duration": plan.lower_bound_duration,
        "durations": list(plan.durations),
        "steps": [_step_to_document(step) for step in plan.steps],
        **({"layout": _layout_to_document(plan.layout)} if plan.layout is not None else {}),
        **({"incumbents": [_incumbent_to_document(item) for item in plan.incumbents]} if plan.incumbents else {}),
        **({"graph": graph_to_document(plan.graph)} if plan.graph is not None else {}),
        **({"meta": dict(plan.meta)} if plan.meta else {}),
    }


def plan_from_document(document: Any, where: str) -> Plan:
    """Read a plan from its JSON document. The figures in it are claims until the referee has checked them.

    Raises:
        FormatError: The document breaks the format.
    """
    with Fields(document, where) as fields:
        version = check_header(fields, expected_format=_FORMAT, newest_version=PLAN_VERSION)
        return Plan(
            graph_sha256=fields.text("graph_sha256"),
            planner=fields.text("planner"),
            seed=fields.whole("seed", 0),
            threads=fields.whole("threads", 1),
            status=_read_status(fields),
            scope=scope_from_document(fields.raw("scope"), f"{where}: scope", version=version),
            budget_bytes=fields.whole("budget_bytes"),
            peak_bytes=fields.whole("peak_bytes"),
            footprint_bytes=fields.optional_whole("footprint_bytes"),
            duration=fields.whole("duration"),
            baseline_duration=fields.whole("baseline_duration"),
            lower_bound_duration=fields.optional_whole("lower_bound_duration"),
            durations=fields.wholes("durations"),
            steps=fields.items("steps", _read_step),
            layout=_read_layout(fields.raw("layout"), f"{where}: layout") if "layout" in fields else None,
            incumbents=fields.items("incumbents", _read_incumbent, default=[]),
            graph=graph_from_document(fields.raw("graph"), f"{where}: graph") if "graph" in fields else None,
            meta=fields.meta() or None,
        )


def _read_status(fields: Fields) -> Status:
    status = fields.text("status")
    if status not in (Status.FEASIBLE, Status.OPTIMAL):
        raise FormatError(f"{fields.where}: status {status[:40]!r} of a plan must be 'feasible' or 'optimal'")
    return Status(status)


def scope_from_document(document: Any, where: str, *, version: int = PLAN_VERSION) -> Scope:
    """Read the scope of a status or a bound.

    Args:
        document: What JSON gave.
        where: The place it is from, for messages.
        version: Of the plan format, which knew fewer orders before.

    Raises:
        FormatError: The document is no scope.
    """
    with Fields(document, where) as fields:
        order, max_copies = fields.text("order"), fields.optional_whole("max_copies")
        if order not in _ORDERS_BY_VERSION[version]:
            *others, last = map(repr, _ORDERS_BY_VERSION[version])
            raise FormatError(f"{where}: order {order[:40]!r} must be {', '.join(others)} or {last}")
        if max_copies == 0:
            raise FormatError(f"{where}: max_copies must be at least 1, or null for any number")
        return Scope(order=order, max_copies=max_copies)


def _step_to_document(step: Step) -> dict[str, str]:
    return {"compute": step.node} if isinstance(step, Compute) else {"evict": step.value}


def _read_step(document: Any, where: str) -> Step:
    with Fields(document, where) as fields:
        if ("compute" in fields) == ("evict" in fields):
            raise FormatError(f"{where}: a step has one key, 'compute' or 'evict'")
        return Compute(fields.text("compute")) if "compute" in fields else Evict(fields.text("evict"))


def _layout_to_document(layout: Layout) -> dict[str, Any]:
    return {"placements": [_placement_to_document(placement) for placement in layout.placements]}


def _placement_to_document(placement: Placement) -> dict[str, Any]:
    return {
        "workspace" if placement.is_workspace else "value": placement.name,
        "occurrence": placement.occurrence,
        "offset": placement.offset,
        "size_bytes": placement.size_bytes,
    }


def _read_layout(document: Any, where: str) -> Layout:
    with Fields(document, where) as fields:
        return Layout(placements=fields.items("placements", _read_placement))


def _read_placement(document: Any, where: str) -> Placement:
    with Fields(document, where) as fields:
        if ("value" in fields) == ("workspace" in fields):
            raise FormatError(f"{where}: a placement has one of the keys 'value' and 'workspace'")
        is_workspace = "workspace" in fields
        return Placement(
            name=fields.text("workspace" if is_workspace else "value"),
            occurrence=fields.whole("occurrence"),
            offset=fields.whole("offset"),
            size_bytes=fields.whole("size_bytes"),
            is_workspace=is_workspace,
        )


def _incumbent_to_document(incumbent: Incumbent) -> list[float | int | None]:
    return [round(incumbent.seconds, 6), incumbent.duration, incumbent.lower_bound_duration]


def _read_incumbent(document: Any, where: str) -> Incumbent:
    if not isinstance(document, list) or len(document) != 3:
        raise FormatError(f"{where}: must be [seconds, duration, bound]")
    seconds, duration, bound = document
    if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not 0 <= seconds < math.inf:
        raise FormatError(f"{where}: seconds must be a number, at least 0")
    for number in (duration, bound):
        if number is not None and (isinstance(number, bool) or not isinstance(number, int) or number < 0):
            raise FormatError(f"{where}: duration and bound must be whole numbers, at least 0, or null")
    return Incumbent(seconds=float(seconds), duration=duration, lower_bound_duration=bound)
