"""Pictures of the samples on which a file of detections differs: every one that does, as far as there is room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path

import numpy as np

from truehalf.config.verification import VerifyConfig
from truehalf.data.preprocessing import declared_by
from truehalf.files import write_text
from truehalf.io_spec.outputs import DETECTIONS, class_name, task_of
from truehalf.io_spec.spec import InputSpec
from truehalf.json_values import JsonObject
from truehalf.report.images import Box, side_by_side
from truehalf.verification.chain.reference import Reference
from truehalf.verification.comparison import Comparison
from truehalf.verification.samples import SampleFacts, worst_samples

_ROOM = 24  # pictures of samples that differ


def draw(folder: Path, reference: Reference, final: Comparison, options: VerifyConfig) -> list[JsonObject]:
    """Write pictures into `folder`; return {file, sample, ...} of each, worst first."""
    folder.mkdir(parents=True, exist_ok=True)
    if not reference.spec.trained or task_of(reference.spec) != DETECTIONS or not options.pictures:
        return []
    rows = final.samples
    drawn: list[JsonObject] = []
    for number, i in enumerate(chosen(rows, options.pictures), start=1):
        file = folder / f"sample_{number}.svg"
        image = _image(reference.samples[i].arrays, reference.spec.image_input)
        write_text(file, side_by_side(image, _boxes(reference, final, i, options.score_threshold), rows[i].sample))
        drawn.append({"file": f"plots/{file.name}"} | asdict(rows[i]))
    return drawn


def chosen(rows: Sequence[SampleFacts], count: int) -> list[int]:
    """Choose positions of samples: the worst `count`, all with other detections or NaN, and the largest error of a
    score.
    """
    order = worst_samples(rows, len(rows))
    differing = [i for i in order if differs(rows[i])]
    scores = sorted(order, key=lambda i: -rows[i].score_error_max)[:1]
    wanted = {*order[:count], *differing[:_ROOM], *scores}
    return [i for i in order if i in wanted]


def differs(row: SampleFacts) -> bool:
    """True if a detection is lost, new or relabelled, or a value is not finite."""
    return bool(row.missed or row.extra or row.label_flips or row.nonfinite)


def _boxes(reference: Reference, final: Comparison, i: int, threshold: float) -> dict[str, list[Box]]:
    sides = {"reference": reference.detections[i]}
    sides |= {"candidate": final.detections[i][1]} if final.detections else {}
    sides |= {"truth": reference.truth[i]} if reference.truth else {}
    names = reference.spec.class_names
    return {
        side: [
            (box.tolist(), class_name(names, int(label)), float(score))
            for box, label, score in zip(found.boxes_px, found.labels, found.scores, strict=True)
            if side == "truth" or score >= threshold
        ]
        for side, found in sides.items()
    }


def _image(feeds: Mapping[str, np.ndarray], entry: InputSpec) -> np.ndarray:
    """Return the input image: float32 [3, H, W], RGB in 0..1."""
    preprocessing = declared_by(entry)
    values = feeds[entry.name]
    return values if preprocessing is None else preprocessing.shown(values)
