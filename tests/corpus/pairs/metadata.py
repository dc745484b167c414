"""Pairs of equal graphs whose metadata contradict each other, or rightly differ."""

from __future__ import annotations

import copy
import json
import random
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
OF_NUMBERS = "{0: 'a', 1: 'b'}"
BESIDE = {  # of any tool: the reference's, the candidate's, the verdict, and whether something is said
    "names": (str(dict(enumerate(NAMES))), str(dict(enumerate(NAMES[::-1]))), "failed"),
    "classes": (json.dumps(NAMES), json.dumps(NAMES[:3]), "failed"),
    "box_format": ("xyxy", "cxcywh", "failed"),
    "names-of-another-form": (str(dict(enumerate(NAMES))), json.dumps(NAMES[1:]), "failed"),
    "boxes": ("{'format': 'xyxy', 'unit': 'px'}", "{'format': 'cxcywh', 'unit': 'px'}", "failed"),
    "made": ("{'author': 'a', 'date': '1'}", "{'author': 'b', 'date': '2'}", "said"),
    "labels-of-another-form": (str(dict(enumerate(NAMES))), json.dumps(NAMES), ""),
    "label2id": (
        json.dumps({name: i for i, name in enumerate(NAMES)}),
        json.dumps({name: i for i, name in enumerate(NAMES[::-1])}),
        "failed",
    ),
    "label2id-in-another-order": (
        json.dumps({name: i for i, name in enumerate(NAMES)}),
        json.dumps({name: i for i, name in [*enumerate(NAMES)][::-1]}),
        "",
    ),
    "counts-by-name": ("{'epochs': 3, 'steps': 7}", "{'epochs': 4, 'steps': 7}", "said"),
    "class_names": (", ".join(NAMES), ",".join(NAMES[::-1]), "failed"),
    "model.labels": ("\n".join(NAMES), "\n".join(NAMES[1:]), "failed"),
    "label-names": (";".join(NAMES), "; ".join(NAMES), ""),
    "hash": ("1" * 400, "2" * 400, "said"),  # no float is as large
    "hash-alike": ("1" * 400, "1" * 400, ""),
    "remarks": ("fast, small", "small, fast", "said"),
    "missing": ("NaN", "NaN", ""),
    "color": ("RGB", "BGR", "failed"),
    "layout": ("NCHW", "nchw", ""),
    "stride": ("32", "16", "said"),
    "date": ("2026-01-01", "2026-01-02", "said"),
    "args": ("{'half': False, 'batch': 1}", "{'half': True, 'batch': 1}", "said"),
    "precision": ("fp32", "fp16", "said"),  # and the file holds none
    "dtype": ("float32", "float32", ""),
    "imgsz": ("[640, 640]", "[640,640]", ""),
    "labels": (str(dict(enumerate(NAMES))), json.dumps(dict(enumerate(NAMES))), ""),
    "categories": (json.dumps(CATEGORIES), json.dumps(renamed(CATEGORIES, NAMES[::-1])), "failed"),
    "coco": (json.dumps(CATEGORIES), json.dumps(CATEGORIES[1:]), "failed"),
    "classes-of-coco": (json.dumps(CATEGORIES), json.dumps(NAMES[::-1]), "failed"),
    "thing_classes": (json.dumps(CATEGORIES), str(CATEGORIES[::-1]), ""),
    "classes-by-number": (json.dumps(CATEGORIES), str(dict(enumerate(NAMES, 1))), ""),
    "id2label": (json.dumps(dict(enumerate(NAMES, 1))), json.dumps(dict(enumerate(NAMES))), "failed"),
    "names-of-two": ("{0: 'cat', 1: 'dog'}", "{0: 'cat', 2: 'dog'}", "failed"),
    "powers": ("{'²': 'a'}", "{'²': 'b'}", "said"),
    **{
        f"{number}-numbered-names": (OF_NUMBERS, text, "")
        for number, text in enumerate(
            ("0: a\n1: b", "1 b\n0 a", "0) a, 1) b", "a: 0\nb: 1", "b = 1; a = 0", "0. a\n1. b")
        )
    },
    **{
        f"{number}-renumbered-names": (OF_NUMBERS, text, "failed")
        for number, text in enumerate(
            ("0: b\n1: a", "1 a\n0 b", "1) a, 2) b", "a: 1\nb: 0", "0. b\n1. a", "0: a\n1: c")
        )
    },
    "no-literal": ("{[1]: 2}", "{[1]: 3}", "said"),
    "layers": ("[{'name': 'stem'}, {'name': 'head'}]", "[{'name': 'stem'}, {'name': 'tail'}]", "said"),
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
    for key, (ours, theirs, state) in BESIDE.items():
        yield of(
            f"{key}-{state}", ({key: ours}, {key: theirs}), "failed" if state == "failed" else "passed", bool(state)
        )
    yield of(
        "of-the-candidate-alone", ({}, {SPEC_KEY: json.dumps(changed("outputs/1/format", "cxcywh"))}), "failed", True
    )
    yield of("no-spec", (right, {SPEC_KEY: "no JSON"}), "passed", True)
    yield of("none-of-the-candidate", (right, {}), "passed", False)
    for seed in range(6):
        draw = random.Random(seed)
        spec = SPEC
        path = draw.choice(list(CONTRADICTIONS))
        spec = changed(path, draw.choice(CONTRADICTIONS[path]))
        spec["class_names"] = spec["class_names"] if path == "class_names" else draw.choice([NAMES, []])
        spec["outputs"] = draw.sample(spec["outputs"], len(spec["outputs"]))
        yield of(f"drawn-{seed}", (right, {SPEC_KEY: json.dumps(spec), "author": "another"}), "failed", True)
