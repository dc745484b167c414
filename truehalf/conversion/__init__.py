"""Conversion in `convert.py`: `decide.py` with `rules/` and `masks/`, `partition.py` (minimum cut), `rewrite.py`,
`casts.py` (clean-up).
"""
