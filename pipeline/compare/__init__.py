"""Runs beside each other, and the frontier of error and cost."""
