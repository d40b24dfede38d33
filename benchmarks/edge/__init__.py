"""Arena, outputs and time of .tflite models before and after: ``python -m benchmarks.edge``."""
