"""Export of torch modules to ONNX: agreement with torch, decisions that a trace fixed, routes half and autocast."""
