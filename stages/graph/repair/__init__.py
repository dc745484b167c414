"""Patterns that TensorRT rejects, computes wrongly or slowly, replaced by equal ones; one pass a file."""
