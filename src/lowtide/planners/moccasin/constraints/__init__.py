"""The constraints of the model, one small function each; every one has a feasible and an infeasible test."""
