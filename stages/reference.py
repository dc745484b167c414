"""reference: the FP32 torch model on the samples of verification (truehalf/verification/chain/reference.py).

It reads nothing of the precision: the outputs are computed once per model and data, and every file is compared with
them.
"""

from __future__ import annotations

from stages.frame import Stage, stage_main
from truehalf.json_values import JsonObject
from truehalf.models.source import open_model
from truehalf.verification.chain.configured import freeze_configured
from truehalf.verification.chain.reference import write_reference


def run(stage: Stage) -> JsonObject:
    config, spec = stage.config, stage.io_spec()
    frozen = freeze_configured(open_model(config, stage.root).module, config, stage.root, spec, stage.artifact("slim"))
    write_reference(stage.out(), frozen.reference, frozen.adversarial, frozen.batch)
    found = frozen.reference.precision()
    without_adversarial = frozen.adversarial if isinstance(frozen.adversarial, str) else None
    return {
        "samples": len(frozen.reference.names),
        "batch": frozen.batch,
        "ap50": found["ap50"],
        "ap50_95": found["ap50_95"],
        "no_precision": found["reason"],
        "no_adversarial": without_adversarial,
        "left_out": list(frozen.left_out),
    }


if __name__ == "__main__":
    stage_main("reference", run)
