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
CATEGORIES = [{"id": number, "name": name, "supercategory": "thing"} for number, name in enumerate(NAMES, 1)]
IMAGES = {"name": "x", "shape": ["N", 1], "layout": "NCHW", "range": [0, 1], "size": [SIZE, SIZE]}
IMAGES |= {"normalization": {"mean": [0.485, 0.456, 0.406], "std": [0.229, 0.224, 0.225], "where": "outside"}}
SPEC: dict[str, Any] = {"inputs": [IMAGES], "outputs": spec_of(ARRAYS)["outputs"], "class_names": NAMES}


def renamed(categories: list[dict[str, Any]], names: list[str]) -> list[dict[str, Any]]:
    return [category | {"name": name} for category, name in zip(categories, names, strict=True)]


CONTRADICTIONS: dict[str, tuple[Any, ...]] = {  # by path in the I/O spec, other values
    "outputs/1/format": ("cxcywh",),
    "outputs/1/normalized": (False,),
    "outputs/0/activation": ("softmax", "identity"),
    "outputs/0/no_object": (True,),
    "inputs/0/layout": ("NHWC",),
    "inputs/0/range": ([0, 255], [-1, 1]),
    "inputs/0/size": ([320, 320],),
    "inputs/0/normalization/mean": ([0.5, 0.5, 0.5],),
    "inputs/0/normalization/where": ("inside the graph",),
    "class_names": (NAMES[::-1], NAMES[:-1]),
}
HARMLESS: dict[str, tuple[Any, ...]] = {
    "outputs/0/dtype": ("float16",),
    "inputs/0/shape": (["batch", 1], [12, 1]),
    "outputs/1/format": (None,),
    "class_names": ([],),
    "inputs/0/normalization/mean": ([float(np.float32(each)) for each in IMAGES["normalization"]["mean"]],),
}
CLASSES_BESIDE: dict[str, tuple[str, str, str, bool]] = {  # key, the reference's, the candidate's, whether it fails
    "names": ("names", str(dict(enumerate(NAMES))), str(dict(enumerate(NAMES[::-1]))), True),
    "classes": ("classes", json.dumps(NAMES), json.dumps(NAMES[:3]), True),
    "names-of-another-form": ("names", str(dict(enumerate(NAMES))), json.dumps(NAMES[1:]), True),
    "labels-of-another-form": ("labels", str(dict(enumerate(NAMES))), json.dumps(NAMES), False),
    "label2id": (
        "label2id",
        json.dumps({name: i for i, name in enumerate(NAMES)}),
        json.dumps({name: i for i, name in enumerate(NAMES[::-1])}),
        True,
    ),
    "label2id-in-another-order": (
        "label2id",
        json.dumps({name: i for i, name in enumerate(NAMES)}),
        json.dumps({name: i for i, name in [*enumerate(NAMES)][::-1]}),
        False,
    ),
    "class_names": ("class_names", ", ".join(NAMES), ",".join(NAMES[::-1]), True),
    "model.labels": ("model.labels", "\n".join(NAMES), "\n".join(NAMES[1:]), True),
    "labels-apart": ("labels", ";".join(NAMES), "; ".join(NAMES), False),
    "labels-in-json": ("labels", str(dict(enumerate(NAMES))), json.dumps(dict(enumerate(NAMES))), False),
    "categories": ("categories", json.dumps(CATEGORIES), json.dumps(renamed(CATEGORIES, NAMES[::-1])), True),
    "fewer-categories": ("categories", json.dumps(CATEGORIES), json.dumps(CATEGORIES[1:]), True),
    "classes-of-coco": ("classes", json.dumps(CATEGORIES), json.dumps(NAMES[::-1]), True),
    "thing_classes": ("thing_classes", json.dumps(CATEGORIES), str(CATEGORIES[::-1]), False),
    "classes-by-number": ("classes", json.dumps(CATEGORIES), str(dict(enumerate(NAMES, 1))), False),
    "id2label": ("id2label", json.dumps(dict(enumerate(NAMES, 1))), json.dumps(dict(enumerate(NAMES))), True),
    "names-of-two": ("names", "{0: 'cat', 1: 'dog'}", "{0: 'cat', 2: 'dog'}", True),
}
OTHERS = {  # what a file says of how it was made
    "tags": ('["v1"]', '["v1", "fp16"]'),
    "history": ('["onnxslim"]', '["onnxslim", "onnxconverter-common"]'),
    "command": ('["export.py", "--fp32"]', '["export.py", "--half"]'),
    "args": ("{'half': False, 'device': ['cpu']}", "{'half': True, 'device': ['cuda:0']}"),
    "date": ("2026-01-01", "2026-01-02"),
    "precision": ("fp32", "fp16"),
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
