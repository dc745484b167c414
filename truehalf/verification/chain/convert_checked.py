"""The loop convert -> check -> pins -> convert: a file that its own check passes, where pins make one.

The converter decides node by node what a run cannot show; whether FP16 is good enough is measured on outputs. Nothing
here is applied by `convert` yet, which prints the pins.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from truehalf.conversion.convert import Conversion
from truehalf.conversion.report import QuickCheck
from truehalf.data.samples import Samples
from truehalf.ir.model_forms import ModelFile
from truehalf.verification.chain.quick_check import quick_check
from truehalf.verification.pinning.reconversion import Reconversion

_ROUNDS = 2  # of pins: the first was tried on these samples, so a second one is rare


@dataclass(frozen=True)
class Checked:
    """A converted file.

    Attributes:
        made: of the last conversion.
        check: of its file.
        pins: entries of node_block_list that it was converted with, beside those of the precision.
    """

    made: Conversion
    check: QuickCheck
    pins: tuple[str, ...]


def convert_checked(
    source: Path,
    fp32: Path,
    out: Path,
    samples: Samples | None,
    conversion: Reconversion,
    slim: Callable[[ModelFile], Any] | None = None,
) -> Checked:
    """Convert a model, check it on samples, and convert it again with the pins that its check proposes.

    Args:
        source, samples, slim: see truehalf.verification.chain.quick_check.quick_check.
        fp32: what is converted: `source`, slimmed where it is.
        out: ONNX file to write.

    Raises:
        StageError: as a conversion.
    """
    pins: tuple[str, ...] = ()
    for _ in range(_ROUNDS + 1):
        pinned = conversion.with_pins(pins)
        made = pinned.convert(fp32, out, ())
        check = quick_check(source, out, samples, pinned, slim)
        further = tuple(pin for pin in check.node_block_list if pin not in pins)
        if not further:
            break
        pins += further
    return Checked(made, check, pins)
