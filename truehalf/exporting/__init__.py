"""Export of torch modules to ONNX: agreement with torch, `baked/` (what a trace has fixed), `routes/` (half, autocast),
`torch_ops/`.
"""
