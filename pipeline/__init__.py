"""Programs around the chain: the run, its report, tracking, sweeps and comparisons."""

from truehalf.progress import say_nothing_when_stopped

say_nothing_when_stopped()
