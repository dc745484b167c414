"""Export of torch modules to ONNX: agreement with torch, `baked/` (what a trace fixed), `routes/` (half, autocast)."""
