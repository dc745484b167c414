"""FP16 graphs as FP32 graphs that round where hardware rounds; sums made explicit (`pessimistic.py`)."""
