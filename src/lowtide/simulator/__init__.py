"""Replays a trace against a pool and a policy, without torch: what a budget would have cost."""
