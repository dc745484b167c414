"""Runtimes and devices: ONNX Runtime (`ort`), TensorRT through Polygraphy (`tensorrt`), this machine, timing."""
