"""Sessions and devices: `ort/` is the only room for onnxruntime, `tensorrt/` for tensorrt; what this machine is."""
