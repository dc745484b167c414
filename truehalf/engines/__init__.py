"""Engines: plans, profiles, proof of precision, parity; ONNX Runtime as an engine."""
