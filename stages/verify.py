"""verify: the FP32 torch model against every file of the chain, on samples that no other stage has seen; or two files.

python -m stages.verify                             the stage: artifacts/ -> artifacts/reference, artifacts/verify
python -m stages.verify fp32.onnx fp16.onnx --inputs samples.npz

The hops, their evaluations and samples: stages.parity.chain. A failed gate ends this stage well, with its verdict
written: the stage `gate` turns it into the exit code.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np

from stages.data.samples import verification_samples
from stages.io import Stage, read_json, run_stage, write_json
from stages.models.source import open_model
from stages.parity.chain import HOPS, verify
from stages.parity.compare import compare
from stages.parity.reference import freeze
from stages.verification_arguments import compare_from_shell

__all__ = ["compare", "main", "run"]  # `compare` is the door, for any two files


def run(stage: Stage) -> dict[str, Any]:
    config, spec = stage.config, read_json(stage.artifact("trace", "io_spec.json"))
    files = {hop: stage.artifact(hop) for hop in HOPS}
    model = open_model(config, stage.root)
    reference = freeze(model, verification_samples(config, stage.root), spec, config.verify.batch)
    arrays: dict[str, Any] = dict(reference.outputs)
    np.savez(stage.out("reference") / "reference.npz", **arrays)
    write_json(stage.out("reference") / "samples.json", reference.index)
    return verify(reference, files, stage.out(), config.verify, _models(stage.root))


def _models(root: Path) -> dict[str, Any]:
    """The graph facts that the stages before have reported, where they have."""
    reports = {hop: root / "reports" / f"{hop}.json" for hop in HOPS}
    models = {hop: read_json(path).get("model") or {} for hop, path in reports.items() if path.exists()}
    return {hop: model for hop, model in models.items() if "float_nodes" in model}


def main() -> None:
    if len(sys.argv) == 1:
        run_stage("verify", run)
    else:
        sys.exit(compare_from_shell(sys.argv[1:]))


if __name__ == "__main__":
    main()
