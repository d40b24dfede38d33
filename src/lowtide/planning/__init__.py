"""Between a planner and whoever wants a plan: budgets read, proposals replayed, bounds, bisection, words."""
