"""reference: the FP32 torch model on the samples of verification (truehalf/verification/chain/reference.py), and the
FP32 files, traced and slimmed, against it.

It reads nothing of the precision: all of this is computed once per model and data, and every file is compared with it.
"""

from __future__ import annotations

from stages.frame import Report, Stage
from truehalf.files import write_json
from truehalf.ir.model_forms import ModelFile
from truehalf.models.source import open_model
from truehalf.verification.chain.configured import freeze_configured
from truehalf.verification.chain.reference import write_reference


def run(stage: Stage) -> Report:
    config, files = stage.config, {name: stage.artifact(name) for name in ("trace", "slim")}
    module = open_model(config, stage.root).module
    judge = freeze_configured(module, config, stage.root, stage.io_spec(), files["slim"])
    reference, adversarial, batch = judge.reference, judge.images, judge.options.batch
    write_reference(stage.out, reference, adversarial, batch)
    write_json(stage.out / "measured.json", judge.beside(ModelFile(files["slim"])).measured(files.values()))
    precision = reference.precision()
    return {
        "samples": len(reference.names),
        "batch": batch,
        "ap50": precision["ap50"],
        "ap50_95": precision["ap50_95"],
        "no_precision": precision["reason"],
        "no_adversarial": adversarial if isinstance(adversarial, str) else None,
    }
