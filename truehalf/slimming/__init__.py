"""onnxslim with parity and bisection of its patterns."""
