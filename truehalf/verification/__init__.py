"""Comparison of files: runs, findings, `metrics/`, `judging/` (one strategy a task), `chain/`, `localize/` (the node at
fault), `pinning/` (further pins).
"""
