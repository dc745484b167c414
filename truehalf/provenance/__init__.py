"""Fingerprints of weights, samples, code and software."""
