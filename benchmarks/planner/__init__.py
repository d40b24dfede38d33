"""Planners side by side on instances: time increase, bound, gap, CPU and wall seconds, memory.

cells.py                 what is measured: one planner on one graph, budget, limit and seed; and what came of it
parts.py                 which cells there are
child.py, running.py     one cell in a process of its own; all cells, resumably
capturing.py             a model's graph in a file
results.py               what a file of results says
report.py                docs/benchmarks.md, section on planners: tables.py, published.py, plots.py
layouts.py               addresses (a program of its own)
"""
