"""Comparison of files: runs, `metrics/`, `comparison.py` (the one judge of outputs) and `gates.py`, findings,
`chain/` (its doors), `localize/` (the node at fault), `pinning/` (further pins).
"""
