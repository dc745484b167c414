"""Inputs and outputs of models: as dataclasses and JSON (`spec.py`), kinds and layouts (`outputs.py`), detections
(`decode.py`), a spec proposed from graph and run (`proposal.py`), metadata of files, optimization profiles.
"""
