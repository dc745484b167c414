"""Whether a slimmed model computes what it was made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from truehalf.codes import coded
from truehalf.config.schema import SlimConfig
from truehalf.errors import StageError
from truehalf.io_spec.in_file import spec_inside
from truehalf.ir.facts import all_nodes
from truehalf.ir.model_forms import ModelFile
from truehalf.ir.ops import Trait, has
from truehalf.runtime.ort import Session
from truehalf.verification.findings import NOT_VERIFIED
from truehalf.verification.metrics.tensors import Parity, check_runs, compare_runs, rows_in_any_order

if TYPE_CHECKING:
    import onnx_ir as ir

Arrays = Mapping[str, np.ndarray]
_NUDGED = np.float32(1 + 2**-20)  # what another order of float32 sums does to a value
_SIDES = ("the file", "the slim version")


class Comparison:
    """Outputs of the original file, kept for every attempt. Without inputs to compare on nothing is run."""

    def __init__(self, file: ModelFile, feeds: Sequence[Arrays], options: SlimConfig) -> None:
        self._file, self._feeds, self._options = file, feeds, options
        self._spec = spec_inside(file.model)

    @cached_property
    def _references(self) -> list[Arrays]:
        session = Session(self._file.runnable)
        return [_numbers(session.run(feed)) for feed in self._feeds]

    @cached_property
    def _draws(self) -> bool:
        nodes = all_nodes(self._file.model, functions=True)
        return any(has(node, Trait.RANDOM) and "seed" not in node.attributes for node in nodes)

    @cached_property
    def _queries(self) -> list[str]:
        names = [name for name in rows_in_any_order(self._file.model) if name in self._references[0]]
        rows = {self._references[0][name].shape[:2] for name in names}
        return names if len(rows) == 1 else []

    def check_source(self) -> None:
        """Check that the file itself runs on the inputs.

        Raises:
            StageError: when it does not, or outputs NaN or Inf.
        """
        if self._feeds:
            arrays = [array for each in self._references for array in each.values()]
            bad = sum(int((~np.isfinite(array) & (array != -np.inf)).sum()) for array in arrays)
            if bad:
                text = f"slim: expected finite outputs, got {bad} NaN or Inf values from the file"
                raise StageError("not-finite", text)

    def parity(self, model: Path | ir.Model) -> Parity:
        """Whether a model computes what the file does, by the run rule of truehalf.verification.metrics.tensors.

        Raises:
            StageError: outputs that differ by more than rounding makes of them, or that are not finite.
        """
        session = Session(model)
        if not self._feeds:
            return {"status": NOT_VERIFIED, "reason": "no samples were given to compare on"}
        if self._draws:
            reason = "the file draws random numbers without a seed: no two runs are alike"
            return {"status": NOT_VERIFIED, "reason": coded("not-comparable", reason)}
        outputs = [_numbers(session.run(feed)) for feed in self._feeds]
        sizes = [len(array) if (array := next(iter(feed.values()), np.zeros(1))).ndim else 1 for feed in self._feeds]
        ran: Parity = {"samples": sum(sizes), "batch_sizes": sorted(set(sizes)), "provider": session.provider}
        try:
            runs = [_without_masks(*pair) for pair in zip(self._references, outputs, strict=True)]
            rule = {"atol": self._options.atol, "rtol": self._options.rtol}
            return ran | check_runs(runs, self._spec, sides=_SIDES, queries=self._queries, **rule)
        except StageError as error:
            if error.code != "outputs-differ" or not self._is_rounding(outputs):
                raise
            reason = f"{error.text}; rounding alone makes the file differ as much from itself"
            return ran | {"status": NOT_VERIFIED, "reason": coded("near-ties", reason)}

    def _is_rounding(self, outputs: Sequence[Arrays]) -> bool:
        """Whether the file differs from itself by half as many values, where it runs without ONNX Runtime's
        optimisations on inputs that are a rounding apart.
        """
        session, apart = Session(self._file.runnable, optimize=False), list[Arrays]()
        for feed in self._feeds:
            nudged = {name: x * _NUDGED if x.dtype == np.float32 else x for name, x in feed.items()}
            apart.append(_numbers(session.run(nudged)))
        atol, rtol = self._options.atol, self._options.rtol
        ours, itself = (
            compare_runs(list(zip(self._references, each, strict=True)), atol=atol, rtol=rtol, queries=self._queries)
            for each in (outputs, apart)
        )
        return 1 - ours.share <= 2 * (1 - itself.share) and ours.wrong.keys() <= itself.wrong.keys()


def _numbers(outputs: Arrays) -> Arrays:
    """The outputs that hold numbers: strings and bfloat16 are not compared."""
    return {name: array for name, array in outputs.items() if array.dtype.kind in "fiub"}


def _without_masks(reference: Arrays, other: Arrays) -> tuple[Arrays, Arrays]:
    """Replace -inf by 0 where both outputs have it: open-vocabulary heads pad their logits so."""
    pair: tuple[dict[str, np.ndarray], dict[str, np.ndarray]] = dict(reference), dict(other)
    for name in reference.keys() & other.keys():
        first, second = reference[name], other[name]
        if first.shape == second.shape and first.dtype.kind == "f":
            masked = (first == -np.inf) & (second == -np.inf)
            if masked.any():
                pair[0][name], pair[1][name] = np.where(masked, 0, first), np.where(masked, 0, second)
    return pair
