"""engine: the final file as a strongly typed engine, or as ONNX Runtime serves it (truehalf/engines/build.py).

A file whose dtypes contradict the declared precision is refused (truehalf/engines/precision.py), and one that is
declared FP16 and holds none fails. Where nothing can be built, plan.json says what would be. An engine that does not
find what the FP32 model finds is kept and failed: `gate` makes that the exit code.
"""

from __future__ import annotations

from collections.abc import Mapping

from stages.frame import Stage, stage_main
from truehalf.files import read_json

_FAILED = "the model failed verify; engine.build_unverified=true builds it all the same"
_FIRST = "verify.first_samples={}: a verification for iterating compiles nothing"


def run(stage: Stage) -> Mapping[str, object]:
    if (samples := stage.config.verify.first_samples) is not None:
        return _none_built(stage, "skipped", _FIRST.format(samples))
    from truehalf.engines.configured import build_configured
    from truehalf.engines.precision import check_precision, nothing_in_fp16
    from truehalf.ir.model_forms import ModelFile

    declared, file = stage.config.precision.dtype.value, ModelFile(stage.artifact("cast_cleanup"))
    if nothing := nothing_in_fp16(file, declared):
        return _none_built(stage, "failed", nothing)
    check_precision(file, declared)
    verdict = read_json(stage.artifact("verify", "verdict.json"))["verdict"]
    if verdict == "failed" and not stage.config.engine.build_unverified:
        return _none_built(stage, "refused", _FAILED)
    return build_configured(file, stage.out(), stage.config, stage.root)


def _none_built(stage: Stage, status: str, reason: str) -> Mapping[str, object]:
    stage.out().joinpath("REFUSED").write_text(f"no engine: {reason}\n")
    return {"status": status, "reason": reason, "not_verified": [f"the engine: none was built: {reason}"]}


if __name__ == "__main__":
    stage_main("engine", run)
