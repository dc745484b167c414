"""Agreement of torch and the traced file on one input, output by output.

The run rule of truehalf/verification/metrics/tensors.py, for the outputs of a detector together and for each other
output by itself, so that a large output hides no small one. Of an output whose values are all small, an absolute
difference counts from a hundredth of its largest value on.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from truehalf.config.schema import TraceConfig
from truehalf.errors import StageError
from truehalf.io_spec.spec import IoSpec
from truehalf.verification.metrics.tensors import SHARE, compare_runs, query_outputs

Arrays = Mapping[str, np.ndarray]
_DETECTIONS = ("logits", "boxes", "scores", "labels")  # kinds of outputs whose rows belong together
_OF_ITS_LARGEST, _LEAST = 0.01, 1e-6


@dataclass(frozen=True)
class Rule:
    """How outputs are compared.

    Attributes:
        spec: I/O spec, of which the outputs are read.
        options: atol and rtol of the value rule.
        largest: by output, the largest value that torch has computed for it.
    """

    spec: IoSpec
    options: TraceConfig
    largest: Mapping[str, float]

    def difference(self, reference: Arrays, other: Arrays) -> str:
        """What is wrong, for a message; empty where the two agree."""
        for names in self._groups():
            one, two = ({name: run[name] for name in names} for run in (reference, other))
            atol = min(self.options.atol, max(_OF_ITS_LARGEST * max(self.largest[name] for name in names), _LEAST))
            queries = [name for name in query_outputs(self.spec) if name in names]
            try:
                found = compare_runs([(one, two)], atol=atol, rtol=self.options.rtol, queries=queries)
            except StageError as error:
                return error.text
            if not found["agree"] and any(array.size for array in one.values()):
                errors = ", ".join(f"{name} {error:.3g}" for name, error in found["max_abs"].items())
                return (
                    f"{found['share']:.2%} of the values agree, expected {SHARE:.1%} (atol {atol:.3g}, rtol "
                    f"{self.options.rtol:g}; largest differences: {errors})"
                )
        return ""

    def _groups(self) -> list[list[str]]:
        together = [each.name for each in self.spec.outputs if each.kind in _DETECTIONS]
        single = [[each.name] for each in self.spec.outputs if each.name not in together]
        return ([together] if together else []) + single


def largest_values(runs: Sequence[Arrays]) -> dict[str, float]:
    """By output, the largest finite value of all runs."""
    found: dict[str, float] = {}
    for run in runs:
        for name, array in run.items():
            finite = np.abs(np.asarray(array, np.float64))
            finite = finite[np.isfinite(finite)]
            found[name] = max(found.get(name, 0.0), float(finite.max(initial=0.0)))
    return found


def all_finite(outputs: Arrays) -> bool:
    return all(bool(np.isfinite(array).all()) for array in outputs.values() if array.dtype.kind == "f")
