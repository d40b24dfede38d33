"""Planners side by side on instances: time increase, bound, gap, CPU and wall seconds."""
