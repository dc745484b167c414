"""Proposed I/O spec of a model, from names, shapes and the values of a run. For a person to confirm: nothing reads it
unasked.

    inputs   images        four axes, three of the channels' axis
             picture_size  integers, two in the last axis, or floats that are named as in FLOAT_SIZES
             tensor        any other
    boxes    four in the last of three axes, or of four, the third of length 1; xyxy where both corners are in order
             everywhere, else cxcywh;
             normalised where none is beyond SIDES
    logits   as many rows as there are boxes; scores ("identity") where all are in 0..1; softmax with a "no object"
             where the last class is the largest in most rows; else sigmoid
    scores, labels   floats and integers [N, boxes]: top-k inside the model
    rows     three axes, one of them coordinates in pixels, then a score and a whole number, or numbers in 0..1: scores
    not batched: the same with an axis less, where an image alone gives another number of rows than one
    classes  two axes, the first of samples, where there are no boxes; named so, or the only output and no vector of
             length 1; probabilities where they add up to 1
    others   embedding (two axes, vectors of length 1 or named so), map (four axes, none of the last two of length 1),
             sequence (three axes, the second as long as the input makes it or followed by a Softmax); else tensor
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from truehalf.io_spec.columns import COUNTS, ORDERS, ROWS, WIDTHS
from truehalf.io_spec.outputs import Outputs, problem_of_classes
from truehalf.io_spec.spec import FIRST, InputSpec, IoSpec, OutputSpec, TensorSpec, input_of
from truehalf.json_values import JsonObject

SIDES = 2.0  # of the image: normalised boxes are hardly larger
NAMED_AS_SIZE = re.compile(r"size|shape|hw$|height|width", re.IGNORECASE)
FLOAT_SIZES = ("im_shape", "scale_factor")  # as PaddleDetection names them
_BOXES = re.compile(r"box|bbox|coord", re.IGNORECASE)
_CLASSES = re.compile(r"logit|score|class|cls|prob|conf|label", re.IGNORECASE)
_COUNTS = re.compile(r"num|count|valid|keep", re.IGNORECASE)
_VECTORS = re.compile(r"embed|feat|descriptor|latent|vector|pool", re.IGNORECASE)
_NORMALIZATIONS = {  # the narrowest first: pixels that the second takes to 0..1 may well do so by the last, too
    "the mean and std 0.5": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "ImageNet's mean and std": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}
_NO_OBJECT = ((-1, True), (0, FIRST))
_OF_SEQUENCES = re.compile("(Log)?Softmax|LSTM|GRU|RNN")  # of text recognition and speech
_BOXES_LATER = [order for order in ORDERS if order[0] != "boxes"]
_UNCLEAR = (
    "output {!r}: boxes and scores, and nothing says what all of its columns are: the first number beside boxes may be "
    "objectness, the last ones others than scores; declare columns, and class_names"
)


@dataclass(frozen=True)
class Proposal:
    """A proposed I/O spec.

    Attributes:
        spec: with kinds, and what they must declare.
        reasons: by name of an input or output, what was seen.
        doubts: what else the outputs could be.
        notes: what the samples do not show.
    """

    spec: IoSpec
    reasons: dict[str, str] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def proposed(
    inputs: Sequence[TensorSpec],
    feeds: Outputs,
    outputs: Outputs,
    class_names: Sequence[str] = (),
    of_images: Collection[str] = (),
    counts: Collection[str] = (),
    made_by: Mapping[str, str] | None = None,
) -> Proposal:
    """An I/O spec that fits a run.

    Args:
        inputs: of the model, with name, dtype and shape.
        feeds: what went in by name, samples along axis 0.
        outputs: what came out by name.
        of_images: names of outputs without an axis of images, the rows of all images along axis 0; where there are
            some, no others are taken for detections.
        counts: names of outputs that say how many these are.
        made_by: by output the operator that makes it, behind nodes that only move values.
        class_names: that may be those of the model; the spec has them where they are as many as its classes.
    """
    reasons: dict[str, str] = {}
    doubts: list[str] = []
    spec_inputs = tuple(_input(each, feeds[each.name], reasons) for each in inputs)
    rows = {array.shape[0] for array in feeds.values() if array.ndim}
    if of_images:
        alone = {name: array[None] for name, array in outputs.items() if name in of_images and array.ndim}
        found = {
            name: replace(each, batched=False, axis=each.axis and each.axis - 1)
            for name, each in _detections(alone, len(class_names), reasons, doubts).items()
        }
        found = found and {name: OutputSpec(name, batched=False) for name in of_images} | found
        found |= {name: OutputSpec(name, COUNTS) for name in counts if found}
    else:
        found = _detections(outputs, len(class_names), reasons, doubts)
        found = found or _classification(outputs, rows, reasons, doubts)
        for name, array in outputs.items():
            if name not in found and array.ndim and len(array) in rows:
                kind = _plain_kind(name, array, (made_by or {}).get(name, ""))
                found |= {} if kind is None else {name: OutputSpec(name, kind)}
    spec_outputs = tuple(
        replace(found.get(name, OutputSpec(name)), dtype=array.dtype.name) for name, array in outputs.items()
    )
    spec = IoSpec(spec_inputs, spec_outputs)
    shaped = tuple(replace(each, shape=outputs[each.name].shape) for each in spec_outputs)
    named = replace(spec, outputs=shaped, class_names=tuple(class_names))
    fits = bool(found) and problem_of_classes(named) is None
    return Proposal(replace(named, outputs=spec_outputs) if fits else spec, reasons, doubts)


def _input(given: TensorSpec, array: np.ndarray, reasons: dict[str, str]) -> InputSpec:
    shape = array.shape
    found = InputSpec(given.name, "tensor", given.dtype, given.shape)
    if len(shape) == 4 and 3 in (shape[1], shape[3]) and array.size:
        layout = "NCHW" if shape[1] == 3 else "NHWC"
        pixels, values = _range(array if layout == "NHWC" else np.moveaxis(array, 1, -1))
        reasons[given.name] = f"four axes, 3 channels in axis {1 if layout == 'NCHW' else 3}; {values}"
        return input_of(given, "images", {"layout": layout, **pixels})
    is_of_integers = array.dtype.kind in "iu" and (NAMED_AS_SIZE.search(given.name) or len(shape) == 2)
    if shape[-1:] == (2,) and (is_of_integers or given.name in FLOAT_SIZES):
        reasons[given.name] = "two numbers for each image"
        return replace(found, kind="picture_size")
    return found


def _range(pixels: np.ndarray) -> tuple[JsonObject, str]:
    """Range and normalization of images [..., 3]."""
    low, high = float(pixels.min()), float(pixels.max())
    seen = f"values from {low:.3g} to {high:.3g}"
    if low >= 0:
        return {"range": [0, 255 if high > 1.0 + 1e-3 else 1]}, seen
    for named, (mean, std) in _NORMALIZATIONS.items():
        back = pixels.reshape(-1, 3) * std + mean
        if back.min() >= -0.01 and back.max() <= 1.01:
            given = {"mean": list(mean), "std": list(std)}
            return {"range": [0, 1], "normalization": given}, f"{seen}, which {named} take to 0..1"
    return {}, f"{seen}: normalised, in a way that is not known"


def _detections(outputs: Outputs, names: int, reasons: dict[str, str], doubts: list[str]) -> dict[str, OutputSpec]:
    """Boxes and what belongs to them; none where no output holds boxes.

    Args:
        names: how many classes have one.
    """
    floats = {name: array for name, array in outputs.items() if array.dtype.kind == "f" and array.size}
    boxes = _first({n: a for n, a in floats.items() if a.shape[2:] in ((4,), (1, 4))}, _BOXES, doubts)
    if boxes is None:
        threes = {name: array for name, array in floats.items() if array.ndim == 3}
        in_one = filter(None, (_rows(name, array, names, reasons, doubts) for name, array in threes.items()))
        return next((_with_labels(each, outputs) for each in in_one), {})
    rows = outputs[boxes].shape[:2]
    beside = {name: array for name, array in outputs.items() if name != boxes and array.shape[:2] == rows}
    logits = _first({name: a for name, a in beside.items() if a.ndim == 3 and name in floats}, _CLASSES, doubts)
    vectors = {name: array for name, array in beside.items() if array.ndim == 2}
    whole = {name: a for name, a in vectors.items() if a.dtype.kind in "iu" or (a.max() >= 1 and _is_whole(a))}
    scores = _first({name: a for name, a in vectors.items() if name in floats and name not in whole}, _CLASSES, doubts)
    labels = _first(whole, _CLASSES, doubts)
    found = {}
    if scores is not None and labels is not None:
        found = {scores: OutputSpec(scores, "scores"), labels: OutputSpec(labels, "labels")}
        reasons[scores], reasons[labels] = (f"one {what} for each box" for what in ("float", "integer"))
        if (largest := outputs[scores].max()) > 1.001:
            doubts.append(f"output {scores!r}: values up to {largest:.3g}, scores are 0 to 1")
        left = {name: array for name, array in outputs.items() if name not in (*found, boxes)}
        found |= {each.name: each for each in _counts(left, outputs[scores])}
    elif logits is not None:
        found = {logits: _logits(logits, outputs[logits], reasons, doubts)}
    return {**found, boxes: boxes_of(boxes, outputs[boxes], reasons)} if found else {}


def _counts(outputs: Outputs, scores: np.ndarray) -> Iterator[OutputSpec]:
    """Of outputs beside detections those that count them.

    Args:
        scores: [N, n].
    """
    images, most = scores.shape
    for name, array in outputs.items():
        is_named = _COUNTS.search(name) and array.shape in ((images,), (images, 1))
        if is_named and _is_whole(array) and array.min() >= 0 and array.max() <= most:
            yield OutputSpec(name, COUNTS)


def _is_whole(array: np.ndarray) -> bool:
    return bool((array == np.rint(array)).all())


def _rows(name: str, array: np.ndarray, names: int, reasons: dict[str, str], doubts: list[str]) -> OutputSpec | None:
    """Detections in one tensor, whose columns are axis 1 or 2; None where it holds no coordinates in pixels."""
    for axis in (2, 1):
        boxes, others = np.split(np.moveaxis(array, axis, 2), [4], axis=2)
        order, is_clear = _order(others, names) if others.size and boxes.max() > SIDES else ((), True)
        if order:
            doubts += [] if is_clear else [_UNCLEAR.format(name)]
            read = boxes_of(name, boxes, reasons)
            reasons[name] += f"; then {'a score and a whole number' if 'label' in order else 'scores'}, on axis {axis}"
            return replace(read, kind=ROWS, normalized=False, columns=order, axis=axis)
    for order in _BOXES_LATER:
        if (found := _boxes_among(order, array)) is not None:
            read = boxes_of(name, found, reasons)
            reasons[name] += f"; in columns {', '.join(order)}"
            return replace(read, kind=ROWS, normalized=False, columns=order, axis=2)
    return None


def _boxes_among(order: Sequence[str], array: np.ndarray) -> np.ndarray | None:
    """The boxes in columns [N, n, columns] that are of this order; None where they are not."""
    widths = [WIDTHS[each] for each in order]
    if array.shape[2] != sum(widths):
        return None
    found = dict(zip(order, np.split(array, np.cumsum(widths)[:-1], axis=2), strict=True))
    score, label = found["score"], found["label"]
    numbers = np.concatenate([label, found.get("image", label)], axis=2)
    is_score = score.min() >= 0 and score.max() <= 1.001 and (score != np.rint(score)).any()
    is_whole = _is_whole(numbers) and numbers.min() >= -1  # PaddleDetection's label of no detection
    return found["boxes"] if is_score and is_whole and found["boxes"].max() > SIDES else None


def _with_labels(rows: OutputSpec, outputs: Outputs) -> dict[str, OutputSpec]:
    """With the output of integers that are the labels, where there is one and but one score for each box."""
    shape = outputs[rows.name].shape
    labels = [name for name, array in outputs.items() if array.dtype.kind in "iu" and array.shape == shape[:2]]
    if len(labels) != 1 or rows.axis != 2 or shape[2] != 5:
        return {rows.name: rows}
    return {rows.name: replace(rows, columns=("boxes", "score")), labels[0]: OutputSpec(labels[0], "labels")}


def _order(others: np.ndarray, names: int) -> tuple[tuple[str, ...], bool]:
    """What is in columns beside boxes [..., columns], none where the first is no score; and whether that is clear."""
    is_score = (others.min(axis=(0, 1)) >= 0) & (others.max(axis=(0, 1)) <= 1.001)
    width, second = len(is_score), others[..., 1:2]
    if not is_score[0] or not others[..., 0].any():
        return (), True
    if second.size and _is_whole(second) and second.min() >= 0:  # no network scores 0 or 1 throughout
        return ("boxes", "score", "label", *(("others",) if width > 2 else ())), True
    if names and is_score.all() and names == width - 1:
        return ("boxes", "objectness", "scores"), True
    has_others = 0 < names < width and bool(is_score[:names].all()) and not is_score[: names + 1].all()
    is_clear = has_others or (bool(is_score.all()) and width == (names or 1))
    return ("boxes", "scores", *(("others",) if has_others else ())), is_clear


def boxes_of(name: str, array: np.ndarray, reasons: dict[str, str]) -> OutputSpec:
    """What boxes [..., 4] are by their values; of [N, n, 1, 4] with the shape, which takes them apart."""
    values = array.reshape(-1, 4).astype(np.float64)
    in_order = float((values[:, 2:] >= values[:, :2]).all(axis=1).mean())
    largest = float(np.abs(values).max(initial=0.0))
    reasons[name] = (
        f"columns 2 and 3 are at least columns 0 and 1 in {in_order:.1%} of the rows (all of them: two corners; else "
        f"center, width, height); values up to {largest:.3g}"
    )
    box_format = "xyxy" if in_order == 1.0 else "cxcywh"
    shape = ("images", "boxes", 1, 4) if array.ndim == 4 else None
    return OutputSpec(name, "boxes", shape=shape, format=box_format, normalized=largest <= SIDES)


def _logits(name: str, array: np.ndarray, reasons: dict[str, str], doubts: list[str]) -> OutputSpec:
    if array.min() >= 0 and array.max() <= 1:
        reasons[name] = "as many rows as boxes, all values in 0..1"
        best, classes = array.argmax(-1), array.shape[-1]
        if classes > 1 and np.allclose(array.sum(-1), 1, atol=1e-3):  # of softmax: most rows are no object
            none = next((which for column, which in _NO_OBJECT if (best == column % classes).mean() > 0.5), None)
            reasons[name] += f"; of softmax, no object: {none}" if none else ""
            return OutputSpec(name, "logits", activation="identity", no_object=none)
        return OutputSpec(name, "logits", activation="identity")
    last, negative = float((array.argmax(-1) == array.shape[-1] - 1).mean()), float((array.max(-1) < 0).mean())
    is_softmax = array.shape[-1] > 1 and last > 0.5
    if is_softmax == (negative > 0.5):  # rows without an object: the last class is large, or none is
        doubts.append(f"output {name!r}: values do not say whether scores are sigmoid's or softmax's")
    if is_softmax:
        reasons[name] = f"as many rows as boxes, the last class is the largest in {last:.1%}: no object"
        return OutputSpec(name, "logits", activation="softmax", no_object=True)
    reasons[name] = f"as many rows as boxes, values from {array.min():.3g} to {array.max():.3g}"
    return OutputSpec(name, "logits", activation="sigmoid")


def _classification(
    outputs: Outputs, samples: Collection[int], reasons: dict[str, str], doubts: list[str]
) -> dict[str, OutputSpec]:
    rows = {
        name: a for name, a in outputs.items() if a.ndim == 2 and a.shape[-1] > 1 and a.size and a.dtype.kind == "f"
    }
    of_rows = {a.shape[:2] for a in outputs.values() if a.ndim > 2}  # numbers of what another output says more of
    rows = {name: a for name, a in rows.items() if a.shape not in of_rows and len(a) in samples}
    named = {name: array for name, array in rows.items() if _CLASSES.search(name)}
    name = _first(named or (rows if len(outputs) == 1 else {}), _CLASSES, doubts)
    if name is None:
        return {}
    values = rows[name].astype(np.float64)
    is_share, lengths = values.min() >= 0, np.linalg.norm(values, axis=1)
    if not named and (_VECTORS.search(name) or (not is_share and np.allclose(lengths, 1, atol=1e-3))):
        return {}
    reasons[name] = f"{values.shape[1]} numbers for each image"
    if not named and not (is_share and np.allclose(values.sum(axis=1), 1, atol=1e-3)):
        doubts.append(f"output {name!r}: nothing but its shape says that these are classes, no embedding or measures")
    is_probability = is_share and np.allclose(values.sum(axis=1), 1, atol=1e-3)
    return {name: OutputSpec(name, "probabilities" if is_probability else "classes")}


def _plain_kind(name: str, array: np.ndarray, made_by: str) -> str | None:
    """Kind of an output that makes up no detections and no classes, by its axes, values and name; None: any tensor."""
    if array.dtype.kind != "f" or not array.size:
        return None
    if array.ndim == 2 and array.shape[1] > 1:
        is_unit = np.allclose(np.linalg.norm(array.astype(np.float64), axis=1), 1, atol=1e-3)
        return "embedding" if is_unit or _VECTORS.search(name) or made_by == "LpNormalization" else None
    if array.ndim == 3:
        return "sequence" if _OF_SEQUENCES.fullmatch(made_by) and min(array.shape[1:]) > 1 else None
    return "map" if array.ndim == 4 and min(array.shape[2:]) > 1 else None


def _first(candidates: Mapping[str, np.ndarray], pattern: re.Pattern[str], doubts: list[str]) -> str | None:
    """The first whose name fits; the first at all where none does."""
    fitting = [name for name in candidates if pattern.search(name)] or list(candidates)
    if len(fitting) > 1:
        doubts.append(f"outputs {', '.join(map(repr, fitting))}: each could be the one")
    return fitting[0] if fitting else None
