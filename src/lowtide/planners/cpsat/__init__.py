"""The planner ``cpsat``: proven least durations of small graphs, any number of copies, over every plan in the order.

    graph ──problem──▶ columns, storages ──variables, constraints──▶ model ──loop──▶ runs by stage ──stages──▶ sequence
                                                                       ▲                               │ does not fit
                                                                       └──────────── cuts ◀────────────┘

The model asks which nodes run again in which stage and what is resident at the first execution of each node; in which
order a stage's recomputations run, and how often, is left to an exhaustive search of that stage. Where that search
finds no way, a cut says so to the model, which is solved again. ``docs/decisions/cpsat.md`` has the argument why the
bound holds for all plans. Importing this package does not import the solver.
"""

from lowtide.planners.cpsat.bound import MAX_BOUND_NODES, small_graph_bound
from lowtide.planners.cpsat.planner import MAX_RUNS, CpsatPlanner

__all__ = ["MAX_BOUND_NODES", "MAX_RUNS", "CpsatPlanner", "small_graph_bound"]
