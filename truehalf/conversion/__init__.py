"""Conversion in `convert.py`: `decide.py` with `rules/` and `masks.py`, `partition.py` (minimum cut), `rewrite.py`,
`casts.py` (clean-up).
"""
