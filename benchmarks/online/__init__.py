"""The online runtime, ``lowtide.budget``, beside plain eager PyTorch, other policies and checkpoint per block.

python -m benchmarks.online              measures, writes benchmarks/results/online.jsonl
python -m benchmarks.online.report       writes docs/benchmarks-online.md from it
"""
