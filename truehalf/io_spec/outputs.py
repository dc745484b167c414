"""What the outputs of a model are, as its I/O spec declares them; nothing is guessed from names or values.

kind "logits"   [N, queries, classes]  activation: sigmoid | softmax | identity (they are scores); no_object: true:
                                       softmax's last class is none
kind "boxes"    [N, queries, 4]        format: cxcywh | xyxy; normalized: true | false (then pixels of the input)
kind "scores"   [N, n] in 0..1, and kind "labels" [N, n]: top-k inside the model, with "boxes" [N, n, 4]
kind "classes"  [N, classes]           classification logits
no kind         any tensor

detections      logits + boxes, or scores + labels + boxes
classification  classes
tensors         none of these
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from truehalf.codes import coded
from truehalf.errors import StageError

DETECTIONS, CLASSIFICATION, TENSORS = "detections", "classification", "tensors"
Outputs = Mapping[str, np.ndarray]

_KEYS = ("inputs", "outputs", "class_names", "trained")
_RANKS = {"logits": 3, "boxes": 3, "scores": 2, "labels": 2, "classes": 2}
_AXES = {
    "logits": "[N, queries, classes]",
    "boxes": "[N, boxes, 4]",
    "scores": "[N, n]",
    "labels": "[N, n]",
    "classes": "[N, classes]",
}
_OF_QUERIES, _OF_TOP_K = {"logits", "boxes"}, {"scores", "labels", "boxes"}
_CHOICES: dict[str, dict[str, tuple[Any, ...]]] = {  # by kind, what must be declared
    "logits": {"activation": ("sigmoid", "softmax", "identity")},
    "boxes": {"format": ("cxcywh", "xyxy"), "normalized": (True, False)},
}


def task_of(spec: Mapping[str, Any] | None) -> str:
    """ "detections", "classification" or "tensors"; without a spec, "tensors"."""
    kinds = set(by_kind(spec or {}))
    if kinds >= _OF_QUERIES or kinds >= _OF_TOP_K:
        return DETECTIONS
    return CLASSIFICATION if "classes" in kinds else TENSORS


def detecting(spec: Mapping[str, Any]) -> list[str]:
    """Names of the outputs that make up detections; none where the task is another."""
    return [str(each["name"]) for each in by_kind(spec).values()] if task_of(spec) == DETECTIONS else []


def plain_outputs(spec: Mapping[str, Any], names: Iterable[str] | None = None) -> list[str]:
    """Names of the outputs that make up no detections.

    Args:
        names: of all outputs; None: those that the spec lists.
    """
    taken = detecting(spec)
    listed = names if names is not None else (str(output["name"]) for output in spec["outputs"])
    return [name for name in listed if name not in taken]


def check_spec(
    spec: Mapping[str, Any], names: Sequence[str], inputs: Mapping[str, Sequence[int | None]] | None = None
) -> None:
    """Hold an I/O spec against a model.

    Args:
        spec: as above.
        names: of the model's outputs.
        inputs: shapes of the model's inputs by name, None where a side is free; not given: not looked at.

    Raises:
        StageError: listing every fault: an output that the model does not have, an unknown kind, a layout that is not
            declared, kinds that do not make up a task, a shape that does not fit its kind or the other outputs'.
    """
    faults = [*_faults(spec, names), *(_faults_of_inputs(spec, inputs) if inputs is not None else ())]
    if faults:
        raise StageError("wrong-spec", "the I/O spec does not fit:\n" + "\n".join(f"  - {fault}" for fault in faults))


def _faults(spec: Mapping[str, Any], names: Sequence[str]) -> Iterable[str]:
    listed = {key: spec.get(key, []) for key in ("inputs", "outputs")}
    malformed = {key: value for key, value in listed.items() if not _are_named(value)}
    for key, value in malformed.items():
        yield coded("wrong-type", f"{key}: expected a list of mappings, each with a name, got {value!r}")
    if malformed:
        return
    outputs = listed["outputs"]
    for output in outputs:
        name, kind = output["name"], output.get("kind")
        if name not in names:
            said = f"output {name!r}: the model has none of this name; it has {', '.join(map(repr, names))}"
            yield coded("wrong-name", said)
        if kind is None:
            continue
        if kind not in _RANKS:
            said = f"output {name!r}: expected a kind among {', '.join(_RANKS)}, or none, got {kind!r}"
            yield coded("unknown-choice", said)
            continue
        for key, values in _CHOICES.get(kind, {}).items():
            if output.get(key) not in values:
                got = repr(output[key]) if key in output else "none"
                said = f"output {name!r}, kind {kind!r}: expected {key} {' or '.join(map(str, values))}, got {got}"
                yield coded("unknown-choice" if key in output else "missing-key", said)
        if output.get("no_object") and output.get("activation") != "softmax":
            said = f"output {name!r}: no_object goes with activation softmax, got {output.get('activation')!r}"
            yield coded("in-conflict", said)
    yield from _faults_of_shapes(_shaped(outputs))
    kinds = [output.get("kind") for output in outputs if output.get("kind") in _RANKS]
    for kind in _repeated(kinds):
        yield coded("given-twice", f"kind {kind!r}: expected once, got {kinds.count(kind)} times")
    if not _complete(set(kinds)):
        got = ", ".join(map(str, dict.fromkeys(kinds)))
        said = f"kinds: expected logits and boxes, or scores, labels and boxes, or classes, got {got}"
        yield coded("in-conflict", said)
    trained = spec.get("trained", True)
    if not isinstance(trained, bool):
        yield coded("wrong-type", f"trained: expected true or false, got {trained!r}")


def check_shapes(spec: Mapping[str, Any]) -> None:
    """Hold the shapes of outputs against their kinds.

    Raises:
        StageError: listing every output whose axes are not those of its kind, and queries or boxes that are not as many
            as those of the others. A side with a name may be any.
    """
    if faults := list(_faults_of_shapes(_shaped(spec["outputs"]))):
        listed = "\n".join(f"  - {fault}" for fault in faults)
        raise StageError("wrong-shape", f"outputs are not what they are declared to be:\n{listed}")


def _shaped(outputs: Sequence[Mapping[str, Any]]) -> list[tuple[str, str, Sequence[Any]]]:
    """Name, kind and shape of outputs that have a known kind and a shape."""
    known = [each for each in outputs if each.get("kind") in _RANKS and each.get("shape") is not None]
    return [(str(each["name"]), each["kind"], each["shape"]) for each in known]


def _faults_of_shapes(shaped: Sequence[tuple[str, str, Sequence[Any]]]) -> Iterable[str]:
    """What does not fit of (output, kind, shape); a side with a name may be any."""
    faults = [
        coded("wrong-shape", f"output {name!r}, kind {kind!r}: expected {_AXES[kind]}, got shape {list(shape)}")
        for name, kind, shape in shaped
        if len(shape) != _RANKS[kind] or (kind == "boxes" and isinstance(shape[-1], int) and shape[-1] != 4)
    ]
    if faults:
        yield from faults
        return
    counts = {name: list(shape[:2]) for name, kind, shape in shaped if kind != "classes"}
    known = [{count[axis] for count in counts.values() if isinstance(count[axis], int)} for axis in (0, 1)]
    if any(len(sides) > 1 for sides in known):
        yield coded("wrong-shape", f"expected as many images and boxes in each output, got {counts}")


def fault_of_classes(spec: Mapping[str, Any]) -> str | None:
    """What is wrong with the number of names in a checked spec whose outputs have shapes; None where nothing is, where
    there are no names, or where no output says how many classes there are.
    """
    names, kinds = spec.get("class_names") or (), by_kind(spec)
    output = kinds.get("logits") or kinds.get("classes")
    width = None if output is None else output["shape"][-1]
    if not names or output is None or not isinstance(width, int):
        return None
    classes = width - bool(output.get("no_object"))
    if len(names) == classes:
        return None
    beside = " beside no_object" if output.get("no_object") else ""
    return f"expected {classes} names, as many as output {output['name']!r} has classes{beside}, got {len(names)}"


def _are_named(entries: Any) -> bool:
    return isinstance(entries, Sequence) and all(isinstance(each, Mapping) and "name" in each for each in entries)


def _faults_of_inputs(spec: Mapping[str, Any], inputs: Mapping[str, Sequence[int | None]]) -> Iterable[str]:
    yield from (coded("unknown-key", f"{key}: expected {', '.join(_KEYS)}") for key in spec if key not in _KEYS)
    listed = spec.get("inputs")
    for entry in listed if isinstance(listed, Sequence) else ():
        name = entry.get("name") if isinstance(entry, Mapping) else None
        if name is None:
            continue  # said already
        if name not in inputs:
            said = f"input {name!r}: the model has none of this name; it has {', '.join(map(repr, inputs))}"
            yield coded("wrong-name", said)
        elif (shape := entry.get("shape")) is not None and not _fits(shape, inputs[name]):
            sides = ", ".join("any" if side is None else str(side) for side in inputs[name])
            yield coded("wrong-shape", f"input {name!r}: the model takes [{sides}], the spec says {list(shape)}")


def _fits(declared: Sequence[Any], sides: Sequence[int | None]) -> bool:
    """A side that either leaves free fits."""
    pairs = zip(declared, sides, strict=False)
    return len(declared) == len(sides) and all(b is None or not isinstance(a, int) or a == b for a, b in pairs)


def _repeated(kinds: Sequence[Any]) -> list[Any]:
    return [kind for kind in dict.fromkeys(kinds) if kinds.count(kind) > 1]


def _complete(kinds: set[Any]) -> bool:
    return not kinds or kinds in (_OF_QUERIES, _OF_TOP_K, {"classes"})


def check_values(outputs: Outputs, spec: Mapping[str, Any]) -> None:
    """Hold arrays against the kinds of a checked spec.

    Raises:
        StageError: listing every output whose axes are not those of its kind, or whose images or boxes are not as
            many as those of the others.
    """
    kinds = by_kind(spec)
    shaped = [(str(output["name"]), kind, np.shape(outputs[output["name"]])) for kind, output in kinds.items()]
    if faults := list(_faults_of_shapes(shaped)):
        raise StageError(
            "wrong-shape",
            "outputs are not what the I/O spec declares:\n" + "\n".join(f"  - {fault}" for fault in faults),
        )


def class_name(class_names: Sequence[str], label: int) -> str:
    """What to call a class: by its name, or by its number where it has none."""
    return str(class_names[label]) if 0 <= label < len(class_names) else f"class {label}"


def classes_of(spec: Mapping[str, Any]) -> str:
    """The output of kind "classes"."""
    return str(by_kind(spec)["classes"]["name"])


def by_kind(spec: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    return {output["kind"]: output for output in spec.get("outputs", []) if output.get("kind") is not None}


def picture_size(spec: Mapping[str, Any], size: tuple[int, int] | None = None) -> tuple[int, int] | None:
    """Height and width of the model's input in pixels: `size`, or those of the spec's first input, where they vary the
    size that its samples have; None where neither says them.
    """
    shape = first_shape(spec)
    sides = shape[1:3] if _first_input(spec).get("layout") == "NHWC" else shape[2:4]
    fixed = len(sides) == 2 and all(isinstance(side, int) for side in sides)
    known = sides if fixed else _first_input(spec).get("size")
    return size or (None if known is None else (known[0], known[1]))


def _first_input(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    return next(iter(spec.get("inputs", [])), {})


def first_shape(spec: Mapping[str, Any]) -> list[Any]:
    return list(_first_input(spec).get("shape") or [])
