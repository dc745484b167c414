"""Images at the rim of the input range: a file must stay finite on them and find what the FP32 model finds.

They are no part of average precision or of the gates: no data set has them, and every camera meets a lens cap, a lamp
or a broken sensor once.
"""

from __future__ import annotations

from truehalf.config.verification import VerifyConfig
from truehalf.errors import StageError
from truehalf.verification.chain.reference import Outputs, Reference
from truehalf.verification.chain.stage_results import StageResult, measure
from truehalf.verification.findings import FAILED, NOT_VERIFIED
from truehalf.verification.judging.judge import same_outputs
from truehalf.verification.open_file import OpenFile
from truehalf.verification.runs import UnevenShapes, count_nonfinite
from truehalf.verification.stage_numbers import AdversarialFacts, SameOutputs


def measure_adversarial(file: OpenFile, reference: Reference | str, options: VerifyConfig) -> AdversarialFacts:
    """Hold a file against the FP32 model on the adversarial samples.

    Args:
        reference: the frozen outputs on them, or the reason why there are none.
    """
    if isinstance(reference, str):
        return {"state": NOT_VERIFIED, "reason": reference}
    try:
        outputs = file.run_all(reference.samples, options.batch)
    except StageError as error:
        reason = str(error) if isinstance(error, UnevenShapes) else f"the file does not run: {error}"
        return {"state": FAILED, "reason": reason}
    return found_in_images(reference, outputs, options, file)


def found_in_images(
    reference: Reference, outputs: Outputs, options: VerifyConfig, file: OpenFile | None = None
) -> AdversarialFacts:
    """What `measure_adversarial` returns of outputs on these samples."""
    stage = measure(reference, outputs, options, file=file)
    return {
        "samples": len(reference.names),
        "nonfinite": stage.facts["nonfinite"],
        "max_abs_error": stage.facts["max_abs_error"],
        **judged(stage),
    }


def judged(stage: StageResult) -> SameOutputs:
    """Of a file measured on adversarial samples."""
    if stage.facts["shape_faults"]:
        return {"state": FAILED, "reason": "; ".join(stage.facts["shape_faults"])}
    if stage.facts["nonfinite"] > stage.seen.options.gates.nonfinite_max:
        bad = [name for i, name in enumerate(stage.seen.runs[0].names) if count_nonfinite(stage.outputs, i)]
        reason = f"{stage.facts['nonfinite']} NaN or Inf in the outputs on {', '.join(bad)}"
        return {"state": FAILED, "reason": reason}
    return same_outputs(stage.seen)
