"""The planner ``moccasin``: a faithful reimplementation of Bartan et al. 2023 on OR-Tools CP-SAT.

    graph ──problem──▶ columns, values ──variables, constraints──▶ model ──phases──▶ retention intervals ──steps──▶ plan

What the paper leaves open (several outputs, aliases, workspace, ...) is decided in ``docs/decisions/moccasin.md``.
Importing this package does not import the solver.
"""

from lowtide.planners.moccasin.planner import DEFAULT_MAX_COPIES, MoccasinPlanner

__all__ = ["DEFAULT_MAX_COPIES", "MoccasinPlanner"]
