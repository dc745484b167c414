"""engine: the final file as a strongly typed engine, or as ONNX Runtime will serve it (truehalf/engines/build.py).

A file whose dtypes contradict the declared precision is refused (truehalf/engines/precision.py), and one that is
declared FP16 and holds none fails. Where nothing can be built, the complete plan is written. An engine that is not what
was declared, or does not find what the FP32 model finds, is kept and failed: `gate` makes that the exit code.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping

from stages.frame import Stage, stage_main
from truehalf.files import read_json

_FAILED = "the model failed verify; engine.build_unverified=true builds it all the same"
_FIRST = "verify.first_samples={}: a verification for iterating compiles nothing"


def run(stage: Stage) -> Mapping[str, object]:
    if (samples := stage.config.verify.first_samples) is not None:
        return _none_built(stage, "skipped", _FIRST.format(samples))
    from truehalf.engines.build import FILES, Order, build_engine
    from truehalf.engines.evidence import evidence_of
    from truehalf.engines.precision import check_precision, nothing_in_fp16
    from truehalf.io_spec.profile_shapes import completed
    from truehalf.ir.model_forms import ModelFile

    options, declared = stage.config.engine, stage.config.precision.dtype.value
    file = ModelFile(stage.artifact("cast_cleanup"))
    if nothing := nothing_in_fp16(file, declared):
        return _none_built(stage, "failed", nothing)
    check_precision(file, declared)
    verdict = read_json(stage.artifact("verify", "verdict.json"))["verdict"]
    if verdict == "failed" and not options.build_unverified:
        return _none_built(stage, "refused", _FAILED)
    order = Order(
        declared=declared,
        profiles=completed(options.profiles, stage.io_spec().inputs),
        evidence=lambda: evidence_of(stage.config, stage.root),
        probe=read_json(stage.root / "reports" / "probe.json"),
        plan_names=("artifacts/cast_cleanup/model.onnx", f"artifacts/engine/{FILES[options.backend]}"),
        lint=stage.config.lint,
        target=stage.config.target,
    )
    with contextlib.chdir(stage.root):  # what files the options name, plugins and the timing cache, lie there
        return build_engine(file, stage.out(), order, options)


def _none_built(stage: Stage, status: str, reason: str) -> Mapping[str, object]:
    stage.out().joinpath("REFUSED").write_text(f"no engine: {reason}\n")
    return {"status": status, "reason": reason, "not_verified": [f"the engine: none was built: {reason}"]}


def main() -> None:
    stage_main("engine", run)


if __name__ == "__main__":
    main()
