"""The planners ``checkmate`` and ``checkmate-lp`` of Jain et al. 2020: a mixed-integer program, its rounded relaxation.

    graph ──instance──▶ nodes, storages ──constraints──▶ program ──HiGHS──▶ R ──────────────────────▶ plan
                                                            └─ relaxed ──▶ S* ──rounding──▶ S, R ──▶ plan

What the paper leaves open (several outputs, views, workspace, ...) is decided in ``docs/decisions/checkmate.md``.
"""

from lowtide.planners.checkmate.planner import MAX_NONZEROS, CheckmateLpPlanner, CheckmatePlanner

__all__ = ["MAX_NONZEROS", "CheckmateLpPlanner", "CheckmatePlanner"]
