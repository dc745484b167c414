"""Inputs and outputs of models: as dataclasses and JSON (`spec.py`), what outputs mean (`outputs.py`), metadata of
files, optimization profiles.
"""
