"""Memory, outputs and time of edge models before and after.

python -m benchmarks.edge                       .tflite models, writes benchmarks/results/edge_tflite.jsonl
python -m benchmarks.edge.bands                 the same in row bands
python -m benchmarks.edge.onnx_models           .onnx models
python -m benchmarks.edge.onnx_bands            the same in row bands
python -m benchmarks.edge.executorch_models     torch modules on ExecuTorch
python -m benchmarks.edge.report                writes docs/edge-benchmarks.md from all of them
"""
