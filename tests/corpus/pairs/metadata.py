"""Pairs of equal graphs whose metadata contradict each other, or rightly differ."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnx

from tests.corpus.pairs import Pair, numbers, replayed
from tests.corpus.pairs.detections import CLASSES, SIZE, as_queries, scene, spec_of
from truehalf.io_spec.in_file import SPEC_KEY

ARRAYS = as_queries(scene(pictures=1))
NAMES = [f"class {number}" for number in range(CLASSES)]
IMAGES = {"name": "x", "shape": ["N", 1], "layout": "NCHW", "range": [0, 1], "size": [SIZE, SIZE]}
IMAGES |= {"normalization": {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225], "where": "outside"}}
SPEC: dict[str, Any] = {"inputs": [IMAGES], "outputs": spec_of(ARRAYS)["outputs"], "class_names": NAMES}


CONTRADICTIONS: dict[str, tuple[Any, ...]] = {  # by path in the I/O spec, other values
    "outputs/1/format": ("cxcywh",),
    "inputs/0/range": ([0, 255],),
    "inputs/0/normalization/mean": ([0.5, 0.5, 0.5],),
    "class_names": (NAMES[::-1],),
}
HARMLESS: dict[str, tuple[Any, ...]] = {
    "outputs/0/dtype": ("float16",),
    "inputs/0/shape": ([12, 1],),
    "inputs/0/normalization/mean": ([float(np.float32(each)) for each in IMAGES["normalization"]["mean"]],),
}
CLASSES_BESIDE: dict[str, tuple[str, str, str, bool]] = {  # key, the reference's, the candidate's, whether it fails
    "names": ("names", str(dict(enumerate(NAMES))), str(dict(enumerate(NAMES[::-1]))), True),
    "labels-in-lines": ("model.labels", "\n".join(NAMES), "\n".join(NAMES[1:]), True),
    "labels-of-another-form": ("labels", str(dict(enumerate(NAMES))), json.dumps(NAMES), False),
}
OTHERS = {  # what a file says of how it was made
    "command": ('["export.py", "--fp32"]', '["export.py", "--half"]'),
}


def changed(path: str, value: Any) -> dict[str, Any]:
    """The I/O spec with another value; without the key, where it is None."""
    spec = copy.deepcopy(SPEC)
    *way, last = path.split("/")
    place: Any = spec
    for step in way:
        place = place[int(step) if step.isdigit() else step]
    place[last] = value
    if value is None:
        del place[last]
    return spec


def of(name: str, props: tuple[dict[str, str], dict[str, str]], expected: str, said: bool) -> Pair:
    models = [replayed(ARRAYS), replayed(ARRAYS)]
    for model, given in zip(models, props, strict=True):
        onnx.helper.set_model_props(model, given)
    codes = ("metadata-differ",) if said else ()
    return Pair(
        f"metadata-{name}", *models, {"x": numbers(len(ARRAYS["boxes"]))}, expected, spec_of(ARRAYS), codes=codes
    )


def pairs() -> Iterator[Pair]:
    right = {SPEC_KEY: json.dumps(SPEC)}
    for table, verdict in ((CONTRADICTIONS, "failed"), (HARMLESS, "passed")):
        for path, values in table.items():
            for number, value in enumerate(values):
                name = f"{verdict}-{path.replace('/', '-')}-{number}"
                yield of(name, (right, {SPEC_KEY: json.dumps(changed(path, value))}), verdict, verdict == "failed")
    for name, (key, ours, theirs, fails) in CLASSES_BESIDE.items():
        yield of(f"{name}-beside", ({key: ours}, {key: theirs}), "failed" if fails else "passed", fails)
    for key, (ours, theirs) in OTHERS.items():
        yield of(f"other-{key}", ({key: ours}, {key: theirs}), "passed", False)
    yield of(
        "of-the-candidate-alone", ({}, {SPEC_KEY: json.dumps(changed("outputs/1/format", "cxcywh"))}), "failed", True
    )
    yield of("no-spec", (right, {SPEC_KEY: "no JSON"}), "passed", True)
    yield of("none-of-the-candidate", (right, {}), "passed", False)
