"""Checkpoints and code as torch modules: `sources/`, one file a source."""
