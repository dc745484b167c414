"""verify: the FP32 torch model against every file of the chain (truehalf/verification/chain/chain.py), on samples that
no other stage has seen. A failed gate ends this stage well, its verdict written: `gate` makes that the exit code.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import nullcontext

from stages.frame import Stage, stage_main
from truehalf.files import read_json


def run(stage: Stage) -> Mapping[str, object]:
    from truehalf.config.options import read
    from truehalf.config.precision import Precision
    from truehalf.engines.precision import nothing_in_fp16
    from truehalf.ir.model_forms import ModelFile
    from truehalf.runtime.device_lock import device_lock
    from truehalf.verification.chain.chain import FINAL, MEASURED_STAGES, Making, verify
    from truehalf.verification.chain.configured import batch_sizes, read_frozen
    from truehalf.verification.open_file import BACKENDS
    from truehalf.verification.pinning.reconversion import Reconversion

    config, root, spec = stage.config, stage.root, stage.io_spec()
    files = {name: ModelFile(stage.artifact(name)) for name in MEASURED_STAGES}
    kept = read_frozen(root / "artifacts" / "reference", config, root, spec)
    frozen, options = kept.first(config.verify.first_samples), kept.options(config.verify)
    decisions, left_open = root / "artifacts/fp16/decisions.json", root / "artifacts/trace/open.json"
    ranges = read_json(stage.artifact("calibrate", "ranges.json"))
    asked = read_json(stage.artifact("fp16", "precision.json"))
    anew = read(Precision, asked)[0] if asked else None
    left = [f"trace: {reason}" for reason in read_json(left_open)] if left_open.exists() else []
    left += filter(None, [nothing_in_fp16(files[FINAL], config.precision.dtype.value)])
    made = Making(
        adversarial=frozen.adversarial,
        batch_sizes=batch_sizes(config, spec),
        decisions=read_json(decisions) if decisions.exists() else None,
        left_out=frozen.left_out,
        pinned=config.precision.node_block_list,
        left_open=left,
        of_samples=len(kept.reference.names),
        measured=read_json(stage.artifact("verify_fp32", "measured.json")),
        conversion=Reconversion.of(anew, config.engine, spec, ranges) if anew else None,
    )
    with device_lock("cuda") if options.evaluation.value in BACKENDS else nullcontext():  # where engines are timed
        return verify(frozen.reference, files, stage.out(), options, made).to_json()


if __name__ == "__main__":
    stage_main("verify", run)
