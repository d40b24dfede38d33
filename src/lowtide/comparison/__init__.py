"""All ways to save memory beside each other: planners, the proven bound, online policies, and what is really run.

    Graph ──cells──▶ (kind, method, budget) ──modelled, measured──▶ Row ──judge──▶ JudgedRow (gap, Pareto front)
                                                                    └──results file──▶ resumed

Modelled rows share one cost model, the graph's durations; measured rows are trained in processes of their own. The two
are never put into one order.
"""
