"""Proposed I/O spec of an ONNX file, from its graph and a run on a few samples. For a person to confirm: nothing reads
it unasked, but for detections without a doubt, which are compared as such.

    inputs   images        four axes, three of the channels' axis
             picture_size  integers, two in the last axis, or floats that are named as in FLOAT_SIZES
             tensor        any other
    boxes    four in the last of three axes, or of four, the third of length 1; how they are read:
             truehalf.io_spec.boxes
    logits   as many rows as there are boxes; scores ("identity") where all are in 0..1; softmax with a "no object"
             where the last class is the largest in most rows; else sigmoid
    scores, labels   floats and integers [N, boxes]: top-k inside the model
    rows     three axes, one of them coordinates in pixels, then a score and a whole number, or numbers in 0..1: scores
    not batched: the same with an axis less, where an image alone gives another number of rows than one
    what enters a plugin for non-maximum suppression: as its attributes say (truehalf.io_spec.nms_plugins)
    classes  two axes, the first of samples, where there are no boxes; named so, or the only output and no vector of
             length 1; probabilities where they add up to 1
    others   embedding (two axes, vectors of length 1 or named so), map (four axes, none of the last two of length 1),
             sequence (three axes, made by a Softmax or a recurrent layer); else tensor
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import numpy as np
import onnx_ir as ir

from truehalf.codes import coded
from truehalf.config.verification import VerifyConfig
from truehalf.errors import StageError
from truehalf.io_spec.boxes import NORMALIZED_SIDE, box_layout, in_words, layouts_of
from truehalf.io_spec.checks import problem_of_classes
from truehalf.io_spec.decode import confident
from truehalf.io_spec.nms_plugins import outputs_of_plugins
from truehalf.io_spec.outputs import (
    COUNTS,
    DETECTIONS,
    ORDERS,
    ROWS,
    WIDTHS,
    Outputs,
    columns_of,
    detecting,
    split_columns,
    task_of,
)
from truehalf.io_spec.spec import FIRST, LAYOUT, InputSpec, IoSpec, OutputSpec, TensorSpec, input_of
from truehalf.ir.facts import all_nodes, is_op
from truehalf.ir.ops import MOVES, Trait, has
from truehalf.json_values import JsonObject

FLOAT_SIZES = ("im_shape", "scale_factor")  # as PaddleDetection names them
NAMED_AS_SIZE = re.compile(r"size|shape|hw$|height|width", re.IGNORECASE)
_BOXES = re.compile(r"box|bbox|coord", re.IGNORECASE)
_CLASSES = re.compile(r"logit|score|class|cls|prob|conf|label", re.IGNORECASE)
_COUNTS = re.compile(r"num|count|valid|keep", re.IGNORECASE)
_VECTORS = re.compile(r"embed|feat|descriptor|latent|vector|pool", re.IGNORECASE)
_OF_SEQUENCES = re.compile("(Log)?Softmax|LSTM|GRU|RNN")  # of text recognition and speech
_NORMALIZATIONS = {  # the narrowest first: pixels that the second takes to 0..1 may well do so by the last, too
    "the mean and std 0.5": ((0.5, 0.5, 0.5), (0.5, 0.5, 0.5)),
    "ImageNet's mean and std": ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)),
}
_SAMPLES = 8  # that are run
_WIDTHS_OF_IMAGE = (4, 5, 6, 7)  # boxes; score, label and number of the image beside them
_MOST_FOUND = 0.5  # of a detector's queries: a trained one finds nothing with most of them
_LARGEST_SCORE = 1.001
# Formats in which boxes lie in the image, where one is meant: small boxes of cxcywh lie where such of x, y, width,
# height may, too, which no network is known to put out.
_CLEAR = (["cxcywh"], ["xyxy"], ["xywh"], ["cxcywh", "xywh"])
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


@dataclass(frozen=True)
class _Runs:
    """Runs of a model, and what its file states.

    Attributes:
        inputs: of the model, with name, dtype and shape.
        feeds, outputs: arrays of each run by name.
        class_names: that may be those of the model; a proposed spec has them where they are as many as its classes.
    """

    inputs: Sequence[TensorSpec]
    feeds: Sequence[Outputs]
    outputs: Sequence[Outputs]
    class_names: Sequence[str] = ()

    @cached_property
    def joined(self) -> tuple[dict[str, np.ndarray], dict[str, np.ndarray]]:
        """What went in and came out of all runs, along axis 0."""
        return _joined(self.feeds), _joined(self.outputs)

    def proposal(self, found: Mapping[str, OutputSpec], values: _Values) -> Proposal:
        """Propose these outputs, all others as any tensor, with reasons and doubts of a look at their values."""
        feeds, outputs = self.joined
        inputs = tuple(_input(each, feeds[each.name], values.reasons) for each in self.inputs)
        declared = tuple(replace(found.get(n, OutputSpec(n)), dtype=array.dtype.name) for n, array in outputs.items())
        shaped = tuple(replace(each, shape=outputs[each.name].shape) for each in declared)
        named = IoSpec(inputs, shaped, tuple(self.class_names))
        names = named.class_names if found and problem_of_classes(named) is None else ()
        return Proposal(IoSpec(inputs, declared, names), values.reasons, values.doubts)


def proposal_of(
    model: ir.Model,
    feeds: Iterable[Outputs],
    run: Callable[[Outputs], Outputs],
    class_names: Sequence[str] = (),
    score_threshold: float | None = None,
) -> Proposal:
    """Propose an I/O spec from a run on the first samples; of detections with what speaks against them as doubts.

    Args:
        feeds: of which the first are run, until there are eight samples.
        run: outputs of the model by name.
        class_names: that its file holds.
        score_threshold: 0 to 1, of the boxes that are looked at; None: the default of verification.
    """
    inputs, given = inputs_of(model), first_samples(feeds)
    no_tensors = [str(v.name) for v in model.graph.outputs if not isinstance(v.type, (ir.TensorType, type(None)))]

    def runs_on(feeds: Sequence[Outputs]) -> _Runs:
        outputs = [{n: a for n, a in run(feed).items() if n not in no_tensors} for feed in feeds]
        return _Runs(inputs, feeds, outputs, class_names)

    def alone() -> _Runs | None:
        """Runs of each sample alone; None where there are no single samples, or the model takes none."""
        single = _one_by_one(given)
        try:
            return runs_on(single) if single else None
        except StageError:
            return None

    try:
        runs = runs_on(given)
    except StageError:  # of a file that runs image by image
        if (single := alone()) is None:
            raise
        runs = single
    told, why = outputs_of_plugins(model, runs.joined[1])
    if told:
        values = _Values({}, 0)
        values.reasons |= why
        proposal = runs.proposal(told, values)
    else:
        proposal = proposal_from_values(inputs, *runs.joined, class_names, _made_by(model))
    notes = [coded("not-supported", f"output {name!r} is no tensor: leave it out of the file") for name in no_tensors]
    notes += _other_rows(runs)
    if task_of(proposal.spec) != DETECTIONS and _may_be_of_one_image(model, runs.outputs[0]):
        single = alone()
        found = single and _of_one_image(single)
        if single and found:
            proposal, runs = found, single
    for name in runs.outputs[0]:
        if not all(np.isfinite(each[name]).all() for each in runs.outputs if each[name].dtype.kind == "f"):
            notes.append(coded("not-finite", f"output {name!r} holds NaN or Inf; look at weights and preprocessing"))
    proposal = replace(proposal, notes=notes)
    if task_of(proposal.spec) != DETECTIONS:
        return proposal
    threshold = VerifyConfig().score_threshold if score_threshold is None else score_threshold
    return _with_box_layout(proposal, runs, threshold, bool(told))


def _with_box_layout(proposal: Proposal, runs: _Runs, threshold: float, is_told: bool) -> Proposal:
    """Read boxes as they lie in the image, with a doubt where that is in several ways or none.

    Args:
        is_told: whether a plugin says their format.
    """
    spec, doubts = proposal.spec, proposal.doubts
    if not all(np.isfinite(outputs[name]).all() for outputs in runs.outputs for name in detecting(spec)):
        doubts.append("not all values are finite")
        return proposal
    sized = list(zip(runs.outputs, _image_sizes(spec, runs), strict=True))
    share = np.concatenate([confident(outputs, spec, threshold).ravel() for outputs in runs.outputs]).mean()
    if not is_told and "scores" in columns_of(spec) and share > _MOST_FOUND:
        doubts.append(f"{share:.0%} of the rows score {threshold:g} or more; of a trained detector's, few do")
    boxes, layouts = columns_of(spec)["boxes"], layouts_of(sized, spec, threshold)
    seen = in_words(layouts)
    proposal.reasons[boxes.name] += f"; {seen}"
    formats = [box_format for box_format, _ in layouts]
    if is_told:
        box_format, normalized = next((e for e in layouts if e[0] == boxes.format), (boxes.format, boxes.normalized))
    elif formats in _CLEAR:
        box_format, normalized = layouts[0]
    else:
        doubts.append(f"output {boxes.name!r}: its values do not say how boxes are to be read: {seen}")
        several = len(layouts or layouts_of(sized, spec, 0.0)) > 1
        box_format = None if several and boxes.format != "cxcywh" else boxes.format
        normalized = boxes.normalized
    read = replace(boxes, format=box_format, normalized=normalized)
    outputs = tuple(read if each is boxes else each for each in spec.outputs)
    return replace(proposal, spec=replace(spec, outputs=outputs))


def _image_sizes(spec: IoSpec, runs: _Runs) -> list[tuple[int, int] | None]:
    """Height and width of each run's images; None without images."""
    image = spec.image_input
    if image.kind != "images":
        return [None] * len(runs.feeds)
    first = 1 if image.layout == "NHWC" else 2
    shapes = [feed[image.name].shape for feed in runs.feeds]
    return [(shape[first], shape[first + 1]) for shape in shapes]


# --- what the values of a run say -------------------------------------------------------------------------------------


def proposal_from_values(
    inputs: Sequence[TensorSpec],
    feeds: Outputs,
    outputs: Outputs,
    class_names: Sequence[str] = (),
    made_by: Mapping[str, str] | None = None,
) -> Proposal:
    """Propose an I/O spec from one run's values.

    Args:
        inputs: of the model, with name, dtype and shape.
        feeds: what went in by name, samples along axis 0.
        outputs: what came out by name.
        class_names: that may be those of the model.
        made_by: by output the operator that makes it, behind nodes that only move values.
    """
    values, samples = _Values(outputs, len(class_names)), {array.shape[0] for array in feeds.values() if array.ndim}
    found = values.detections() or values.classification(samples)
    others = {n: a for n, a in outputs.items() if n not in found and a.ndim and len(a) in samples}
    kinds = {name: _plain_kind(name, array, (made_by or {}).get(name, "")) for name, array in others.items()}
    found |= {name: OutputSpec(name, kind) for name, kind in kinds.items() if kind}
    return _Runs(inputs, [feeds], [outputs], class_names).proposal(found, values)


def _input(given: TensorSpec, array: np.ndarray, reasons: dict[str, str]) -> InputSpec:
    shape = array.shape
    if len(shape) == 4 and 3 in (shape[1], shape[3]) and array.size:
        layout = "NCHW" if shape[1] == 3 else "NHWC"
        pixels, values = _range(array if layout == "NHWC" else np.moveaxis(array, 1, -1))
        reasons[given.name] = f"four axes, 3 channels in axis {1 if layout == 'NCHW' else 3}; {values}"
        return input_of(given, "images", {"layout": layout, **pixels})
    is_of_integers = array.dtype.kind in "iu" and (NAMED_AS_SIZE.search(given.name) or len(shape) == 2)
    if shape[-1:] == (2,) and (is_of_integers or given.name in FLOAT_SIZES):
        reasons[given.name] = "two numbers for each image"
        return InputSpec(given.name, "picture_size", given.dtype, given.shape)
    return InputSpec(given.name, "tensor", given.dtype, given.shape)


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


class _Values:
    """What outputs may be, by their shapes, names and values.

    Attributes:
        reasons: by name of an output, what was seen.
        doubts: what else the outputs could be.
    """

    def __init__(self, outputs: Outputs, classes: int) -> None:
        """Look at outputs by name; `classes` of the model have a name."""
        self.outputs, self.classes = outputs, classes
        self.floats = {name: array for name, array in outputs.items() if array.dtype.kind == "f" and array.size}
        self.reasons: dict[str, str] = {}
        self.doubts: list[str] = []

    def detections(self) -> dict[str, OutputSpec]:
        """Boxes and what belongs to them; none where no output holds boxes."""
        boxes = self._first([n for n, a in self.floats.items() if a.shape[2:] in ((4,), (1, 4))], _BOXES)
        if boxes is None:
            threes = (name for name, array in self.floats.items() if array.ndim == 3)
            rows = next(filter(None, map(self._rows, threes)), None)
            return {} if rows is None else self._with_labels(rows)
        rows_beside = self.outputs[boxes].shape[:2]
        beside = {n: a for n, a in self.outputs.items() if n != boxes and a.shape[:2] == rows_beside}
        vectors = {name: array for name, array in beside.items() if array.ndim == 2}
        whole = [n for n, a in vectors.items() if a.dtype.kind in "iu" or (a.max() >= 1 and _is_whole(a))]
        logits = self._first([n for n, a in beside.items() if a.ndim == 3 and n in self.floats], _CLASSES)
        scores = self._first([n for n in vectors if n in self.floats and n not in whole], _CLASSES)
        labels = self._first(whole, _CLASSES)
        found = {}
        if scores is not None and labels is not None:
            found = {scores: OutputSpec(scores, "scores"), labels: OutputSpec(labels, "labels")}
            self.reasons |= {scores: "one float for each box", labels: "one integer for each box"}
            if (largest := self.outputs[scores].max()) > _LARGEST_SCORE:
                self.doubts.append(f"output {scores!r}: values up to {largest:.3g}, scores are 0 to 1")
            others = [name for name in self.outputs if name not in (*found, boxes)]
            found |= {n: OutputSpec(n, COUNTS) for n in others if _counts(n, self.outputs[n], rows_beside)}
        elif logits is not None:
            found = {logits: self._logits(logits)}
        return found and found | {boxes: self._boxes(boxes, self.outputs[boxes])}

    def classification(self, samples: Collection[int]) -> dict[str, OutputSpec]:
        """Class logits or probabilities; none where two axes may as well be a vector.

        Args:
            samples: lengths of axis 0 of what went in.
        """
        of_rows = {array.shape[:2] for array in self.outputs.values() if array.ndim > 2}  # of which others say more
        rows = [n for n, a in self.floats.items() if a.ndim == 2 and a.shape[1] > 1 and len(a) in samples]
        rows = [name for name in rows if self.outputs[name].shape not in of_rows]
        named = [name for name in rows if _CLASSES.search(name)]
        name = self._first(named or (rows if len(self.outputs) == 1 else []), _CLASSES)
        if name is None:
            return {}
        values = self.outputs[name].astype(np.float64)
        is_probability = values.min() >= 0 and np.allclose(values.sum(axis=1), 1, atol=1e-3)
        if not named and (_VECTORS.search(name) or (values.min() < 0 and _are_of_length_1(values))):
            return {}
        self.reasons[name] = f"{values.shape[1]} numbers for each image"
        if not named and not is_probability:
            why = "nothing but its shape says that these are classes, no embedding or measures"
            self.doubts.append(f"output {name!r}: {why}")
        return {name: OutputSpec(name, "probabilities" if is_probability else "classes")}

    def _boxes(self, name: str, array: np.ndarray) -> OutputSpec:
        box_format, normalized, self.reasons[name] = box_layout(array)
        shape = ("images", "boxes", 1, 4) if array.ndim == 4 else None
        return OutputSpec(name, "boxes", shape=shape, format=box_format, normalized=normalized)

    def _logits(self, name: str) -> OutputSpec:
        array, beside = self.outputs[name], "as many rows as boxes"
        classes, best = array.shape[-1], array.argmax(-1)
        is_last, is_first = float((best == classes - 1).mean()), float((best == 0).mean())
        if array.min() >= 0 and array.max() <= 1:
            self.reasons[name] = f"{beside}, all values in 0..1"
            none: bool | str | None = None
            if classes > 1 and np.allclose(array.sum(-1), 1, atol=1e-3):  # of softmax: most rows are no object
                none = True if is_last > 0.5 else FIRST if is_first > 0.5 else None
                self.reasons[name] += f"; of softmax, no object: {none}" if none else ""
            return OutputSpec(name, "logits", activation="identity", no_object=none)
        is_softmax, negative = classes > 1 and is_last > 0.5, float((array.max(-1) < 0).mean())
        if is_softmax == (negative > 0.5):  # rows without an object: the last class is large, or none is
            self.doubts.append(f"output {name!r}: values do not say whether scores are sigmoid's or softmax's")
        if is_softmax:
            self.reasons[name] = f"{beside}, the last class is the largest in {is_last:.1%}: no object"
            return OutputSpec(name, "logits", activation="softmax", no_object=True)
        self.reasons[name] = f"{beside}, values from {array.min():.3g} to {array.max():.3g}"
        return OutputSpec(name, "logits", activation="sigmoid")

    def _rows(self, name: str) -> OutputSpec | None:
        """Detections in one tensor, whose columns are axis 1 or 2; None where it holds no coordinates in pixels."""
        for axis in (2, 1):
            rows = np.moveaxis(self.outputs[name], axis, 2)
            columns, is_clear = _columns_of(rows, self.classes)
            if columns:
                self.doubts += [] if is_clear else [_UNCLEAR.format(name)]
                read = self._boxes(name, split_columns(rows, columns, self.classes)["boxes"])
                self.reasons[name] += f"; in columns {', '.join(columns)}, on axis {axis}"
                return replace(read, kind=ROWS, normalized=False, columns=columns, axis=axis)
        return None

    def _with_labels(self, rows: OutputSpec) -> dict[str, OutputSpec]:
        """With the output of integers that are the labels, where there is one and but one score for each box."""
        shape = self.outputs[rows.name].shape
        labels = [n for n, a in self.outputs.items() if a.dtype.kind in "iu" and a.shape == shape[:2]]
        if len(labels) != 1 or rows.axis != 2 or shape[2] != 5:
            return {rows.name: rows}
        return {rows.name: replace(rows, columns=("boxes", "score")), labels[0]: OutputSpec(labels[0], "labels")}

    def _first(self, names: Sequence[str], pattern: re.Pattern[str]) -> str | None:
        """The first that the pattern finds; the first at all where it finds none."""
        fitting = [name for name in names if pattern.search(name)] or list(names)
        if len(fitting) > 1:
            self.doubts.append(f"outputs {', '.join(map(repr, fitting))}: each could be the one")
        return fitting[0] if fitting else None


def _columns_of(rows: np.ndarray, classes: int) -> tuple[tuple[str, ...], bool]:
    """Columns of [images, rows, width], none where they hold no boxes in pixels and scores; and whether they are clear.

    Args:
        classes: how many have a name.
    """
    width, before = rows.shape[2], WIDTHS["boxes"]

    def fit(columns: tuple[str, ...]) -> bool:
        is_there = all(values.size and _fits(name, values) for name, values in split(columns).items())
        return is_there and width >= sum(WIDTHS.get(name, 1) for name in columns)

    def split(columns: tuple[str, ...]) -> dict[str, np.ndarray]:
        return split_columns(rows, columns, classes)

    chosen = [order for order in ORDERS if "label" in order]
    for order in (*(each for each in chosen if sum(map(WIDTHS.__getitem__, each)) == width), (*chosen[0], "others")):
        if fit(order):
            return order, True
    if classes and width == classes + before + 1 and fit(("boxes", "objectness", "scores")):
        return ("boxes", "objectness", "scores"), True
    with_others = ("boxes", "scores", "others")
    if 0 < classes < width - before and fit(with_others) and not _fits("score", split(with_others)["others"][..., :1]):
        return with_others, True
    is_clear = fit(("boxes", "scores")) and width - before == (classes or 1)
    return (("boxes", "scores"), is_clear) if fit(("boxes", "score")) else ((), True)


def _fits(column: str, values: np.ndarray) -> bool:
    """True if a column of detections may hold these values; no network scores 0 or 1 throughout."""
    if column == "boxes":
        return bool(values.max() > NORMALIZED_SIDE)
    if column in ("label", "image"):
        return _is_whole(values) and bool(values.min() >= -1)  # PaddleDetection's label of no detection
    return column == "others" or bool(values.min() >= 0 and values.max() <= _LARGEST_SCORE and not _is_whole(values))


def _counts(name: str, array: np.ndarray, rows: tuple[int, ...]) -> bool:
    """True for numbers of detections, one for each of the images, by name and values.

    Args:
        rows: images, and detections of each.
    """
    is_named = _COUNTS.search(name) and array.shape in ((rows[0],), (rows[0], 1))
    return bool(is_named) and _is_whole(array) and bool(array.min() >= 0 and array.max() <= rows[1])


def _is_whole(array: np.ndarray) -> bool:
    return bool((array == np.rint(array)).all())


def _are_of_length_1(vectors: np.ndarray) -> bool:
    return bool(np.allclose(np.linalg.norm(vectors.astype(np.float64), axis=1), 1, atol=1e-3))


def _plain_kind(name: str, array: np.ndarray, made_by: str) -> str | None:
    """Kind of an output that makes up no detections and no classes, by its axes, values and name; None: any tensor."""
    axes = array.ndim if array.dtype.kind == "f" and array.size else 0
    if axes == 2 and array.shape[1] > 1:
        is_vector = _are_of_length_1(array) or _VECTORS.search(name) or made_by == "LpNormalization"
        return "embedding" if is_vector else None
    if axes == 3 and min(array.shape[1:]) > 1 and _OF_SEQUENCES.fullmatch(made_by):
        return "sequence"
    return "map" if axes == 4 and min(array.shape[2:]) > 1 else None


# --- what the graph and its runs say ----------------------------------------------------------------------------------


def inputs_of(model: ir.Model) -> list[TensorSpec]:
    """Inputs without a default, as the file states them."""
    return [
        TensorSpec(str(value.name), None, np.dtype(value.dtype.numpy()).name, _sides(value.shape))
        for value in model.graph.inputs
        if not value.is_initializer() and value.dtype is not None
    ]


def _sides(shape: Any) -> tuple[int | str, ...] | None:
    return None if shape is None else tuple(side if isinstance(side, int) else str(side.value or "?") for side in shape)


def first_samples(feeds: Iterable[Outputs]) -> list[Outputs]:
    """Take the feeds that make up eight samples."""
    taken: list[Outputs] = []
    for feed in feeds:
        taken.append(feed)
        if sum(max((array.shape[0] for array in each.values() if array.ndim), default=1) for each in taken) >= _SAMPLES:
            break
    return taken


def may_detect(model: ir.Model) -> bool:
    """Whether an output may hold boxes, as far as the file states shapes; not of a model that draws random numbers, of
    which a run before the comparison would take some.
    """
    if any(has(node, Trait.RANDOM) for node in all_nodes(model, functions=True)):
        return False
    shapes = [None if value.shape is None else list(value.shape) for value in model.graph.outputs]
    return any(shape is None or _may_hold_boxes(shape) for shape in shapes)


def _may_hold_boxes(shape: Sequence[int | ir.SymbolicDim]) -> bool:
    """Alone, or with what belongs to them; after non-maximum suppression perhaps without an axis of images."""
    if len(shape) == 2:
        return not isinstance(shape[1], int) or shape[1] in _WIDTHS_OF_IMAGE
    return list(shape[2:]) == [1, 4] or (
        len(shape) == 3 and (shape[2] == 4 or any(not isinstance(side, int) or side > 4 for side in shape[1:]))
    )


def _made_by(model: ir.Model) -> dict[str, str]:
    """By output the operator that makes it, behind nodes that only move values, and casts."""
    operators = {}
    for value in model.graph.outputs:
        node = value.producer()
        while node is not None and is_op(node, *MOVES, "Cast") and node.inputs and node.inputs[0] is not None:
            node = node.inputs[0].producer()
        operators[str(value.name)] = "" if node is None else node.op_type
    return operators


def _may_be_of_one_image(model: ir.Model, outputs: Outputs) -> bool:
    """Whether outputs may hold boxes without an axis of images, and inputs may take one image, as the file states."""
    sides = [value.shape[0] for value in model.graph.inputs if value.shape and not value.is_initializer()]
    takes_one = all(side == 1 or not isinstance(side, int) for side in sides)
    return takes_one and any(array.ndim == 2 and array.shape[1] in _WIDTHS_OF_IMAGE for array in outputs.values())


def _of_one_image(runs: _Runs) -> Proposal | None:
    """Propose detections without an axis of images from runs of one sample each; None where these show none."""
    outputs = runs.joined[1]
    uneven = [name for name in outputs if any(run[name].ndim and len(run[name]) != 1 for run in runs.outputs)]
    counts = [name for name, array in outputs.items() if name not in uneven and array.dtype.kind in "iu"]
    for run in runs.outputs:
        lengths = [len(run[name]) for name in uneven if run[name].ndim]
        counts = [name for name in counts if run[name].size == 1 and run[name].item() in lengths]
    values = _Values({n: outputs[n][None] for n in uneven if outputs[n].ndim}, len(runs.class_names))
    if not (found := values.detections()):
        return None
    found = {name: replace(each, batched=False, axis=each.axis and each.axis - 1) for name, each in found.items()}
    rows = {name: OutputSpec(name, batched=False) for name in uneven} | {
        name: OutputSpec(name, COUNTS) for name in counts
    }
    proposal = runs.proposal(rows | found, values)
    return proposal if task_of(proposal.spec) == DETECTIONS else None


def _one_by_one(feeds: Sequence[Outputs]) -> list[Outputs]:
    """Each sample of these feeds in a feed of its own; none where axis 0 does not count samples."""
    found: list[Outputs] = []
    for feed in feeds:
        rows = {array.shape[:1] for array in feed.values()}
        if len(rows) != 1 or () in rows:
            return []
        count = rows.pop()[0]
        found += ({name: array[row : row + 1] for name, array in feed.items()} for row in range(count))
    return found


def _other_rows(runs: _Runs) -> Iterator[str]:
    """Outputs without a row for each sample, of which the pipeline takes none."""
    counts = {array.shape[:1] for array in runs.feeds[0].values()}
    for name, array in runs.outputs[0].items():
        if len(counts) == 1 and array.shape[:1] not in counts:
            shape, samples = list(array.shape), next(iter(counts))[0]
            expected = "the pipeline expects as many on axis 0: fill up to a fixed number, or leave it out"
            yield coded("wrong-shape", f"output {name!r} is {shape} for {samples} samples; {expected}")


def _joined(runs: Sequence[Outputs]) -> dict[str, np.ndarray]:
    """Join the arrays of all runs; those of the one with most values where sizes differ."""
    most = max(runs, key=lambda run: sum(array.size for array in run.values()))
    found = {}
    for name, first in runs[0].items():
        are_alike = first.ndim > 0 and len({(run[name].ndim, run[name].shape[1:]) for run in runs}) == 1
        found[name] = np.concatenate([run[name] for run in runs]) if are_alike else most[name]
    return found


def described(spec: IoSpec) -> str:
    """Describe the outputs of detections in words."""
    parts = []
    for output in dict.fromkeys(columns_of(spec).values()):
        declared = {key: value for key in (*LAYOUT, "batched") if (value := getattr(output, key)) is not None}
        how = [f"{k} {' '.join(v) if isinstance(v, tuple) else str(v).lower()}" for k, v in declared.items()]
        parts.append(f"{output.name!r} as {', '.join([str(output.kind), *how])}")
    return "; ".join(parts)
