"""Report of the comparison on further inputs: the places where Python decided while a module was traced."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from truehalf.codes import coded
from truehalf.errors import some_of

SHOWN = 10  # places of a sentence


@dataclass(frozen=True)
class Baked:
    """What was found.

    Attributes:
        inputs: what was compared beside the samples.
        skipped: inputs that prove nothing (torch fails, is not finite, or differs from itself when the input is off by
            rounding), with the reason.
        open, settled, installed: sentences on places, each with file and line.
    """

    inputs: Sequence[str] = ()
    skipped: Sequence[str] = ()
    open: Sequence[str] = ()
    settled: Sequence[str] = ()
    installed: Sequence[str] = ()

    @property
    def reason(self) -> str:
        """Why a trace is not verified, in a sentence; empty where nothing is open."""
        if not self.open:
            return ""
        return coded(
            "trace-open",
            f"the file keeps what Python decided while it was traced, and {len(self.inputs)} further inputs do not "
            f"settle that: {some_of(self.open, SHOWN, '; ')}; compute it with tensors instead",
        )
