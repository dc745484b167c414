"""Engines: profiles, building or compiling, layers and gates, outputs and latency, the trtexec line."""
