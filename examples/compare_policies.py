"""Compare planning ahead with deciding online, on one graph and the same budgets, without running a network.

python examples/compare_policies.py

Slow-down is modelled: the time of all executed operations by that of every operation once.
"""

from __future__ import annotations

import lowtide
from lowtide.importers.generate import graph_from_spec

SOURCE = "generate:unet?depth=3"  # or lowtide.load_graph("graph.json"), or a trace of your own training step
RATIOS = (0.8, 0.6, 0.4)  # of the way from what must stay anyway (0) to the peak without recomputation (1)
POLICIES = ("coop", "dtr", "lru")  # they see one operation after another, as they would in eager PyTorch
PLANNERS = ("greedy", "search")  # they see the whole graph before its first step


def main() -> None:
    graph = graph_from_spec(SOURCE)
    print("   r      budget " + "".join(f"{name:>9}" for name in (*PLANNERS, *POLICIES)))
    for ratio in RATIOS:
        rows = lowtide.sweep(graph, budgets=[f"r={ratio}"], policies=POLICIES)
        slow_downs = {row["policy"]: row["overhead"] for row in rows}  # None where a policy did not get through
        budget_bytes = rows[0]["budget_bytes"]
        for planner in PLANNERS:
            # In the given order and for live bytes, as the policies have it: nobody is helped by another order.
            result = lowtide.plan(
                graph, budget=budget_bytes, planner=planner, keep_order=True, layout=None, time_limit_seconds=3
            )
            slow_downs[planner] = None if result.plan is None else 1 + result.plan.tdi_percent / 100
        cells = ("none" if slow_downs[name] is None else f"{slow_downs[name]:.3f}" for name in (*PLANNERS, *POLICIES))
        print(f"{ratio:4.1f} {budget_bytes:>11} " + "".join(f"{cell:>9}" for cell in cells))


if __name__ == "__main__":
    main()
