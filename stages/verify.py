"""verify: the FP32 torch model against every file of the chain (truehalf/verification/chain/chain.py), on samples that
no other stage has seen. A failed gate ends this stage well, its verdict written: `gate` makes that the exit code.
"""

from __future__ import annotations

from stages.frame import Report, Stage
from truehalf.engines.precision import contradiction, precision_facts
from truehalf.files import read_json
from truehalf.ir.model_forms import ModelFile
from truehalf.verification.chain.chain import FINAL, MEASURED_STAGES
from truehalf.verification.chain.configured import verify_configured


def run(stage: Stage) -> Report:
    files = {name: ModelFile(stage.artifact(name)) for name in MEASURED_STAGES}
    trace_open = stage.root / "artifacts" / "trace" / "open.json"
    left_open = [f"trace: {reason}" for reason in read_json(trace_open)] if trace_open.exists() else []
    final = files[FINAL]
    if nothing := contradiction(final, precision_facts(final.typed, stage.config.precision.dtype.value)):
        left_open.append(nothing)
    return verify_configured(stage.config, stage.root, files, stage.out, left_open).to_json()
