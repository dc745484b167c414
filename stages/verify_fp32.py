"""verify_fp32: the FP32 torch model against the FP32 files, traced and slimmed.

It reads nothing of the precision: what is measured here is measured once per model and data, and `verify` takes it. A
verification of the first samples alone (verify.first_samples) leaves these files out.
"""

from __future__ import annotations

from collections.abc import Mapping

from stages.frame import Stage, stage_main
from truehalf.files import write_json


def run(stage: Stage) -> Mapping[str, object]:
    if (samples := stage.config.verify.first_samples) is not None:
        write_json(stage.out() / "measured.json", {})
        return {"status": "skipped", "reason": f"verify.first_samples={samples}"}
    from truehalf.verification.chain.configured import read_frozen
    from truehalf.verification.chain.held_against import measure_files

    config, root, slim = stage.config, stage.root, stage.artifact("slim")
    kept = read_frozen(root / "artifacts" / "reference", config, root, stage.io_spec())
    options = kept.options(config.verify)
    measured = measure_files(kept.reference, kept.adversarial, slim, [stage.artifact("trace"), slim], options)
    write_json(stage.out() / "measured.json", measured)
    return {"samples": max(facts["samples"] for facts in measured.values())}


if __name__ == "__main__":
    stage_main("verify_fp32", run)
