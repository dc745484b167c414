"""Patterns in a graph that TensorRT refuses, computes wrongly, or runs slowly."""
