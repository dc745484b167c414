"""Roles of a model's outputs, as its I/O spec declares them; nothing is guessed from names or values.

kind "logits"   [N, queries, classes]  activation: sigmoid | softmax | identity (they are scores); no_object: the
                                       last class is none (true), or the first is (first)
kind "boxes"    [N, queries, 4] or     format: cxcywh | xyxy | xywh (x and y of the corner) | yxyx;
                [N, queries, 1, 4]     normalized: true | false (then pixels of the input)
kind "scores"   [N, n] in 0..1, and kind "labels" [N, n]: top-k inside the model, with "boxes" [N, n, 4]
kind "classes"  [N, classes]           classification logits; "probabilities" if they add up to 1 in each image
kind "map"      [N, channels, height, width], "sequence" [N, steps, values], "embedding" [N, values]: compared as any
                tensor; "tensor": as no kind
kind "counts"   of detections in each image, in any shape; not compared, as what is lost shows in the others
kind "rows"     [N, n, columns] or [N, columns, n]: boxes and scores in one tensor, see truehalf.io_spec.columns
                batched: false: boxes, scores, labels and rows have no axis of images, such as boxes [n, 4]
no kind         any tensor

detections      logits + boxes, or scores + labels + boxes, or rows
classification  classes
tensors         none of these
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from truehalf.codes import coded
from truehalf.errors import refuse
from truehalf.io_spec.columns import COUNTS, ROWS, ROWS_OF_IMAGE, Part, apart, left_out, problems_of_rows
from truehalf.io_spec.spec import FIRST, IoSpec, OutputSpec, fits

DETECTIONS, CLASSIFICATION, TENSORS = "detections", "classification", "tensors"
TENSOR = "tensor"
DECLARE = (  # a remedy
    "let `truehalf inspect MODEL --samples SOURCE --spec FILE` write an I/O spec, correct it, and give it as --spec "
    "FILE (in Python, spec=...; of the pipeline, model.outputs, which `python -m pipeline.init` proposes)"
)
MOST_QUERIES = 1200  # of a decoder; more rows are anchors, of which several find one object
_SLACK = 1e-3  # of scores: sums of roundings
Outputs = Mapping[str, np.ndarray]

_AXES = {
    "logits": "[N, queries, classes]",
    "boxes": "[N, boxes, 4]",
    "scores": "[N, n]",
    "labels": "[N, n]",
    "classes": "[N, classes]",
    "probabilities": "[N, classes]",
    "map": "[N, channels, height, width]",
    "sequence": "[N, steps, values]",
    "embedding": "[N, values]",
}
_RANKS = {kind: axes.count(",") + 1 for kind, axes in _AXES.items()}
_KINDS = (*_RANKS, ROWS, COUNTS, TENSOR)
_PLAIN = (None, "map", "sequence", "embedding", TENSOR)  # judged by themselves; several may be of a kind
_OF_CLASSES = ("classes", "probabilities")
_OF_ROWS = ("logits", "boxes", "scores", "labels")
_OF_QUERIES, _OF_TOP_K = {"logits", "boxes"}, {"scores", "labels", "boxes"}
_LAYOUT_OF_BOXES: dict[str, tuple[Any, ...]] = {
    "format": ("cxcywh", "xyxy", "xywh", "yxyx"),
    "normalized": (True, False),
}
_CHOICES: dict[str, dict[str, tuple[Any, ...]]] = {  # by kind, what must be declared
    "logits": {"activation": ("sigmoid", "softmax", "identity")},
    "boxes": _LAYOUT_OF_BOXES,
    ROWS: _LAYOUT_OF_BOXES,
}


def task_of(spec: IoSpec) -> str:
    """ "detections", "classification" or "tensors"."""
    kinds = set(by_kind(apart(spec)))
    if kinds >= _OF_QUERIES or kinds >= _OF_TOP_K:
        return DETECTIONS
    return CLASSIFICATION if kinds & {*_OF_CLASSES} else TENSORS


def detecting(spec: IoSpec) -> list[str]:
    """Names of the outputs that make up detections; none where the task is another."""
    return [each.name for each in by_kind(spec).values()] if task_of(spec) == DETECTIONS else []


def plain_outputs(spec: IoSpec, names: Iterable[str] | None = None) -> list[str]:
    """Names of the outputs that make up no detections.

    Args:
        names: of all outputs; None: those that the spec lists.
    """
    taken = {*detecting(spec), *left_out(spec)}
    listed = names if names is not None else (output.name for output in spec.outputs)
    return [name for name in listed if name not in taken]


def check_spec(
    spec: IoSpec, names: Sequence[str], inputs: Mapping[str, Sequence[int | None] | None] | None = None
) -> None:
    """Compare an I/O spec with a model.

    Args:
        spec: as above.
        names: of the model's outputs.
        inputs: shapes of the model's inputs by name, None where a side, or all of it, is free; not given: not
            looked at.

    Raises:
        StageError: listing every problem: an output that the model does not have, an unknown kind, a layout that is not
            declared, kinds that do not make up a task, a shape that does not fit its kind or the other outputs'.
    """
    problems = [*_problems(spec, names), *(_problems_of_inputs(spec, inputs) if inputs is not None else ())]
    refuse("wrong-spec", "the I/O spec does not fit", problems)


def _problems(spec: IoSpec, names: Sequence[str]) -> Iterable[str]:
    for output in spec.outputs:
        name, kind = output.name, output.kind
        if name not in names:
            message = f"output {name!r}: the model has none of this name; it has {', '.join(map(repr, names))}"
            yield coded("wrong-name", message)
        if kind is None:
            continue
        if kind not in _KINDS:
            message = f"output {name!r}: expected a kind among {', '.join(_KINDS)}, or none, got {kind!r}"
            yield coded("unknown-choice", message)
            continue
        for key, values in _CHOICES.get(kind, {}).items():
            if (given := getattr(output, key)) not in values:
                got = "none" if given is None else repr(given)
                message = f"output {name!r}, kind {kind!r}: expected {key} {' or '.join(map(str, values))}, got {got}"
                yield coded("missing-key" if given is None else "unknown-choice", message)
        if output.no_object and output.activation == "sigmoid":
            message = f"output {name!r}: no_object goes with activation softmax or identity, got {output.activation!r}"
            yield coded("in-conflict", message)
        if output.no_object not in (None, True, False, FIRST):
            message = f"output {name!r}: no_object: expected true, false or {FIRST}, got {output.no_object!r}"
            yield coded("unknown-choice", message)
    yield from _problems_of_columns(spec)
    yield from _problems_of_batches(spec)
    taken = apart(spec).outputs
    yield from _problems_of_shapes(_shaped(taken))
    kinds = [output.kind for output in taken if output.kind in _KINDS and output.kind not in _PLAIN]
    for repeated in dict.fromkeys(kind for kind in kinds if kinds.count(kind) > 1):
        yield coded("given-twice", f"kind {repeated!r}: expected once, got {kinds.count(repeated)} times")
    if kinds and ROWS not in kinds and set(kinds) not in (_OF_QUERIES, _OF_TOP_K, *({kind} for kind in _OF_CLASSES)):
        got = ", ".join(map(str, dict.fromkeys(kinds)))
        message = f"kinds: expected logits and boxes, or scores, labels and boxes, or classes, got {got}"
        yield coded("in-conflict", message)


def _problems_of_columns(spec: IoSpec) -> Iterable[str]:
    for output in (each for each in spec.outputs if each.kind == ROWS):
        yield from problems_of_rows(output, len(spec.class_names))


def _problems_of_batches(spec: IoSpec) -> Iterable[str]:
    """Outputs that are not batched where others are, or whose kind is always batched."""
    declared = [each for each in spec.outputs if each.kind not in (*_PLAIN, COUNTS)]
    of_image = [each for each in declared if each.batched is False]
    for each in of_image:
        axes = _RANKS.get(each.kind or "", 0) - 1
        if each.kind in ("logits", *_OF_CLASSES):
            yield coded("in-conflict", f"output {each.name!r}: kind {each.kind!r} is batched, got batched false")
        elif axes > 0 and each.shape is not None and len(each.shape) != axes:
            wrong = f"expected {axes} axes where it is not batched, got shape {list(each.shape)}"
            yield coded("wrong-shape", f"output {each.name!r}, kind {each.kind!r}: {wrong}")
    batched = [each.name for each in declared if each.batched is not False]
    if of_image and batched:
        got = f"batched false for {', '.join(each.name for each in of_image)}, and not for {', '.join(batched)}"
        yield coded("in-conflict", f"batched: expected the same for all outputs that have a kind, got {got}")


def check_shapes(spec: IoSpec) -> None:
    """Compare the shapes of outputs with their kinds.

    Raises:
        StageError: listing every output whose axes are not those of its kind, and queries or boxes that are not as many
            as those of the others. A side with a name may be any.
    """
    refuse(
        "wrong-shape",
        "outputs are not what they are declared to be",
        [*_problems_of_columns(spec), *_problems_of_shapes(_shaped(apart(spec).outputs))],
    )


def _shaped(outputs: Sequence[OutputSpec]) -> list[tuple[str, str, Sequence[int | str]]]:
    """Name, kind and shape of outputs that have a known kind and a shape."""
    return [(each.name, each.kind, each.shape) for each in outputs if each.kind in _RANKS and each.shape is not None]


def _problems_of_shapes(shaped: Sequence[tuple[str, str, Sequence[int | str]]]) -> Iterable[str]:
    """What does not fit of (output, kind, shape); a side with a name may be any."""
    problems = [
        coded("wrong-shape", f"output {name!r}, kind {kind!r}: expected {_AXES[kind]}, got shape {list(shape)}")
        for name, kind, shape in shaped
        if len(shape) != _RANKS[kind] or (kind == "boxes" and isinstance(shape[-1], int) and shape[-1] != 4)
    ]
    if problems:
        yield from problems
        return
    counts = {name: list(shape[:2]) for name, kind, shape in shaped if kind in _OF_ROWS}
    known = [{count[axis] for count in counts.values() if isinstance(count[axis], int)} for axis in (0, 1)]
    if any(len(sides) > 1 for sides in known):
        yield coded("wrong-shape", f"expected as many images and boxes in each output, got {counts}")


def problem_of_classes(spec: IoSpec) -> str | None:
    """What is wrong with the number of names in a checked spec whose outputs have shapes; None where nothing is, where
    there are no names, or where no output says how many classes there are.
    """
    kinds = by_kind(apart(spec))
    output = kinds.get("logits") or kinds.get("classes") or kinds.get("probabilities")
    width = None if output is None else output.sides[-1]
    if not spec.class_names or output is None or not isinstance(width, int):
        return None
    classes, names = width - bool(output.no_object), len(spec.class_names)
    if names == classes:
        return None
    beside = " beside no_object" if output.no_object else ""
    return f"expected {classes} names, as many as output {output.name!r} has classes{beside}, got {names}"


def _problems_of_inputs(spec: IoSpec, inputs: Mapping[str, Sequence[int | None] | None]) -> Iterable[str]:
    for entry in spec.inputs:
        if entry.name not in inputs:
            message = f"input {entry.name!r}: the model has none of this name; it has {', '.join(map(repr, inputs))}"
            yield coded("wrong-name", message)
        elif entry.shape is not None and (shape := inputs[entry.name]) is not None and not fits(entry.shape, shape):
            sides = ", ".join("any" if side is None else str(side) for side in shape)
            message = f"input {entry.name!r}: the model takes [{sides}], the spec says {list(entry.shape)}"
            yield coded("wrong-shape", message)


def check_values(outputs: Outputs, spec: IoSpec) -> None:
    """Hold arrays against the kinds of a checked spec.

    Raises:
        StageError: listing every output whose axes are not those of its kind, or whose images or boxes are not as
            many as those of the others.
    """
    shaped = [(each.name, each.kind, np.shape(outputs[each.name])) for each in spec.outputs if each.kind in _RANKS]
    refuse("wrong-shape", "outputs are not what the I/O spec declares", list(_problems_of_shapes(shaped)))


def check_reference(outputs: Outputs, spec: IoSpec) -> None:
    """Hold what a reference puts out against a checked spec, as far as only values tell.

    Raises:
        StageError: listing labels, which may be floats, that are no whole numbers, and scores among other columns that
            are none.
    """
    problems = []
    for output in (each for each in spec.outputs if each.kind in ("labels", "scores", "logits")):
        values = np.asarray(outputs[output.name], np.float64)
        values = values[np.isfinite(values)]
        if output.kind == "labels":
            if wrong := int((values != np.rint(values)).sum()):
                problems.append(f"output {output.name!r}: {wrong} of {values.size} labels are no whole numbers")
        elif isinstance(output, Part) and values.size and (values.min() < -_SLACK or values.max() > 1 + _SLACK):
            found = f"from {values.min():.3g} to {values.max():.3g}"
            problems.append(f"output {output.name!r}: expected scores, 0 to 1, got values {found}")
        elif isinstance(output, Part) and output.part_of.is_one_image and outputs[output.name][:, -1].any():
            problems.append(f"output {output.name!r}: expected fewer than {ROWS_OF_IMAGE} rows for an image, got more")
    refuse("wrong-spec", "outputs of the reference are not what the I/O spec declares", problems)


def class_name(class_names: Sequence[str], label: int) -> str:
    """What to call a class: by its name, or by its number where it has none."""
    return str(class_names[label]) if 0 <= label < len(class_names) else f"class {label}"


def classes_of(spec: IoSpec) -> str:
    """The output whose largest value says the class of an image."""
    kinds = by_kind(spec)
    return next(kinds[kind].name for kind in _OF_CLASSES if kind in kinds)


def by_kind(spec: IoSpec) -> dict[str, OutputSpec]:
    """Outputs that are judged together, by their kind."""
    return {str(output.kind): output for output in spec.outputs if output.kind not in _PLAIN}


def picture_size(spec: IoSpec, size: tuple[int, int] | None = None) -> tuple[int, int] | None:
    """Height and width of the model's input in pixels: `size`, or those of the spec's input of images, where they vary
    the size that its samples have; None where neither says them.
    """
    first = spec.image_input
    sides = first.sides[1:3] if first.layout == "NHWC" else first.sides[2:4]
    fixed = [side for side in sides if isinstance(side, int)]
    declared = fixed if len(fixed) == 2 else first.size
    return size or (None if declared is None else (declared[0], declared[1]))
