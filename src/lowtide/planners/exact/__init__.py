"""The planner ``exact``: a relaxation solved to whole numbers, made into a plan, until bound and plan meet."""

from lowtide.planners.exact.planner import ExactPlanner

__all__ = ["ExactPlanner"]
