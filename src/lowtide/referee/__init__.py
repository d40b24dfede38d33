"""Checks plans, layouts and traces from scratch; plans nothing, trusts nothing."""

from lowtide.referee.baselines import WorkingSet, baseline, largest_working_set
from lowtide.referee.layouts import VerifiedLayout, check_layout
from lowtide.referee.plans import VerifiedPlan, check_plan
from lowtide.referee.replay import Replay, replay
from lowtide.referee.traces import TraceFigures, check_trace

__all__ = [
    "Replay",
    "TraceFigures",
    "VerifiedLayout",
    "VerifiedPlan",
    "WorkingSet",
    "baseline",
    "check_layout",
    "check_plan",
    "check_trace",
    "largest_working_set",
    "replay",
]
