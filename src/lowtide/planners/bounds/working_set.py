"""The largest working set as a bound: see :mod:`lowtide.ir.working_set`, which planners and referee share."""

from __future__ import annotations

from lowtide.ir.working_set import WorkingSet, largest_working_set

__all__ = ["WorkingSet", "largest_working_set"]
