"""Stages of the chain, each a program of its own that dvc.yaml calls."""

from truehalf.progress import say_nothing_when_stopped

say_nothing_when_stopped()
