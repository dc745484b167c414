"""An I/O spec held against a model, against shapes, and against arrays; each check lists everything that is wrong."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np

from truehalf.codes import coded
from truehalf.errors import refuse
from truehalf.io_spec import outputs as layouts
from truehalf.io_spec.outputs import KINDS, OF_CLASSES, ROWS, WIDTHS, Outputs, columns_in, columns_of, shape_problem
from truehalf.io_spec.spec import IoSpec, OutputSpec, fits

_SLACK = 1e-3  # of scores: sums of roundings


def check_spec(
    spec: IoSpec, names: Sequence[str], inputs: Mapping[str, Sequence[int | None] | None] | None = None
) -> None:
    """Compare an I/O spec with a model.

    Args:
        spec: see truehalf.io_spec.outputs.
        names: of the model's outputs.
        inputs: shapes of the model's inputs by name, None where a side, or all of it, is free; not given: not
            looked at.

    Raises:
        StageError: listing every problem: an output that the model does not have, an unknown kind, a layout that is not
            declared, kinds that do not make up a task, a shape that does not fit its kind or the other outputs'.
    """
    problems = [problem for output in spec.outputs for problem in _problems_of_output(output, names)]
    problems += [*_problems_of_shapes(spec), *_problems_of_task(spec)]
    problems += [] if inputs is None else _problems_of_inputs(spec, inputs)
    refuse("wrong-spec", "the I/O spec does not fit", problems)


def check_shapes(spec: IoSpec) -> None:
    """Compare the shapes of outputs with their kinds.

    Raises:
        StageError: listing every output whose axes are not those of its kind, and queries or boxes that are not as many
            as those of the others. A side with a name may be any.
    """
    refuse("wrong-shape", "outputs are not what they are declared to be", list(_problems_of_shapes(spec)))


def check_values(outputs: Outputs, spec: IoSpec) -> None:
    """Compare the shapes of arrays with the kinds of a checked spec, as `check_shapes`.

    Raises:
        StageError: as `check_shapes`.
    """
    there = (each for each in spec.outputs if each.kind in KINDS and each.name in outputs)
    check_shapes(replace(spec, outputs=tuple(replace(each, shape=np.shape(outputs[each.name])) for each in there)))


def check_reference(outputs: Outputs, spec: IoSpec) -> None:
    """Compare a reference's detections with a checked spec, as far as only values tell.

    Raises:
        StageError: listing labels, which may be floats, that are no whole numbers, and scores among other columns that
            are not in 0 to 1.
    """
    problems = []
    columns = columns_of(spec)
    for column, values in (layouts.read_columns(outputs, spec) if columns else {}).items():
        found = np.asarray(values, np.float64)[np.isfinite(values)]
        output = columns[column]
        where = f"output {output.name!r}" + (f", column {column!r}" if output.kind == ROWS else "")
        if column == "label" and (wrong := int((found != np.rint(found)).sum())):
            problems.append(f"{where}: {wrong} of {values.size} labels are no whole numbers")
        elif output.kind == ROWS and column in ("score", "scores") and found.size:
            low, high = found.min(), found.max()
            if low < -_SLACK or high > 1 + _SLACK:
                problems.append(f"{where}: expected scores, 0 to 1, got values from {low:.3g} to {high:.3g}")
    refuse("wrong-spec", "outputs of the reference are not what the I/O spec declares", problems)


def problem_of_classes(spec: IoSpec) -> str | None:
    """What is wrong with the number of names in a checked spec whose outputs have shapes; None where nothing is, where
    there are no names, or where no output says how many classes there are.
    """
    for output in spec.outputs if spec.class_names else ():
        columns = columns_in(output)
        counts_classes = columns[-1:] == ("scores",) or output.kind in OF_CLASSES
        width = output.sides[(output.axis or 2) if output.kind == ROWS else -1] if output.sides else None
        if not counts_classes or not isinstance(width, int):
            continue
        classes = width - sum(WIDTHS.get(column, 0) for column in columns) - bool(output.no_object)
        if (names := len(spec.class_names)) != classes:
            beside = " beside no_object" if output.no_object else ""
            return f"expected {classes} names, as many as output {output.name!r} has classes{beside}, got {names}"
    return None


def _problems_of_output(output: OutputSpec, names: Sequence[str]) -> Iterator[str]:
    name, kind = output.name, output.kind
    if name not in names:
        message = f"output {name!r}: the model has none of this name; it has {', '.join(map(repr, names))}"
        yield coded("wrong-name", message)
    if kind is not None and kind not in KINDS:
        message = f"output {name!r}: expected a kind among {', '.join(KINDS)}, or none, got {kind!r}"
        yield coded("unknown-choice", message)
    for key in (*KINDS.get(kind or "", layouts.Kind()).needs, *(["no_object"] if output.no_object is not None else [])):
        given, values = getattr(output, key), layouts.CHOICES[key]
        values = values[:1] if key == "axis" and output.batched is False else values
        if given not in values:
            got = "none" if given is None else repr(given)
            message = f"output {name!r}, kind {kind!r}: expected {key} {' or '.join(map(str, values))}, got {got}"
            yield coded("missing-key" if given is None else "unknown-choice", message)
    if output.no_object and output.activation == "sigmoid":
        message = f"output {name!r}: no_object goes with activation softmax or identity, got {output.activation!r}"
        yield coded("in-conflict", message)
    if output.batched is False and kind in ("logits", *OF_CLASSES):
        yield coded("in-conflict", f"output {name!r}: kind {kind!r} is batched, got batched false")


def _problems_of_columns(output: OutputSpec, classes: int) -> Iterator[str]:
    """Yield an error line for each problem with the columns of an output of kind "rows", and with its width.

    Args:
        classes: how many have a name.
    """
    named, columns = f"output {output.name!r}, kind {ROWS!r}", output.columns or ()
    order, got = columns[:-1] if columns[-1:] == ("others",) else columns, f"[{', '.join(columns)}]"
    if order not in layouts.ORDERS:
        expected = " or ".join(f"[{', '.join(each)}]" for each in layouts.ORDERS)
        code = "unknown-choice" if columns else "missing-key"
        yield coded(code, f"{named}: expected columns {expected}, or one of these and others, got {got}")
        return
    has_others = order != columns
    if has_others and "scores" in order and not classes:
        yield coded("missing-key", f"{named}: expected names of the classes, which say where others begin, got none")
    if output.batched is False and (has_others or "score" not in order):
        message = f"{named}: expected a score and no others where it is not batched, got {got}"
        yield coded("in-conflict", message)
    width = dict(enumerate(output.sides)).get(output.axis) if output.axis else None
    least = sum(WIDTHS.get(column, classes if has_others else 1) for column in order)
    is_fixed = not has_others and "scores" not in order
    if isinstance(width, int) and (width < least or (is_fixed and width > least)):
        expected = f"{least} columns{'' if is_fixed else ' or more'}"
        shape = list(output.sides)
        yield coded("wrong-shape", f"{named}: expected {expected} on axis {output.axis}, got {shape}")


def _problems_of_shapes(spec: IoSpec) -> Iterator[str]:
    """Yield an error line for each output whose shape does not fit its kind, or those of the others."""
    problems = [problem for output in spec.outputs if (problem := shape_problem(output))]
    for output in (each for each in spec.outputs if each.kind == ROWS):
        problems += _problems_of_columns(output, len(spec.class_names))
    if problems:
        yield from problems
        return
    counts = {each.name: layouts.images_and_rows(each) for each in spec.outputs if columns_in(each) and each.sides}
    known = [{side for side in sides if isinstance(side, int)} for sides in zip(*counts.values(), strict=False)]
    if any(len(sides) > 1 for sides in known):
        yield coded("wrong-shape", f"expected as many images and boxes in each output, got {counts}")


def _problems_of_task(spec: IoSpec) -> Iterator[str]:
    """Yield an error line for kinds that are there twice, make up no task, or are batched but for some."""
    holders: dict[str, list[OutputSpec]] = {}
    for output in spec.outputs:
        for column in columns_in(output) or ((output.kind,) if output.kind in OF_CLASSES else ()):
            holders.setdefault(str(column), []).append(output)
    for outputs in holders.values():
        if len(outputs) > 1:
            named = " and ".join(f"{each.name!r} (kind {each.kind!r})" for each in outputs)
            yield coded("given-twice", f"kind {outputs[-1].kind!r}: expected once, got {len(outputs)} times: {named}")
    taking_part = {output.name: output for outputs in holders.values() for output in outputs}.values()
    needed = holders.keys() - {"objectness", "image", "others"}
    if needed and needed not in (*layouts.LAYOUTS, *({kind} for kind in OF_CLASSES)):
        expected = "logits and boxes, or scores, labels and boxes, or rows that hold these, or classes"
        got = ", ".join(dict.fromkeys(str(output.kind) for output in taking_part))
        yield coded("in-conflict", f"kinds: expected {expected}, got {got}")
    if len({output.batched is False for output in taking_part}) > 1:
        got = ", ".join(f"{output.name}: {output.batched is not False}".lower() for output in taking_part)
        yield coded("in-conflict", f"batched: expected the same for all outputs that have a kind, got {got}")


def _problems_of_inputs(spec: IoSpec, inputs: Mapping[str, Sequence[int | None] | None]) -> Iterator[str]:
    for entry in spec.inputs:
        if entry.name not in inputs:
            message = f"input {entry.name!r}: the model has none of this name; it has {', '.join(map(repr, inputs))}"
            yield coded("wrong-name", message)
        elif entry.shape is not None and (shape := inputs[entry.name]) is not None and not fits(entry.shape, shape):
            sides = ", ".join("any" if side is None else str(side) for side in shape)
            message = f"input {entry.name!r}: the model takes [{sides}], the spec says {list(entry.shape)}"
            yield coded("wrong-shape", message)
