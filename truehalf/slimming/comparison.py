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
        self._file, self._feeds = file, feeds
        self._tolerance = {"atol": options.atol, "rtol": options.rtol}
        self._spec = spec_inside(file.model)

    @cached_property
    def _references(self) -> list[Arrays]:
        return self._outputs(Session(self._file.runnable))

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
        arrays = [array for each in self._references for array in each.values()] if self._feeds else []
        if bad := sum(int((~np.isfinite(array)).sum()) for array in arrays):
            raise StageError("not-finite", f"slim: expected finite outputs, got {bad} NaN or Inf values from the file")

    def parity(self, model: Path | ir.Model) -> Parity:
        """Whether a model computes what the file does, by the run rule of truehalf.verification.metrics.tensors.

        Raises:
            StageError: outputs that differ by more than rounding makes of them, or that are not finite.
        """
        session = Session(model)
        if not self._feeds:
            return {"status": NOT_VERIFIED, "reason": "no samples were given to compare on"}
        if any(has(node, Trait.RANDOM) and "seed" not in node.attributes for node in all_nodes(self._file.model)):
            reason = "the file draws random numbers without a seed: no two runs are alike"
            return {"status": NOT_VERIFIED, "reason": coded("not-comparable", reason)}
        runs = list(zip(self._references, self._outputs(session), strict=True))
        sizes = [len(array) if (array := next(iter(feed.values()), np.zeros(1))).ndim else 1 for feed in self._feeds]
        ran: Parity = {"samples": sum(sizes), "batch_sizes": sorted(set(sizes)), "provider": session.provider}
        try:
            return ran | check_runs(runs, self._spec, sides=_SIDES, queries=self._queries, **self._tolerance)
        except StageError as error:
            if error.code != "outputs-differ" or not self._is_rounding(runs):
                raise
            reason = f"{error.text}; rounding alone makes the file differ as much from itself"
            return ran | {"status": NOT_VERIFIED, "reason": coded("near-ties", reason)}

    def _is_rounding(self, runs: Sequence[tuple[Arrays, Arrays]]) -> bool:
        """Whether the file differs from itself by half as many values, where it runs without ONNX Runtime's
        optimisations on inputs that are a rounding apart.
        """
        nudged = self._outputs(Session(self._file.runnable, optimize=False), _NUDGED)
        itself = list(zip(self._references, nudged, strict=True))
        ours, own = (compare_runs(each, queries=self._queries, **self._tolerance) for each in (runs, itself))
        return 1 - ours.share <= 2 * (1 - own.share) and ours.wrong.keys() <= own.wrong.keys()

    def _outputs(self, session: Session, factor: np.float32 | None = None) -> list[Arrays]:
        """The outputs that hold numbers, strings and bfloat16 are not compared; of inputs times a factor. -inf, with
        which open-vocabulary heads pad their logits, is the least finite number.
        """
        found = list[Arrays]()
        for feed in self._feeds:
            arrays = session.run(
                {name: x * factor if factor is not None and x.dtype == np.float32 else x for name, x in feed.items()}
            )
            numbers = {name: array for name, array in arrays.items() if array.dtype.kind in "fiub"}
            found.append({name: np.nan_to_num(x, nan=np.nan, posinf=np.inf) for name, x in numbers.items()})
        return found
