"""The outputs that a failed gate names, worst first."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from truehalf.io_spec.outputs import class_name, plain_outputs
from truehalf.verification.chain.reference import Reference
from truehalf.verification.chain.stage_results import StageResult
from truehalf.verification.metrics.detections import Detections, Matching
from truehalf.verification.metrics.plain_outputs import errors_by_sample


def missed_detections(reference: Reference, stage: StageResult) -> list[dict[str, Any]]:
    """Reference detections that were not matched, the most confident first: {sample, output, error}."""
    items = []
    for sample, ref, cand, matching in _matched_samples(reference, stage):
        errors = {r: f"label became {_name(reference, cand, c)}" for r, c in matching.relabelled}
        errors |= {r: f"displaced by {_shift(ref, cand, r, c):.1f} px" for r, c in matching.displaced}
        errors |= dict.fromkeys(matching.absent, "absent")
        items += [(float(ref.scores[r]), _item(sample, reference, ref, r, error)) for r, error in errors.items()]
    return _worst_first(items)


def flipped_detections(reference: Reference, stage: StageResult) -> list[dict[str, Any]]:
    """Reference detections that became another class, the most confident first."""
    items = []
    for sample, ref, cand, matching in _matched_samples(reference, stage):
        for r, c in matching.relabelled:
            item = _item(sample, reference, ref, r, f"label became {_name(reference, cand, c)}")
            items.append((float(ref.scores[r]), item))
    return _worst_first(items)


def extra_detections(reference: Reference, stage: StageResult) -> list[dict[str, Any]]:
    """Detections that the reference does not have, the most confident first."""
    items = []
    for sample, _, cand, matching in _matched_samples(reference, stage):
        items += [
            (float(cand.scores[c]), _item(sample, reference, cand, c, "not in the FP32 reference"))
            for c in matching.extra
        ]
    return _worst_first(items)


def displaced_detections(reference: Reference, stage: StageResult) -> list[dict[str, Any]]:
    """Matched detections, the largest box error first."""
    items = []
    for sample, ref, _, matching in _matched_samples(reference, stage):
        for (r, _), error in zip(matching.pairs, matching.box_error_px, strict=True):
            items.append((float(error), _item(sample, reference, ref, int(r), f"box differs by {error:.2f} px")))
    return _worst_first(items)


def rescored_detections(reference: Reference, stage: StageResult) -> list[dict[str, Any]]:
    """Matched detections, and samples by those below the score threshold, the largest score error first."""
    items = []
    for sample, ref, cand, matching in _matched_samples(reference, stage):
        for (r, c), error in zip(matching.pairs, np.abs(matching.score_error), strict=True):
            item = _item(sample, reference, ref, int(r), f"score became {cand.scores[c]:.3f}")
            items.append((float(error), item))
        if matching.low_score_error.size:
            low = float(matching.low_score_error.max())
            said = f"scores below the threshold differ by up to {low:.3f}"
            items.append((low, {"sample": sample, "output": "scores", "error": said}))
    return _worst_first(items)


def other_ranks(reference: Reference, stage: StageResult) -> list[dict[str, Any]]:
    """Samples by the largest difference of scores of one rank."""
    items = []
    for sample, _, _, matching in _matched_samples(reference, stage):
        error = float(matching.rank_error.max(initial=0.0))
        said = f"scores of one rank differ by up to {error:.3f}"
        items.append((error, {"sample": sample, "output": "scores, best first", "error": said}))
    return _worst_first(items)


def flipped_classes(reference: Reference, stage: StageResult) -> list[dict[str, Any]]:
    """Samples whose best class is another, the one with the widest margin in the reference first."""
    items = []
    for output in reference.spec["outputs"]:
        if output.get("kind") != "classes":
            continue
        name = output["name"]
        found = stage.outputs[name] if name in stage.facts["tensors"] else ()
        for sample, r, c in zip(reference.names, reference.outputs[name], found, strict=False):
            best, other = int(r.argmax()), int(c.argmax())
            if best != other:
                error = f"{_class(reference, best)} became {_class(reference, other)}"
                items.append((float(r[best] - r[other]), {"sample": sample, "output": name, "error": error}))
    return _worst_first(items)


def worst_tensors(reference: Reference, stage: StageResult) -> list[dict[str, Any]]:
    """Samples by the largest tensor error, see truehalf.verification.metrics.plain_outputs."""
    items = []
    for name in plain_outputs(reference.spec):
        errors = errors_by_sample([reference.run(stage.outputs, len(stage.matchings))], [name])
        for sample, error in zip(reference.names, errors, strict=False):
            said = f"differs by {error:.2g} of the output's largest value"
            said = said if name in stage.facts["tensors"] else "has another shape"
            items.append((float(error), {"sample": sample, "output": name, "error": said}))
    return _worst_first(items)


def nonfinite_outputs(reference: Reference, stage: StageResult) -> list[dict[str, Any]]:
    """Outputs with NaN or Inf, the fullest first."""
    items = []
    for name, values in stage.outputs.items():
        for sample, value in zip(reference.samples, values, strict=False):
            nan, inf = int(np.isnan(value).sum()), int(np.isinf(value).sum())
            if nan + inf:
                error = f"{nan} NaN and {inf} Inf of {value.size} values"
                items.append((float(nan + inf), {"sample": sample.name, "output": name, "error": error}))
    return _worst_first(items)


def _matched_samples(
    reference: Reference, stage: StageResult
) -> Iterator[tuple[str, Detections, Detections, Matching]]:
    return zip(reference.names, reference.found, stage.found, stage.matchings, strict=False)


def _item(sample: str, reference: Reference, found: Detections, index: int, error: str) -> dict[str, Any]:
    box = ", ".join(f"{value:.1f}" for value in found.boxes[index])
    what = f"class {_name(reference, found, index)}, score {found.scores[index]:.3f}, box ({box})"
    return {"sample": sample, "output": what, "error": error}


def _name(reference: Reference, found: Detections, index: int) -> str:
    return _class(reference, int(found.labels[index]))


def _class(reference: Reference, number: int) -> str:
    return class_name(reference.spec["class_names"], number)


def _shift(a: Detections, b: Detections, i: int, j: int) -> float:
    return float(np.abs(a.boxes[i] - b.boxes[j]).max())


def _worst_first(items: list[tuple[float, dict[str, Any]]]) -> list[dict[str, Any]]:
    return [item for _, item in sorted(items, key=lambda pair: -pair[0])]
