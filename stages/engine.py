"""engine: the final file as a strongly typed engine (truehalf/engines/build.py).

A file whose dtypes contradict the declared precision fails (truehalf/engines/precision.py), and so does one that
TensorRT refuses. Where nothing can be built, plan.json says what would be. An engine that does not find what the FP32
model finds is kept and failed: `gate` makes that the exit code.
"""

from __future__ import annotations

from stages.frame import Report, Stage
from truehalf.files import read_json

_FAILED = "the model failed verify; engine.build_unverified=true builds it all the same"
_FIRST = "verify.first_samples={}: a verification for iterating compiles nothing"


def run(stage: Stage) -> Report:
    config = stage.config
    if (samples := config.verify.first_samples) is not None:
        return _none_built(stage, "skipped", _FIRST.format(samples))
    # a second that a verification for iterating does not wait for
    from truehalf.engines.build import build_configured
    from truehalf.ir.model_forms import ModelFile

    verdict = read_json(stage.artifact("verify", "verdict.json"))["verdict"]
    if verdict == "failed" and not config.engine.build_unverified:
        return _none_built(stage, "refused", _FAILED)
    return build_configured(ModelFile(stage.artifact("cast_cleanup")), stage.out, config, stage.root).to_json()


def _none_built(stage: Stage, status: str, reason: str) -> Report:
    stage.out.joinpath("REFUSED").write_text(f"no engine: {reason}\n")
    return {"status": status, "reason": reason, "not_verified": [f"the engine: none was built: {reason}"]}
