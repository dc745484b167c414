"""Graphs on onnx_ir, read and edited: model files, walks, selectors, patterns, opsets, sizes; `passes.py` (what every
pass is), `normalize.py` (their lists).
"""
