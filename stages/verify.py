"""verify: the FP32 torch model against every file of the chain, on samples that no other stage has seen; or two files.

python -m stages.verify                             the stage: artifacts/ -> artifacts/reference, artifacts/verify
python -m stages.verify fp32.onnx fp16.onnx --inputs samples.npz

The hops, their evaluations and samples: truehalf.verification.chain.chain. A failed gate ends this stage well, with its
    verdict
written: the stage `gate` turns it into the exit code.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.frame import Stage, run_stage
from truehalf.cli.verification_arguments import compare_from_shell
from truehalf.config.schema import Config, Evaluation
from truehalf.conversion.reconversion import Conversion
from truehalf.data.samples import adversarial_samples, readable, verification_samples
from truehalf.errors import StageError
from truehalf.files import read_json
from truehalf.io_spec.profile_shapes import completed
from truehalf.ir.model_file import load_model
from truehalf.models.source import open_model
from truehalf.runtime.alone import alone_on
from truehalf.verification.chain.batch_memory import fitting_batch
from truehalf.verification.chain.chain import HOPS, PAGE, Making, verify
from truehalf.verification.chain.reference import Reference, freeze, write_reference
from truehalf.verification.compare.compare import compare

if TYPE_CHECKING:
    import torch

__all__ = ["compare", "main", "run"]  # `compare` is the door, for any two files


def run(stage: Stage) -> dict[str, Any]:
    config, spec = stage.config, read_json(stage.artifact("trace", "io_spec.json"))
    files = {hop: stage.artifact(hop) for hop in HOPS}
    model = open_model(config, stage.root).module
    samples = verification_samples(config, stage.root, spec)
    left_out: list[str] = []
    if config.verify.skip_corrupt:
        samples, left_out = readable(samples)
    fitting = fitting_batch(load_model(files["slim"]), samples[0], config.verify.batch, config.verify.memory_gb)
    options = replace(config.verify, batch=fitting)
    reference = freeze(model, samples, spec, fitting)
    adversarial = _adversarial(model, config, spec, fitting)
    write_reference(stage.out("reference"), reference, adversarial)
    decisions = stage.root / "artifacts" / "fp16" / "decisions.json"
    ranges = read_json(stage.artifact("calibrate", "ranges.json"))
    made = Making(
        models=_models(stage.root),
        adversarial=adversarial,
        batch_sizes=batch_sizes(config, spec),
        decisions=read_json(decisions) if decisions.exists() else None,
        left_out=left_out,
        pinned=config.precision.node_block_list,
        left_open=_left_open(stage),
        conversion=Conversion.of(config, spec, ranges) if config.verify.suggest else None,
    )
    on_cuda = options.evaluation is Evaluation.cuda
    with alone_on("cuda") if on_cuda else contextlib.nullcontext():  # another job may time an engine there
        report = verify(reference, files, stage.out(), options, made)
    stage.publish(stage.out() / PAGE)
    return report


def _left_open(stage: Stage) -> list[str]:
    """Why the traced file itself is not verified: what Python decided while it was traced, and no input settles."""
    path = stage.root / "artifacts" / "trace" / "open.json"
    return [f"trace: {reason}" for reason in read_json(path)] if path.exists() else []


def _adversarial(model: torch.nn.Module, config: Config, spec: Mapping[str, Any], batch: int) -> Reference | str:
    """The reference on the adversarial samples; or why there is none: that FP32 itself fails there is no fault of a
    file.
    """
    samples = adversarial_samples(config, spec)
    if not samples:
        return "none are made for inputs that are no pictures"
    try:
        return freeze(model, samples, spec, batch)
    except StageError as error:
        return str(error)


def batch_sizes(config: Config, spec: Mapping[str, Any]) -> list[int]:
    """1, and the first axes of opt and max of every optimization profile, in ascending order."""
    profiles = completed(config.engine.profiles, spec["inputs"])
    shapes = [shapes for profile in profiles for shapes in profile.values()]
    return sorted({1, *(shape[0] for each in shapes for shape in (each["opt"], each["max"]) if shape)})


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
