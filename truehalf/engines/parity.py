"""An engine against the frozen FP32 reference, at every point of its optimization profiles.

With P the points (min, opt and max of each profile), R the reference on all samples and E_p the engine's outputs in
runs of just p's batch, the last run filled up with its last sample:

    E_p ~ R   for every p in P, by the metrics and gates of verify (truehalf.verification.judging)
    E_opt ~ R on the adversarial samples, too

An engine is another program than the file that it was built from: fusion, kernels and accumulation differ, and a
wrong one gives wrong numbers without an error. So what counts is what it outputs, at the shapes that it will meet.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import onnx_ir as ir

from truehalf.codes import coded
from truehalf.config.verification import VerifyConfig
from truehalf.data.samples import Sample
from truehalf.engines.engine_report import Parity, PointOfProfile
from truehalf.errors import told
from truehalf.io_spec.columns import in_parts
from truehalf.ir.facts import lengths_of
from truehalf.runtime.tensorrt.versions import Profile
from truehalf.verification.chain.adversarial import found_in_images
from truehalf.verification.chain.reference import Outputs, Reference
from truehalf.verification.chain.stage_results import headline, measure
from truehalf.verification.findings import FAILED, NOT_VERIFIED, PASSED, VERIFIED, reasons_of, verdict_of, worst_of
from truehalf.verification.judging.judge import judge_reactions
from truehalf.verification.output_shapes import shape_problems
from truehalf.verification.runs import Part, outputs_on, repeated
from truehalf.verification.stage_numbers import AdversarialFacts

Feeds = dict[str, np.ndarray]
Run = Callable[[Feeds, int], Mapping[str, np.ndarray]]  # feeds and the number of the profile -> outputs by name


@dataclass(frozen=True)
class EngineReference:
    """What an engine is compared with.

    Attributes:
        reference: the frozen outputs on the verification samples.
        adversarial: those on the adversarial samples, or why there are none.
        options: thresholds and gates.
    """

    reference: Reference
    adversarial: Reference | str
    options: VerifyConfig


@dataclass(frozen=True)
class Point:
    """A point of an optimization profile.

    Attributes:
        profile: its number, from 0.
        names: "min", "opt", "max": those that are this point.
        shapes: of each input in the profile, the shape there.
        values: of each shape tensor in the profile, its values there.
    """

    profile: int
    names: tuple[str, ...]
    shapes: dict[str, list[int]]
    values: dict[str, list[int]] = field(default_factory=dict)

    @property
    def label(self) -> str:
        """Such as "profile 0, min and opt"."""
        return f"profile {self.profile}, {' and '.join(self.names)}"

    @property
    def facts(self) -> PointOfProfile:
        return {"profile": self.profile, "points": list(self.names), "shapes": self.shapes | self.values}


def points_of(profiles: Sequence[Profile], shape_inputs: Collection[str] = ()) -> list[Point]:
    """Every point of every profile once, in the order min, opt, max.

    Args:
        shape_inputs: the shape tensors among the inputs: their numbers in a profile are values.
    """
    found = []
    for number, profile in enumerate(profiles):
        by_numbers: dict[str, tuple[list[str], dict[str, list[int]]]] = {}
        for kind in ("min", "opt", "max"):
            numbers = {name: list(one[kind]) for name, one in profile.items()}
            by_numbers.setdefault(str(numbers), ([], numbers))[0].append(kind)
        for names, numbers in by_numbers.values():
            shapes, values = (
                {name: one for name, one in numbers.items() if (name in shape_inputs) == as_values}
                for as_values in (False, True)
            )
            found.append(Point(number, tuple(names), shapes, values))
    return found


def measure_engine(run: Run, model: ir.Model, points: Sequence[Point], evidence: EngineReference) -> Parity:
    """Compare an engine with the reference at every point.

    Args:
        run: the engine: TensorRT's, or a session of ONNX Runtime.
        model: the file that it was made from, for the types of its inputs.
        points: at least one.

    Returns:
        state ("verified" when every point and the adversarial samples are, "failed" when one fails, else "not
        verified") and reason; the headline (truehalf.verification.chain.stage_results) and gates of the opt point of
        the first profile; samples; points, each with {profile, points, shapes, batch, state, reason}, its headline and
        gates; adversarial.
    """
    main = next((i for i, point in enumerate(points) if "opt" in point.names), 0)
    rows = [_measure(run, model, point, evidence) for point in points]
    adversarial = _adversarial(run, model, points[main], evidence)
    judged_all = [(point.label, row["state"], row["reason"]) for point, row in zip(points, rows, strict=True)]
    judged_all.append(("adversarial images", adversarial["state"], adversarial["reason"]))
    state = worst_of(state for _, state, _ in judged_all)
    reasons = [f"{label}: {reason}" for label, one, reason in judged_all if one == state]
    chosen = {key: value for key, value in rows[main].items() if key not in ("state", "reason", *points[main].facts)}
    found: Any = {"state": state, "reason": "" if state == VERIFIED else "; ".join(reasons)}
    parity: Parity = found | {"samples": len(evidence.reference.names)} | chosen
    return {**parity, "points": rows, "adversarial": adversarial}


def _measure(run: Run, model: ir.Model, point: Point, evidence: EngineReference) -> dict[str, Any]:
    reference, options = evidence.reference, evidence.options
    batch, outputs, stopped = _outputs(run, model, point, reference)
    facts: dict[str, Any] = {**point.facts, "batch": batch}
    if stopped:
        return facts | stopped
    stage = measure(reference, outputs, options)
    judged = stage.judged()
    held = [gate.as_dict() for gate in judged if "gate" in gate.facts]
    found = [*judged, *(one for one in judge_reactions(stage.seen) if one.state == FAILED)]
    verdict = verdict_of(found)
    outcome = {"state": VERIFIED if verdict == PASSED else verdict, "reason": "; ".join(reasons_of(found))}
    more = {"nan": stage.facts["nan"], "inf": stage.facts["inf"], "detections": stage.facts["detections"]}
    return facts | outcome | headline(stage.facts) | more | {"gates": held}


def _adversarial(run: Run, model: ir.Model, point: Point, evidence: EngineReference) -> AdversarialFacts:
    reference = evidence.adversarial
    if isinstance(reference, str):
        return {"state": NOT_VERIFIED, "reason": reference}
    _, outputs, stopped = _outputs(run, model, point, reference)
    return stopped or found_in_images(reference, outputs, evidence.options)


def _outputs(run: Run, model: ir.Model, point: Point, reference: Reference) -> tuple[int, Outputs, AdversarialFacts]:
    """Samples of a run; outputs on all samples, [samples, ...] by name, floats as float32; or why there are none."""
    batch, why = _batch(model, point, reference.samples[0])
    if why:
        return batch, {}, {"state": NOT_VERIFIED, "reason": why}

    def filled(part: Part) -> Feeds:
        feeds = feeds_of(model, point, repeated(part.feed, batch))
        outputs = {name: np.asarray(value)[: part.rows] for name, value in run(feeds, point.profile).items()}
        return in_parts(outputs, reference.spec)

    try:
        outputs = outputs_on(reference.samples, batch, filled, f"engine: batch {batch}")
    except Exception as error:  # whatever stops an engine is a verdict on it, and must not lose its file
        return batch, {}, {"state": FAILED, "reason": f"the engine does not run: {told(error)}"}
    there = ", ".join(outputs) or "none"
    missing = [
        f"the engine has no output {name!r}; it has {there}" for name in reference.outputs if name not in outputs
    ]
    problem = "; ".join(missing or shape_problems(reference.outputs, outputs, reference.spec))
    return batch, outputs, {"state": FAILED, "reason": problem} if problem else {}


def feeds_of(model: ir.Model, point: Point, given: Mapping[str, np.ndarray]) -> Feeds:
    """What an engine is fed at a point: what is given, as many samples as its batch, or else numbers drawn from 0..1.

    A shape tensor gets the values that the profile states. Where nothing is known of a side it is 1.
    """
    drawn = np.random.default_rng(0)
    feeds = {}
    for value in model.graph.inputs:
        name, dtype = str(value.name), np.dtype(value.dtype.numpy()) if value.dtype else np.dtype(np.float32)
        if name in given:
            feeds[name] = np.ascontiguousarray(given[name].astype(dtype))
        elif name in point.values:
            feeds[name] = np.array(point.values[name], dtype).reshape(() if value.shape == () else (-1,))
        else:
            fixed = [side if isinstance(side, int) else 1 for side in value.shape or ()]
            shape = point.shapes.get(name, fixed)
            feeds[name] = drawn.random(shape).astype(dtype) if dtype.kind == "f" else np.zeros(shape, dtype)
    return feeds


def _batch(model: ir.Model, point: Point, sample: Sample) -> tuple[int, str]:
    """The number of samples in a run at this point, and why the samples cannot be run there, or nothing."""
    sizes: dict[str, int] = {}
    for value in model.graph.inputs:
        name = str(value.name)
        if name in point.values:
            continue
        if name not in sample.feeds:
            return 0, f"the samples have no input {name!r}"
        first, *rest = point.shapes.get(name, lengths_of(value) or []) or [None]
        got = list(sample.feeds[name].shape)
        if len(rest) != len(got) or any(side not in (None, have) for side, have in zip(rest, got, strict=False)):
            return 0, f"a sample of {name!r} has shape {got}, and this point asks for {rest} in each of {first}"
        sizes[name] = first if isinstance(first, int) else 1
    if len(set(sizes.values())) != 1:
        return 0, f"the first axes of its inputs differ: {', '.join(f'{n}: {size}' for n, size in sizes.items())}"
    batch = next(iter(sizes.values()))
    return batch, "" if batch else coded("nothing-compared", "its batch is 0, so that there is nothing to compare")


def batch_of(model: ir.Model, point: Point) -> int:
    """How many samples one run at a point takes: the first axis of the inputs whose first axis varies, or, where none
    does, of all; 1 where they differ. Shape tensors have no samples.
    """
    firsts: list[tuple[bool, int]] = []
    for value in model.graph.inputs:
        sides = list(value.shape or ())
        if str(value.name) in point.values or not sides:
            continue
        fixed = sides[0] if isinstance(sides[0], int) else None
        firsts.append((fixed is None, point.shapes.get(str(value.name), [1 if fixed is None else fixed])[0]))
    sizes = {first for varies, first in firsts if varies} or {first for _, first in firsts}
    return next(iter(sizes)) if len(sizes) == 1 else 1
