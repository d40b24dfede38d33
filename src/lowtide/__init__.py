"""Train and run neural networks within a memory budget given in bytes, with the same result to the bit."""

__version__ = "0.1.0"
