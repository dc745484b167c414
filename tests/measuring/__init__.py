"""What tests and benchmarks measure in the same way."""
