"""Proposed I/O spec of an ONNX file, from its graph and a run on a few samples. For a person to confirm: nothing reads
it unasked, but for detections without a doubt, which are compared as such.

    inputs   truehalf.io_spec.inputs
    boxes    four in the last of three axes, or of four, the third of length 1; in the format in which those that score
             lie in the image (truehalf.io_spec.boxes)
    logits   as many rows as there are boxes; scores ("identity") where all are in 0..1; softmax with a "no object"
             where the last class is the largest in most rows; else sigmoid
    scores, labels   floats and integers [N, boxes]: top-k inside the model
    rows     three axes, one of them coordinates in pixels, then a score and a whole number, or numbers in 0..1: scores
    not batched: the same with an axis less, where an image alone gives another number of rows than one
    classes  two axes, the first of samples, where there are no boxes; named so, or the only output and no vector of
             length 1; probabilities where they add up to 1
    others   embedding (two axes, vectors of length 1 or named so), map (four axes, none of the last two of length 1),
             sequence (three axes, made by a Softmax or a recurrent layer); else tensor
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import onnx_ir as ir

from truehalf.codes import coded
from truehalf.config.verification import VerifyConfig
from truehalf.errors import StageError
from truehalf.io_spec import outputs as layouts
from truehalf.io_spec.boxes import NORMALIZED_SIDE, in_words, layouts_of
from truehalf.io_spec.checks import problem_of_classes
from truehalf.io_spec.decode import confident
from truehalf.io_spec.inputs import inputs_of, proposed_input
from truehalf.io_spec.outputs import COUNTS, ROWS, Outputs, columns_of
from truehalf.io_spec.spec import FIRST, LAYOUT, InputSpec, IoSpec, OutputSpec
from truehalf.ir.facts import all_nodes, fixed_batch, is_op, lengths_of
from truehalf.ir.ops import MOVES, Trait, has

_BOXES = re.compile(r"box|bbox|coord", re.IGNORECASE)
_CLASSES = re.compile(r"logit|score|class|cls|prob|conf|label", re.IGNORECASE)
_COUNTS = re.compile(r"num|count|valid|keep", re.IGNORECASE)
_VECTORS = re.compile(r"embed|feat|descriptor|latent|vector|pool", re.IGNORECASE)
_OF_SEQUENCES = re.compile("(Log)?Softmax|LSTM|GRU|RNN")  # of text recognition and speech
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
    tensors = [str(v.name) for v in model.graph.outputs if isinstance(v.type, (ir.TensorType, type(None)))]
    fed, put_out = _runs(model, first_samples(feeds), run)
    runs = [{name: outputs[name] for name in tensors} for outputs in put_out]
    found = proposal_from_values(inputs_of(model), fed, runs, class_names, _made_by(model), score_threshold)
    return replace(found, notes=list(_odd_outputs(fed[0], runs)))


def first_samples(feeds: Iterable[Outputs]) -> list[Outputs]:
    """Take the feeds that make up eight samples."""
    taken: list[Outputs] = []
    for feed in feeds:
        taken.append(feed)
        if sum(max((array.shape[0] for array in each.values() if array.ndim), default=1) for each in taken) >= _SAMPLES:
            break
    return taken


def _runs(
    model: ir.Model, feeds: Sequence[Outputs], run: Callable[[Outputs], Outputs]
) -> tuple[Sequence[Outputs], list[Outputs]]:
    """Run each sample alone where axis 0 counts samples and the model takes one, else the feeds as they are."""
    counts = [{array.shape[:1] for array in feed.values()} for feed in feeds]
    if (fixed_batch(model) or 1) == 1 and all(len(lengths) == 1 and () not in lengths for lengths in counts):
        single = [
            {name: array[row : row + 1] for name, array in feed.items()}
            for feed in feeds
            for row in range(len(next(iter(feed.values()))))
        ][:_SAMPLES]
        with contextlib.suppress(StageError):
            return single, list(map(run, single))
    return feeds, list(map(run, feeds))


def proposal_from_values(
    inputs: Sequence[InputSpec],
    feeds: Sequence[Outputs],
    runs: Sequence[Outputs],
    class_names: Sequence[str] = (),
    made_by: Mapping[str, str] | None = None,
    score_threshold: float | None = None,
) -> Proposal:
    """Propose an I/O spec from the values of runs.

    Args:
        inputs: of the model, with name, dtype and shape.
        feeds, runs: what went in and came out by name, samples along axis 0.
        class_names: that may be those of the model; a spec has them where they are as many as its classes.
        made_by: by output the operator that makes it, behind nodes that only move values.
        score_threshold: as `proposal_of`.
    """
    fed, outputs = _joined(feeds), _joined(runs)
    samples = {array.shape[0] for array in fed.values() if array.ndim}
    look = _Look(outputs, len(class_names))
    found = look.detections()
    if not found and all(array.shape[:1] == (1,) for feed in feeds for array in feed.values()):
        look, found = _of_one_image(runs, len(class_names))
    if not found:
        look = _Look(outputs, len(class_names))
        found = look.classification(samples)
    others = {n: a for n, a in outputs.items() if n not in found and a.ndim and len(a) in samples}
    kinds = {name: _plain_kind(name, array, (made_by or {}).get(name, "")) for name, array in others.items()}
    found = {n: OutputSpec(n, kinds.get(n)) for n in outputs} | found
    declared = [replace(found[name], dtype=array.dtype.name) for name, array in outputs.items()]
    proposed = {each.name: proposed_input(each, fed[each.name]) for each in inputs}
    look.reasons |= {name: reason for name, (_, reason) in proposed.items() if reason}
    spec = IoSpec(tuple(entry for entry, _ in proposed.values()), tuple(declared), tuple(class_names))
    shaped = tuple(replace(each, shape=outputs[each.name].shape) for each in declared)
    if not any(each.kind for each in declared) or problem_of_classes(replace(spec, outputs=shaped)) is not None:
        spec = replace(spec, class_names=())
    proposal = Proposal(spec, look.reasons, look.doubts)
    if not columns_of(spec):
        return proposal
    return _with_box_format(
        proposal, feeds, runs, VerifyConfig().score_threshold if score_threshold is None else score_threshold
    )


def _with_box_format(
    proposal: Proposal, feeds: Sequence[Outputs], runs: Sequence[Outputs], threshold: float
) -> Proposal:
    """Read boxes as they lie in the image, with a doubt where that is in several ways or none."""
    spec, doubts = proposal.spec, proposal.doubts
    if not all(np.isfinite(outputs[name]).all() for outputs in runs for name in layouts.detecting(spec)):
        doubts.append("not all values are finite")
        return proposal
    image = spec.image_input
    first = 1 if image.layout == "NHWC" else 2
    shapes = [feed[image.name].shape[first : first + 2] if image.kind == "images" else () for feed in feeds]
    sized = [(outputs, (size[0], size[1]) if size else None) for outputs, size in zip(runs, shapes, strict=True)]
    share = np.concatenate([confident(outputs, spec, threshold).ravel() for outputs in runs]).mean()
    if "scores" in columns_of(spec) and share > _MOST_FOUND:
        doubts.append(f"{share:.0%} of the rows score {threshold:g} or more; of a trained detector's, few do")
    boxes, fitting = columns_of(spec)["boxes"], layouts_of(sized, spec, threshold)
    seen = in_words(fitting)
    proposal.reasons[boxes.name] += f"; {seen}"
    box_format, scales = boxes.format, {normalized for _, normalized in fitting}
    if [each for each, _ in fitting] in _CLEAR:
        box_format = fitting[0][0]
    else:
        doubts.append(f"output {boxes.name!r}: its values do not say how boxes are to be read: {seen}")
        box_format = None if len(fitting) > 1 and box_format != "cxcywh" else box_format
    read = replace(boxes, format=box_format, normalized=scales.pop() if len(scales) == 1 else boxes.normalized)
    outputs = tuple(read if each is boxes else each for each in spec.outputs)
    return replace(proposal, spec=replace(spec, outputs=outputs))


def _odd_outputs(feed: Outputs, runs: Sequence[Outputs]) -> Iterator[str]:
    """Tell outputs without a row for each sample, of which the pipeline takes none, and those that are not finite."""
    counts = {array.shape[:1] for array in feed.values()}
    for name, array in runs[0].items():
        if len(counts) == 1 and array.shape[:1] not in counts:
            shape, samples = list(array.shape), next(iter(counts))[0]
            expected = "the pipeline expects as many on axis 0: fill up to a fixed number, or leave it out"
            yield coded("wrong-shape", f"output {name!r} is {shape} for {samples} samples; {expected}")
        if not all(np.isfinite(each[name]).all() for each in runs if each[name].dtype.kind == "f"):
            yield coded("not-finite", f"output {name!r} holds NaN or Inf; look at weights and preprocessing")


class _Look:
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
            return next(filter(None, map(self._rows, self.floats)), {})
        count = self.outputs[boxes].shape[:2]
        beside = {n: a for n, a in self.outputs.items() if n != boxes and a.shape[:2] == count}
        vectors = {name: array for name, array in beside.items() if array.ndim == 2}
        whole = [n for n, a in vectors.items() if a.dtype.kind in "iu" or (a.max() >= 1 and _is_whole(a))]
        logits = self._first([n for n, a in beside.items() if a.ndim == 3 and n in self.floats], _CLASSES)
        scores = self._first([n for n in vectors if n in self.floats and n not in whole], _CLASSES)
        labels = self._first(whole, _CLASSES)
        if scores is not None and labels is not None:
            self.reasons |= {scores: "one float for each box", labels: "one integer for each box"}
            if (largest := self.outputs[scores].max()) > _LARGEST_SCORE:
                self.doubts.append(f"output {scores!r}: values up to {largest:.3g}, scores are 0 to 1")
            found = {n: OutputSpec(n, COUNTS) for n, a in self.outputs.items() if _counts(n, a, count)}
            found |= {scores: OutputSpec(scores, "scores"), labels: OutputSpec(labels, "labels")}
        elif logits is not None:
            found = {logits: self._logits(logits)}
        else:
            return {}
        return found | {boxes: self._boxes(boxes, self.outputs[boxes])}

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
        largest = float(np.abs(array).max(initial=0.0))
        box_format = (
            "xyxy" if (array[..., 2:] >= array[..., :2]).all() else "cxcywh"
        )  # unless boxes in the image say it
        self.reasons[name] = f"four numbers in a row, up to {largest:.3g}"
        shape = ("images", "boxes", 1, 4) if array.ndim == 4 else None
        return OutputSpec(name, "boxes", shape=shape, format=box_format, normalized=largest <= NORMALIZED_SIDE)

    def _logits(self, name: str) -> OutputSpec:
        array, classes = self.outputs[name], self.outputs[name].shape[-1]
        best = array.argmax(-1)
        is_last, is_first = (classes > 1 and float((best == place).mean()) > 0.5 for place in (classes - 1, 0))
        self.reasons[name] = f"as many rows as boxes, values from {array.min():.3g} to {array.max():.3g}"
        if array.min() >= 0 and array.max() <= 1:
            is_softmax = np.allclose(array.sum(-1), 1, atol=1e-3)  # most rows are no object
            none: bool | str | None = (True if is_last else FIRST if is_first else None) if is_softmax else None
            return OutputSpec(name, "logits", activation="identity", no_object=none)
        if is_last == (float((array.max(-1) < 0).mean()) > 0.5):  # without an object the last class is large, or none
            self.doubts.append(f"output {name!r}: values do not say whether scores are sigmoid's or softmax's")
        if is_last:
            self.reasons[name] += "; the last class is the largest in most: no object"
            return OutputSpec(name, "logits", activation="softmax", no_object=True)
        return OutputSpec(name, "logits", activation="sigmoid")

    def _rows(self, name: str) -> dict[str, OutputSpec]:
        """Detections in one tensor, whose columns are axis 1 or 2, and their labels where another has them; none where
        it holds no coordinates in pixels.
        """
        array = self.outputs[name]
        for axis in (2, 1) if array.ndim == 3 else ():
            rows = np.moveaxis(array, axis, 2)
            columns, is_clear = _columns_of(rows, self.classes)
            if columns:
                labels = [n for n, a in self.outputs.items() if a.dtype.kind in "iu" and a.shape == array.shape[:2]]
                if axis == 2 and rows.shape[2] == 5 and len(labels) == 1:
                    columns, is_clear = ("boxes", "score"), True
                else:
                    labels = []
                self.doubts += [] if is_clear else [_UNCLEAR.format(name)]
                read = self._boxes(name, layouts.split_columns(rows, columns, self.classes)["boxes"])
                self.reasons[name] += f"; in columns {', '.join(columns)}, on axis {axis}"
                found = {name: replace(read, kind=ROWS, normalized=False, columns=columns, axis=axis)}
                return found | {each: OutputSpec(each, "labels") for each in labels}
        return {}

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
    scores = rows.shape[2] - layouts.WIDTHS["boxes"]  # as many as there are columns beside boxes
    chosen = [order for order in layouts.ORDERS if "label" in order]  # top-k inside the model
    orders = [order for order in chosen if sum(map(layouts.WIDTHS.__getitem__, order)) == rows.shape[2]]
    orders.append((*chosen[0], "others"))
    if classes and scores == classes + 1:
        orders.append(("boxes", "objectness", "scores"))
    if 0 < classes < scores and not _fits("score", rows[..., 4 + classes : 5 + classes]):
        orders.append(("boxes", "scores", "others"))
    if scores == (classes or 1):
        orders.append(("boxes", "scores"))
    for order in orders:
        columns = layouts.split_columns(rows, order, classes)
        if all(values.size and _fits(name, values) for name, values in columns.items()):
            return order, True
    is_unclear = scores > 0 and _fits("boxes", rows[..., :4]) and _fits("score", rows[..., 4:5])
    return (("boxes", "scores") if is_unclear else ()), False


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


def _of_one_image(runs: Sequence[Outputs], classes: int) -> tuple[_Look, dict[str, OutputSpec]]:
    """Look for detections without an axis of images in runs of one sample each."""
    outputs = _joined(runs)
    uneven = [name for name in outputs if any(run[name].ndim and len(run[name]) != 1 for run in runs)]
    narrow = [n for n in uneven if outputs[n].ndim == 1 or outputs[n].shape[1:] in {(w,) for w in _WIDTHS_OF_IMAGE}]
    look = _Look({name: outputs[name][None] for name in narrow}, classes)
    found = look.detections()
    if "score" not in columns_of(IoSpec(outputs=tuple(found.values()))):
        return look, {}
    found = {name: replace(each, batched=False, axis=each.axis and each.axis - 1) for name, each in found.items()}
    integers = [name for name, array in outputs.items() if name not in uneven and array.dtype.kind in "iu"]
    rows = [{len(run[name]) for name in uneven if run[name].ndim} for run in runs]
    for name in integers:
        if all(run[name].size == 1 and run[name].item() in lengths for run, lengths in zip(runs, rows, strict=True)):
            found[name] = OutputSpec(name, COUNTS)
    return look, {name: OutputSpec(name, batched=False) for name in uneven} | found


def _joined(runs: Sequence[Outputs]) -> dict[str, np.ndarray]:
    """Join the arrays of all runs; those of the one with most values where sizes differ."""
    most = max(runs, key=lambda run: sum(array.size for array in run.values()))
    found = {}
    for name, first in runs[0].items():
        are_alike = first.ndim > 0 and len({(run[name].ndim, run[name].shape[1:]) for run in runs}) == 1
        found[name] = np.concatenate([run[name] for run in runs]) if are_alike else most[name]
    return found


# --- what the graph says ----------------------------------------------------------------------------------------------


def may_detect(model: ir.Model) -> bool:
    """Whether an output may hold boxes, as far as the file states shapes: alone, with what belongs to them, or, after
    non-maximum suppression, without an axis of images; not of a model that draws random numbers, of which a run before
    the comparison would take some.
    """
    if any(has(node, Trait.RANDOM) for node in all_nodes(model)):
        return False
    shapes = [lengths_of(value) for value in model.graph.outputs]
    return any(
        shape is None
        or len(shape) == 3
        or shape[2:] == [1, 4]
        or (len(shape) == 2 and shape[1] in (None, *_WIDTHS_OF_IMAGE))
        for shape in shapes
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


def described(spec: IoSpec) -> str:
    """Describe the outputs of detections in words."""
    parts = []
    for output in dict.fromkeys(columns_of(spec).values()):
        declared = {key: value for key, value in output.to_json().items() if key in (*LAYOUT, "batched")}
        how = [f"{k} {' '.join(v) if isinstance(v, list) else str(v).lower()}" for k, v in declared.items()]
        parts.append(f"{output.name!r} as {', '.join([str(output.kind), *how])}")
    return "; ".join(parts)
