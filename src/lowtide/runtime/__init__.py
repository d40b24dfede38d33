"""Eager PyTorch within a memory budget."""
