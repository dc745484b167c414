"""Whether a slimmed model computes what it was made of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from truehalf.config.schema import SlimConfig
from truehalf.io_spec.in_file import spec_inside
from truehalf.ir.model_forms import ModelFile
from truehalf.report.forms import Parity
from truehalf.runtime.ort.session import Session
from truehalf.verification.findings import NOT_VERIFIED
from truehalf.verification.metrics.tensors import check_runs

if TYPE_CHECKING:
    import onnx_ir as ir

Arrays = Mapping[str, np.ndarray]


class Comparison:
    """Outputs of the original file, kept for every attempt. Without inputs to compare on nothing is run."""

    def __init__(self, file: ModelFile, feeds: Sequence[Arrays], options: SlimConfig) -> None:
        self._feeds, self._options = feeds, options
        self._spec = spec_inside(file.model)
        session = Session(file.runnable) if feeds else None
        self._references = [session.run(feed) for feed in feeds] if session else []

    def parity(self, model: Path | ir.Model) -> Parity:
        session = Session(model)
        if not self._feeds:
            return {"status": NOT_VERIFIED, "reason": "no samples were given to compare on"}
        runs = [(reference, session.run(feed)) for reference, feed in zip(self._references, self._feeds, strict=True)]
        options = self._options
        result = check_runs(
            runs, self._spec, atol=options.atol, rtol=options.rtol, sides=("the file", "the slim version")
        )
        sizes = [len(next(iter(feed.values()))) for feed in self._feeds]
        return {"samples": sum(sizes), "batch_sizes": sorted(set(sizes)), "provider": session.provider, **result}
