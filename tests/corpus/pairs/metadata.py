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

SPECS: dict[str, tuple[Any, str]] = {  # by path in the I/O spec, another value and the verdict
    "outputs/1/format": ("cxcywh", "failed"),
    "inputs/0/range": ([0, 255], "failed"),
    "inputs/0/normalization/mean": ([0.5, 0.5, 0.5], "failed"),
    "class_names": (NAMES[::-1], "failed"),
    "outputs/0/dtype": ("float16", "passed"),
    "inputs/0/shape": ([12, 1], "passed"),
    "inputs/0/normalization/std": ([float(np.float32(each)) for each in IMAGES["normalization"]["std"]], "passed"),
}
TEXTS: dict[str, tuple[str, str, str, str]] = {  # key, the reference's, the candidate's, verdict
    "names": ("names", str(dict(enumerate(NAMES))), str(dict(enumerate(NAMES[::-1]))), "failed"),
    "labels-in-lines": ("model.labels", "\n".join(NAMES), "\n".join(NAMES[1:]), "failed"),
    "labels-of-another-form": ("labels", str(dict(enumerate(NAMES))), json.dumps(NAMES), "passed"),
    "command": ("command", '["export.py", "--fp32"]', '["export.py", "--half"]', "passed"),
}


def changed(path: str, value: Any) -> str:
    """The I/O spec with another value, as text."""
    spec = copy.deepcopy(SPEC)
    *way, last = path.split("/")
    place: Any = spec
    for step in way:
        place = place[int(step) if step.isdigit() else step]
    place[last] = value
    return json.dumps(spec)


def of(name: str, ours: dict[str, str], theirs: dict[str, str], expected: str, said: bool) -> Pair:
    models = [replayed(ARRAYS), replayed(ARRAYS)]
    for model, given in zip(models, (ours, theirs), strict=True):
        onnx.helper.set_model_props(model, given)
    inputs, codes = {"x": numbers(len(ARRAYS["boxes"]))}, ("metadata-differ",) if said else ()
    return Pair(f"metadata-{name}", *models, inputs, expected, spec_of(ARRAYS), codes=codes)


def pairs() -> Iterator[Pair]:
    right = {SPEC_KEY: json.dumps(SPEC)}
    for path, (value, verdict) in SPECS.items():
        theirs = {SPEC_KEY: changed(path, value)}
        yield of(f"{verdict}-{path.replace('/', '-')}", right, theirs, verdict, verdict == "failed")
    for name, (key, first, second, verdict) in TEXTS.items():
        yield of(f"{name}-beside", {key: first}, {key: second}, verdict, verdict == "failed")
    yield of("of-the-candidate-alone", {}, {SPEC_KEY: changed("outputs/1/format", "cxcywh")}, "failed", True)
    yield of("no-spec", right, {SPEC_KEY: "no JSON"}, "passed", True)
    yield of("none-of-the-candidate", right, {}, "passed", False)
