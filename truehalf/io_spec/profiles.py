"""Optimization profiles of a model: filled from its inputs, then checked, all problems at once.

    null as a side                   the side that the model fixes
    an input that is left out        its varying sides, where other inputs of the profile have sides of the same names
    null for all profiles            one for the inputs of the model: 1 to 8 samples, other sides as they were traced

min <= opt <= max on each axis of the input; a fixed axis has its number, and axes of one name have the same numbers. An
integer input of fixed shape and rank 0 or 1 may be a shape tensor, whose numbers are values: TensorRT's parser knows.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import onnx_ir as ir

from truehalf.codes import coded
from truehalf.config.engine import KINDS, ProfileShapes
from truehalf.errors import StageError, refuse
from truehalf.io_spec.in_file import spec_inside
from truehalf.io_spec.inputs import inputs_of, traced_shape
from truehalf.io_spec.spec import InputSpec

Profile = dict[str, dict[str, list[int]]]
SAMPLES = {"min": 1, "opt": 1, "max": 8}  # where the number of them varies, and it is not declared how


def completed(profiles: Sequence[Mapping[str, ProfileShapes]] | None, inputs: Sequence[InputSpec]) -> list[Profile]:
    """Fill the profiles of a configuration: [{input: {"min": numbers, "opt": numbers, "max": numbers}}].

    Args:
        profiles: of the configuration; None: one that is made for the inputs.
        inputs: `inputs` of the model's I/O spec.

    Raises:
        StageError: wrong-plan, listing every way in which they do not fit the inputs.
    """
    if profiles is None:
        return [_made_for(inputs)]
    varying = [entry.name for entry in inputs if _varies(entry)]
    problems = []
    if varying and not profiles:
        message = f"engine.profiles: expected at least one; {', '.join(varying)} need min, opt and max"
        problems.append(coded("needs-value", message))
    filled = [_filled(profile, inputs) for profile in profiles]
    for number, profile in enumerate(filled):
        problems += [f"engine.profiles[{number}]{problem}" for problem in _problems(profile, inputs)]
    refuse("wrong-plan", "engine.profiles do not fit the model", problems)
    return filled


def profile_of(model: ir.Model, shapes: Mapping[str, Mapping[str, Sequence[int]]]) -> Profile:
    """The optimization profile of a file.

    Args:
        shapes: {"min" | "opt" | "max": {input: shape}}; an input that is given only one kind has it for all. Inputs
            that are given none have the profile that is made for them.

    Raises:
        StageError: wrong-plan for shapes that do not fit, needs-value for a side that varies and has no number.
    """
    declared = {entry.name: entry for entry in spec_inside(model).inputs}
    inputs = [replace(declared.get(entry.name, entry), shape=entry.shape) for entry in inputs_of(model)]
    given = {name for of_kind in shapes.values() for name in of_kind}
    sized = {entry.name for entry in inputs if entry.traced or entry.size} | given
    unsized = [
        entry for entry in inputs if entry.name not in sized and any(isinstance(s, str) for s in entry.sides[1:])
    ]
    profile = _made_for(inputs)
    for name in given:
        least, opt, most = (shapes.get(kind, {}).get(name) for kind in KINDS)
        opt = opt or most or least or ()
        profile[name] = {"min": list(least or opt), "opt": list(opt), "max": list(most or opt)}
    refuse("wrong-plan", "shapes do not fit the model", [f"shape{problem}" for problem in _problems(profile, inputs)])
    if unsized:
        raise StageError(
            "needs-value",
            "inputs have sides that vary besides the number of samples, and the file does not say their sizes: "
            f"{', '.join(f'{entry.name}: {list(entry.sides)}' for entry in unsized)}; give their shapes, such as "
            "--opt-shape NAME:1x3x640x640",
        )
    return profile


def dynamic_inputs(model: ir.Model) -> list[str]:
    """Names of the inputs whose numbers a profile gives: with a dynamic axis, or perhaps shape tensors."""
    return [entry.name for entry in inputs_of(model) if entry.shape is None or _varies(entry) or _may_be_shape(entry)]


def named_shape(text: str, where: str) -> tuple[str, list[int]]:
    """Read NAME:1x3x640x640 as name and shape.

    Raises:
        StageError: bad-syntax.
    """
    name, _, sides = text.rpartition(":")
    if not name or not re.fullmatch(r"\d+(x\d+)*", sides):
        raise StageError("bad-syntax", f"{where}: expected NAME:1x3x640x640, got {text!r}")
    return name, [int(side) for side in sides.split("x")]


def _made_for(inputs: Sequence[InputSpec]) -> Profile:
    """A profile in which only the number of samples varies, if the model lets it."""
    samples = inputs[0].sides[0] if inputs and inputs[0].sides else None
    found: Profile = {}
    for entry in inputs:
        traced = traced_shape(entry)
        counts_samples = [isinstance(s, str) and (axis == 0 or s == samples) for axis, s in enumerate(entry.sides)]
        both = list(zip(counts_samples, traced, strict=True))
        found[entry.name] = {
            kind: [number if is_one else side for is_one, side in both] for kind, number in SAMPLES.items()
        }
    return found


def _filled(profile: Mapping[str, ProfileShapes], inputs: Sequence[InputSpec]) -> Profile:
    """Fill the sides that the model fixes, and the inputs whose sides others name."""
    sides_of = {entry.name: entry.sides for entry in inputs}
    filled: dict[str, dict[str, list[Any]]] = {}  # with null where a side varies
    lengths: dict[str, dict[str, int]] = {}  # by the name of a side
    for name, shapes in profile.items():
        sides = sides_of.get(name, ())
        fixed = {axis: side for axis, side in enumerate(sides) if isinstance(side, int)}
        filled[name] = {
            kind: [fixed.get(i, side) if side is None else side for i, side in enumerate(getattr(shapes, kind))]
            for kind in KINDS
        }
        for axis, side in enumerate(sides[: len(shapes.opt)]):
            lengths.setdefault(str(side), {kind: filled[name][kind][axis] for kind in KINDS})
    for name, sides in sides_of.items():
        named = {side for side in sides if isinstance(side, str)}
        if name not in filled and named and named <= lengths.keys():
            filled[name] = {kind: [s if isinstance(s, int) else lengths[s][kind] for s in sides] for kind in KINDS}
    return filled


def _problems(profile: Profile, inputs: Sequence[InputSpec]) -> Iterator[str]:
    """Yield an error line, ".input: ...", for each way in which the numbers of a profile do not fit the inputs."""
    entries = {entry.name: entry for entry in inputs}
    for entry in (entry for entry in inputs if _varies(entry) and entry.name not in profile):
        yield coded(
            "needs-value", f": input {entry.name!r} is missing; it is dynamic: [{', '.join(map(str, entry.sides))}]"
        )
    named: dict[str, tuple[str, list[int]]] = {}  # by the name of an axis an input that has it, and its numbers there
    for name, ranges in profile.items():
        if name not in entries:
            yield coded("wrong-name", f".{name}: no such input; the model has {', '.join(entries) or 'none'}")
            continue
        sides, shapes = entries[name].sides, ProfileShapes(**{kind: tuple(ranges[kind]) for kind in KINDS})
        if entries[name].shape is None or _may_be_shape(entries[name]):
            continue
        if len(shapes.opt) != len(sides):
            form = f"{len(sides)} axes, [{', '.join(map(str, sides))}]"
            yield coded("wrong-shape", f".{name}.opt: expected {form}, got {list(shapes.opt)}")
            continue
        if problems := list(shapes.problems()):
            yield from (f".{name}.{problem}" for problem in problems)
            continue
        for axis, (side, *numbers) in enumerate(zip(sides, *(ranges[kind] for kind in KINDS), strict=True)):
            where, got = f".{name}.opt: axis {axis}", ", ".join(map(str, numbers))
            if None in numbers:
                yield coded("needs-value", f"{where} varies ({side}); expected numbers, got null")
            elif isinstance(side, int) and {*numbers} != {side}:
                remedy = "give that number, or trace the model with this axis dynamic (trace.dynamic_axes)"
                yield coded("axis-fixed", f"{where} is fixed at {side}, got {got}; {remedy}")
            elif side != "?" and (first := named.setdefault(str(side), (name, numbers)))[1] != numbers:
                wanted = f"the same min, opt and max, {', '.join(map(str, first[1]))}, got {got}"
                yield coded("in-conflict", f"{where} is named {side!r} like one of {first[0]}: expected {wanted}")


def _varies(entry: InputSpec) -> bool:
    return any(isinstance(side, str) for side in entry.sides)


def _may_be_shape(entry: InputSpec) -> bool:
    return (
        entry.dtype in ("int32", "int64") and entry.shape is not None and len(entry.shape) <= 1 and not _varies(entry)
    )
