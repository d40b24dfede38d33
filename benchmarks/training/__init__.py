"""Training: peak and step time of lowtide.compile beside plain PyTorch and what PyTorch offers itself.

python -m benchmarks.training            measures, writes benchmarks/results/training.jsonl
python -m benchmarks.training.report     writes docs/benchmarks.md and README's figures from it
"""
