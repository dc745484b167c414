"""slim: the traced file with fewer nodes, repaired, and the proof that it is the same (truehalf/slimming/slim.py)."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from stages.frame import Stage, stage_main
from truehalf.data.samples import Sample, Samples, calibration_samples, stacked
from truehalf.files import MODEL_FILE, read_json
from truehalf.ir.facts import model_facts
from truehalf.ir.model_file import load_model, model_size_mb
from truehalf.slimming.slim import at_fault, slim

if TYPE_CHECKING:
    import numpy as np
    import onnx_ir as ir

__all__ = ["at_fault", "main", "run", "slim"]  # `slim` is the door, for any file


def run(stage: Stage) -> dict[str, Any]:
    source, out = stage.artifact("trace"), stage.out()
    simplify, passes = stage.config.simplify, stage.config.repair.passes
    if not simplify and not passes:
        for file in source.parent.glob(f"{MODEL_FILE}*"):
            shutil.copy2(file, out / file.name)
        reason = "simplify=false and repair=none: the traced file is passed on as it is"
        facts = model_facts(load_model(source)) | {"size_mb": model_size_mb(source)}
        return {"status": "skipped", "reason": reason, "model": facts}
    return slim(
        source,
        out / MODEL_FILE,
        simplify=simplify,
        skip_patterns=stage.config.slim.skip_patterns,
        repair=passes,
        check_feeds=_check_feeds(_samples(stage), load_model(source)),
        atol=stage.config.slim.atol,
        rtol=stage.config.slim.rtol,
    )


def _samples(stage: Stage) -> Samples:
    spec = read_json(stage.artifact("trace", "io_spec.json"))
    return calibration_samples(stage.config, stage.root, spec)


def _check_feeds(samples: Sequence[Sample], model: ir.Model) -> list[dict[str, np.ndarray]]:
    """Batches of one and three samples, or of the one size that the model takes."""
    shape = model.graph.inputs[0].shape
    fixed = shape[0] if shape is not None and isinstance(shape[0], int) else None
    sizes = (1, 3) if fixed is None else (fixed,)
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return [
        stacked([samples[(start + i) % len(samples)] for i in range(size)])
        for start, size in zip(starts, sizes, strict=True)
    ]


def main() -> None:
    stage_main("slim", run)


if __name__ == "__main__":
    main()
