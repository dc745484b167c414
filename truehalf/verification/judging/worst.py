"""The outputs that a failed gate names, worst first."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from truehalf.io_spec.decode import Detections
from truehalf.io_spec.outputs import class_name, classes_of
from truehalf.verification.measured import Measured
from truehalf.verification.metrics.detections import Matching
from truehalf.verification.metrics.plain_outputs import errors_by_sample
from truehalf.verification.output_shapes import comparable


@dataclass(frozen=True)
class Worst:
    """One of the worst: its sample, the output or the detection, and what is wrong with it."""

    sample: str
    output: str
    error: str


Ranked = Iterator[tuple[float, Worst]]  # by how bad they are, in the order of the samples


def ranked(items: Ranked) -> list[Worst]:
    return [item for _, item in sorted(items, key=lambda pair: -pair[0])]


def missed_detections(seen: Measured) -> Ranked:
    """Reference detections that were not matched, the most confident first."""
    for sample, ref, cand, matching in _matched_samples(seen):
        errors = {r: f"label became {_name(seen, cand, c)}" for r, c in matching.relabelled}
        errors |= {r: f"displaced by {_shift(ref, cand, r, c):.1f} px" for r, c in matching.displaced}
        errors |= dict.fromkeys(matching.absent, "absent")
        yield from ((float(ref.scores[r]), _item(sample, seen, ref, r, error)) for r, error in errors.items())


def flipped_detections(seen: Measured) -> Ranked:
    """Reference detections that became another class, the most confident first."""
    for sample, ref, cand, matching in _matched_samples(seen):
        for r, c in matching.relabelled:
            yield float(ref.scores[r]), _item(sample, seen, ref, r, f"label became {_name(seen, cand, c)}")


def extra_detections(seen: Measured) -> Ranked:
    """Detections that the reference does not have, the most confident first."""
    for sample, _, cand, matching in _matched_samples(seen):
        for c in matching.extra:
            yield float(cand.scores[c]), _item(sample, seen, cand, c, "not in the FP32 reference")


def displaced_detections(seen: Measured) -> Ranked:
    """Matched detections, the largest box error first."""
    for sample, ref, _, matching in _matched_samples(seen):
        for (r, _), error in zip(matching.pairs, matching.box_error_px, strict=True):
            yield float(error), _item(sample, seen, ref, int(r), f"box differs by {error:.2f} px")


def rescored_detections(seen: Measured) -> Ranked:
    """Matched detections, and samples by those below the score threshold, the largest score error first."""
    for sample, ref, cand, matching in _matched_samples(seen):
        for (r, c), error in zip(matching.pairs, np.abs(matching.score_error), strict=True):
            yield float(error), _item(sample, seen, ref, int(r), f"score became {cand.scores[c]:.3f}")
        if matching.low_score_error.size:
            low = float(matching.low_score_error.max())
            yield low, Worst(sample, "scores", f"scores below the threshold differ by up to {low:.3f}")


def other_ranks(seen: Measured) -> Ranked:
    """Samples by the largest difference of scores of one rank."""
    for sample, _, _, matching in _matched_samples(seen):
        error = float(matching.rank_error.max(initial=0.0))
        yield error, Worst(sample, "scores, best first", f"scores of one rank differ by up to {error:.3f}")


def flipped_classes(seen: Measured) -> Ranked:
    """Samples whose best class is another, the one with the widest margin in the reference first."""
    name = classes_of(seen.spec)
    for run in seen.runs:
        for sample, r, c in zip(run.names, run.reference[name], run.candidate[name], strict=False):
            best, other = int(r.argmax()), int(c.argmax())
            if best != other:
                error = f"{_class(seen, best)} became {_class(seen, other)}"
                yield float(r[best] - r[other]), Worst(sample, name, error)


def worst_tensors(seen: Measured, name: str) -> Ranked:
    """Samples by the largest tensor error of an output, see truehalf.verification.metrics.plain_outputs."""
    names = [sample for run in seen.runs for sample in run.names[: max(run.rows, 1)]]
    alike = all(name in comparable(run.reference, run.candidate) for run in seen.runs)
    for sample, error in zip(names, errors_by_sample(seen.runs, [name]), strict=False):
        what = f"differs by {error:.2%} of the output's scale" if alike else "has another shape"
        yield float(error), Worst(sample, name, what)


def nonfinite_outputs(seen: Measured) -> Ranked:
    """Outputs with NaN or Inf, the fullest first."""
    for run in seen.runs:
        for name, values in run.candidate.items():
            by_sample = run.rows and np.ndim(values)
            floats = np.asarray(values).dtype.kind == "f"
            for sample, value in zip(run.names, values if by_sample else [values], strict=False) if floats else ():
                nan, inf = int(np.isnan(value).sum()), int(np.isinf(value).sum())
                if nan + inf:
                    error = f"{nan} NaN and {inf} Inf of {np.size(value)} values"
                    yield float(nan + inf), Worst(sample, name, error)


def _matched_samples(seen: Measured) -> Iterator[tuple[str, Detections, Detections, Matching]]:
    names = (name for run in seen.runs for name in run.names)
    for name, (expected, found), matching in zip(names, seen.found, seen.matchings, strict=False):
        yield name, expected, found, matching


def _item(sample: str, seen: Measured, found: Detections, index: int, error: str) -> Worst:
    box = ", ".join(f"{value:.1f}" for value in found.boxes_px[index])
    what = f"{_name(seen, found, index)}, score {found.scores[index]:.3f}, box ({box})"
    return Worst(sample, what, error)


def _name(seen: Measured, found: Detections, index: int) -> str:
    return _class(seen, int(found.labels[index]))


def _class(seen: Measured, number: int) -> str:
    return class_name(seen.spec.class_names, number)


def _shift(a: Detections, b: Detections, i: int, j: int) -> float:
    return float(np.abs(a.boxes_px[i] - b.boxes_px[j]).max())
