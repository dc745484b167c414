"""Outputs and latency of an engine that runs.

An engine is a `Runner`, which truehalf.verification compares as any other: on all samples at the first profile's opt
and on the adversarial ones with the FP32 reference, and at the batches of min, opt and max of each profile with its own
outputs at opt.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol, cast

import numpy as np
import onnx_ir as ir

from truehalf.config.engine import KINDS, LatencyConfig
from truehalf.data.samples import Sample
from truehalf.engines.engine_report import Parity, PointLatency, PointOfProfile
from truehalf.errors import StageError
from truehalf.io_spec.profiles import Profile
from truehalf.ir.facts import fed_inputs, lengths_of
from truehalf.ir.model_forms import ModelFile
from truehalf.runtime.timing import timed
from truehalf.verification.chain.stage import HEADLINE, Judge
from truehalf.verification.findings import FAILED, NOT_VERIFIED, PASSED, VERIFIED, reasons_of, verdict_of, worst_of
from truehalf.verification.open_file import OpenFile, Runner

_ANY_MEMORY = 1e6  # GB: an engine's memory is the GPU's


class Engine(Runner, Protocol):
    """A Runner that can be timed."""

    def prepared(self, feeds: Mapping[str, np.ndarray]) -> Callable[[], object]:
        """A call that runs on these inputs and waits."""


def compare_engine(
    engine: Runner, file: ModelFile, profiles: Sequence[Profile], evidence: Judge | str, evaluation: str
) -> Parity:
    """Compare an engine with the reference, and at min, opt and max with itself.

    Args:
        file: that it was made from.
        evidence: the reference, or why there is none.
        evaluation: what the table of stages calls it.

    Returns:
        state ("verified" if verify passes it and it puts out the same at every batch, "failed" when one fails, else
        "not verified") and reason; headline and gates of verify; samples; batches; adversarial.
    """
    parity: Parity = {"evaluation": evaluation, "provider": engine.provider}
    if isinstance(evidence, str):
        return parity | {"state": NOT_VERIFIED, "reason": evidence}
    reference = evidence.reference
    parity["samples"] = len(reference.names)
    sizes = _batches(profiles, KINDS) or [file.fixed_batch or 1]
    batch = (_batches(profiles[:1], ("opt",)) or sizes)[-1]
    options = replace(evidence.options, batch=batch, memory_gb=_ANY_MEMORY)
    try:
        result = replace(evidence, options=options).of_open_file(OpenFile(file, evaluation, engine), sizes)
    except StageError as error:
        state = NOT_VERIFIED if error.code == "out-of-range" else FAILED  # of samples that no profile takes
        return parity | {"state": state, "reason": f"the engine does not run: {error}"}
    made = result.comparison.runs[0].candidate
    if missing := [name for name in reference.outputs if name not in made]:
        reason = f"the engine has no output {', '.join(missing)}; it has {', '.join(made) or 'none'}"
        return parity | {"state": FAILED, "reason": reason}
    batches = result.batches
    findings = [finding for finding in result.findings(options.require) if finding.check != "batch"]
    verdict = verdict_of(findings)
    state = worst_of([VERIFIED if verdict == PASSED else verdict, batches["state"]])
    reasons = [*reasons_of(findings), *([] if batches["state"] == VERIFIED else [batches["reason"]])]
    return cast(
        "Parity",
        {
            **parity,
            **{name: result.comparison.measures[name] for name in HEADLINE},
            "state": state,
            "reason": "" if state == VERIFIED else "; ".join(reasons),
            "batches": batches,
            "adversarial": result.adversarial,
            "gates": [finding.as_dict() for finding in findings if "gate" in finding.facts],
        },
    )


def _batches(profiles: Sequence[Profile], kinds: Sequence[str]) -> list[int]:
    """First axes of the inputs at these points of profiles, ascending; an empty batch compares nothing."""
    shapes = [ranges[kind] for profile in profiles for ranges in profile.values() for kind in kinds]
    return sorted({shape[0] for shape in shapes if shape and shape[0]})


def points_of(profiles: Sequence[Profile]) -> list[PointOfProfile]:
    """Every point of every profile once, in the order min, opt, max; one of a model without a profile."""
    points: list[PointOfProfile] = []
    for number, profile in enumerate(profiles or [{}]):
        shapes_of = {kind: {name: list(ranges[kind]) for name, ranges in profile.items()} for kind in KINDS}
        for shapes in {str(shapes): shapes for shapes in shapes_of.values()}.values():
            kinds = [kind for kind in KINDS if shapes_of[kind] == shapes]
            points.append({"profile": number, "points": kinds, "shapes": shapes})
    return points


def latencies(
    engine: Engine, model: ir.Model, profiles: Sequence[Profile], samples: Sequence[Sample], options: LatencyConfig
) -> tuple[list[PointLatency], list[str]]:
    """Latency at every point of the profiles, and why others could not be timed."""
    rows: list[PointLatency] = []
    untimed = []
    for point in points_of(profiles):
        feeds = feeds_at(model, point["shapes"], samples)
        count = max((len(array) for array in feeds.values() if array.ndim), default=1)
        try:
            rows.append({**point, **timed(engine.prepared(feeds), count, options)})
        except StageError as error:
            where = f"profile {point['profile']}, {' and '.join(point['points'])}"
            untimed.append(f"latency at {where}: {error}")
    return rows, untimed


def feeds_at(
    model: ir.Model, shapes: Mapping[str, Sequence[int]], samples: Sequence[Sample] = ()
) -> dict[str, np.ndarray]:
    """Inputs of these shapes: samples, repeated, where they fit, else numbers drawn from 0 to 1, and 0 for integers."""
    random = np.random.default_rng(0)
    feeds = {}
    for value in fed_inputs(model):
        name, dtype = str(value.name), np.dtype(value.dtype.numpy()) if value.dtype else np.dtype(np.float32)
        shape = [*shapes.get(name, [side or 1 for side in lengths_of(value) or []])]
        arrays = [sample.arrays[name] for sample in samples[: shape[0] if shape else 0] if name in sample.arrays]
        if arrays and list(arrays[0].shape) == shape[1:]:
            feeds[name] = np.stack([arrays[i % len(arrays)] for i in range(shape[0])]).astype(dtype)
        else:
            feeds[name] = random.random(shape).astype(dtype) if dtype.kind == "f" else np.zeros(shape, dtype)
    return feeds
