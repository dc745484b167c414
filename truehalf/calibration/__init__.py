"""Ranges measured inside the graph, streamed."""
