"""Optimization profiles of a model: checked, and filled for inputs that are left out, all problems at once.

min <= opt <= max on each axis of an input; a fixed axis has its number, and axes of one name have the same numbers. An
input that is left out has, of each axis that varies, the numbers of an axis of that name; else 1 to 8 samples, and
other sides as they were traced. An integer input of fixed shape and rank 0 or 1 may be a shape tensor, of which a
profile gives values: TensorRT's parser knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from truehalf.codes import coded
from truehalf.config.engine import KINDS, ProfileShapes
from truehalf.errors import StageError, refuse
from truehalf.io_spec.in_file import spec_inside
from truehalf.io_spec.inputs import inputs_of, traced_shape
from truehalf.io_spec.spec import InputSpec

Profile = dict[str, dict[str, list[int]]]  # input -> "min", "opt" and "max" -> shape
SAMPLES = (1, 1, 8)  # min, opt and max, where their number varies and nothing is declared


def completed(profiles: Sequence[Mapping[str, ProfileShapes]] | None, inputs: Sequence[InputSpec]) -> list[Profile]:
    """Fill the profiles of a configuration.

    Args:
        profiles: None: one, of which nothing is given.
        inputs: `inputs` of the model's I/O spec.

    Raises:
        StageError: wrong-plan, listing every way in which they do not fit the inputs.
    """
    problems: list[str] = []
    filled = [
        _filled(profile, inputs, f"engine.profiles[{number}]", problems)
        for number, profile in enumerate([{}] if profiles is None else profiles)
    ]
    refuse("wrong-plan", "engine.profiles do not fit the model", problems)
    return filled


def profile_of(model: ir.Model, shapes: Mapping[str, Mapping[str, Sequence[int]]]) -> Profile:
    """The optimization profile of a file.

    Args:
        shapes: {"min" | "opt" | "max": {input: shape}}; an input that is given only one kind has it for all.

    Raises:
        StageError: wrong-plan for shapes that do not fit, and for a side that varies and has no number.
    """
    declared = {entry.name: entry for entry in spec_inside(model).inputs}
    inputs = [replace(declared.get(entry.name, entry), shape=entry.shape) for entry in inputs_of(model)]
    given: dict[str, ProfileShapes] = {}
    for name in dict.fromkeys(name for of_kind in shapes.values() for name in of_kind):
        least, opt, most = (tuple(shapes.get(kind, {}).get(name, ())) for kind in KINDS)
        opt = opt or most or least
        given[name] = ProfileShapes(min=least or opt, opt=opt, max=most or opt)
    problems: list[str] = []
    profile = _filled(given, inputs, "shape", problems)
    refuse("wrong-plan", "shapes do not fit the model (such as --opt-shape NAME:1x3x640x640)", problems)
    return profile


def dynamic_inputs(model: ir.Model) -> list[str]:
    """Names of the inputs whose numbers a profile gives: with an axis that varies, or perhaps shape tensors."""
    return [entry.name for entry in inputs_of(model) if _is_free(entry) or any(map(_varies, entry.sides))]


def named_shape(text: str, where: str) -> tuple[str, list[int]]:
    """Read NAME:1x3x640x640 as name and shape.

    Raises:
        StageError: bad-syntax.
    """
    name, _, sides = text.rpartition(":")
    if not name or not re.fullmatch(r"\d+(x\d+)*", sides):
        raise StageError("bad-syntax", f"{where}: expected NAME:1x3x640x640, got {text!r}")
    return name, [int(side) for side in sides.split("x")]


def _filled(
    given: Mapping[str, ProfileShapes], inputs: Sequence[InputSpec], where: str, problems: list[str]
) -> Profile:
    """Fill one profile, and append to `problems` what does not fit, with its place."""
    entries, profile = {entry.name: entry for entry in inputs}, Profile()
    numbers_of: dict[int | str, tuple[int, ...]] = {}  # min, opt and max by the name of an axis
    for name, shapes in given.items():
        if name not in entries:
            expected = ", ".join(entries) or "none"
            problems.append(coded("wrong-name", f"{where}.{name}: no such input; the model has {expected}"))
            continue
        found = [f"{where}.{name}.{problem}" for problem in _problems(shapes, entries[name])]
        problems += found
        profile[name] = {kind: list(getattr(shapes, kind)) for kind in KINDS}
        for axis, side in enumerate(() if found or _is_free(entries[name]) else entries[name].sides):
            numbers = shapes.min[axis], shapes.opt[axis], shapes.max[axis]
            if _varies(side) and side != "?" and (known := numbers_of.setdefault(side, numbers)) != numbers:
                expected = f"{list(known)} in min, opt and max, as another axis named {side!r}"
                text = f"{where}.{name}.opt: axis {axis}: expected {expected}, got {list(numbers)}"
                problems.append(coded("in-conflict", text))
    counts = [numbers_of[entry.sides[0]] for entry in inputs if entry.sides[:1] and entry.sides[0] in numbers_of]
    first = inputs[0].sides[0] if inputs and inputs[0].sides else None
    for entry in inputs:
        if entry.name in given or (given and not any(map(_varies, entry.sides))):
            continue  # beside others an input of fixed shape is none whose axis 0 counts samples
        columns = []
        for axis, (side, traced) in enumerate(zip(entry.sides, traced_shape(entry), strict=True)):
            if _varies(side) and side in numbers_of:
                columns.append(numbers_of[side])
            elif _varies(side) and (axis == 0 or side == first != "?"):
                columns.append(counts[0] if counts else SAMPLES)
            else:
                columns.append((traced, traced, traced))
                if _varies(side) and not (entry.traced or entry.size):
                    sides = ", ".join(map(str, entry.sides))
                    text = f"{where}.{entry.name}: missing, and the sizes of [{sides}] are not known; expected shapes"
                    problems.append(coded("needs-value", text))
                    break
        profile[entry.name] = {kind: [column[i] for column in columns] for i, kind in enumerate(KINDS)}
    return profile


def _problems(shapes: ProfileShapes, entry: InputSpec) -> Iterator[str]:
    """Yield an error line, "opt: ...", for each way in which shapes do not fit an input."""
    if _is_free(entry):
        return
    if len(shapes.opt) != len(entry.sides):
        form = f"{len(entry.sides)} axes, [{', '.join(map(str, entry.sides))}]"
        yield coded("wrong-shape", f"opt: expected {form}, got {list(shapes.opt)}")
        return
    if problems := list(shapes.problems()):
        yield from problems
        return
    for axis, (side, *numbers) in enumerate(zip(entry.sides, shapes.min, shapes.opt, shapes.max, strict=True)):
        if isinstance(side, int) and {*numbers} != {side}:
            remedy = "give that number, or trace the model with this axis dynamic (trace.dynamic_axes)"
            got = ", ".join(map(str, numbers))
            yield coded("axis-fixed", f"opt: axis {axis} is fixed at {side}, got {got}; {remedy}")


def _is_free(entry: InputSpec) -> bool:
    """True for an input of unknown shape, and for one that may be a shape tensor."""
    return entry.shape is None or (
        len(entry.shape) <= 1 and "int" in entry.dtype and not any(map(_varies, entry.sides))
    )


def _varies(side: int | str) -> bool:
    return isinstance(side, str)
