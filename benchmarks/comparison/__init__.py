"""``lowtide compare`` on whole models: planners, policies and PyTorch's own means, on one cost model and really run."""
