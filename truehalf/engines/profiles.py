"""Optimization profiles checked against the graph, every problem at once, before anything is built; and their points.

For an input with the axes d, a profile's numbers l, o, h (min, opt, max) hold when

    len(l) = len(o) = len(h) = len(d);   0 <= l[i] <= o[i] <= h[i];   d[i] fixed -> l[i] = o[i] = h[i] = d[i]

and two inputs whose axes have one name get the same numbers there. An integer input of fixed shape and rank 0 or 1 may
be a shape tensor, whose numbers are its values: TensorRT's parser knows, and says what is wrong with them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace

import onnx_ir as ir

from truehalf.codes import coded
from truehalf.config.engine import KINDS, ProfileShapes
from truehalf.engines.engine_report import PointOfProfile
from truehalf.errors import StageError
from truehalf.io_spec.in_file import spec_inside
from truehalf.io_spec.profile_shapes import completed
from truehalf.io_spec.spec import InputSpec
from truehalf.ir.facts import fed_inputs
from truehalf.runtime.tensorrt import Profile

Shapes = Mapping[str, Sequence[int]]
Sides = list[int | str | None]  # numbers, names, or None where an axis has neither


def points_of(profiles: Sequence[Profile]) -> list[PointOfProfile]:
    """Every point of every profile once, in the order min, opt, max; one of a model without a profile."""
    points: list[PointOfProfile] = []
    for number, profile in enumerate(profiles or [{}]):
        shapes_of = {kind: {name: list(ranges[kind]) for name, ranges in profile.items()} for kind in KINDS}
        for shapes in {str(shapes): shapes for shapes in shapes_of.values()}.values():
            kinds = [kind for kind in KINDS if shapes_of[kind] == shapes]
            points.append({"profile": number, "points": kinds, "shapes": shapes})
    return points


def dynamic_inputs(graph: ir.Graph) -> list[str]:
    """Names of the inputs whose numbers a profile gives: with a dynamic axis, or perhaps shape tensors."""
    return [name for name, sides in _inputs(graph).items() if sides is None or not _is_fixed(sides)]


def check_profiles(graph: ir.Graph, profiles: Sequence[Profile]) -> list[str]:
    """Every way in which the profiles do not fit the graph; empty when they do.

    Args:
        graph: with its inputs' shapes; an axis without a number is dynamic.
    """
    inputs = _inputs(graph)
    needed = {name: sides for name, sides in inputs.items() if sides is not None and not _is_fixed(sides)}
    if needed and not profiles:
        message = f"engine.profiles: expected at least one; {', '.join(needed)} need min, opt and max"
        return [coded("needs-value", message)]
    problems = []
    for number, profile in enumerate(profiles):
        where = f"engine.profiles[{number}]"
        for name in (each for each in needed if each not in profile):
            form = f"it is dynamic: {_described(needed[name])}"
            problems.append(coded("needs-value", f"{where}: input {name!r} is missing; {form}"))
        for name in (each for each in profile if each not in inputs):
            message = f"{where}.{name}: no such input; the graph has {', '.join(inputs) or 'none'}"
            problems.append(coded("wrong-name", message))
        known = {name: (inputs[name], profile[name]) for name in profile if name in inputs}
        problems += [f"{where}.{problem}" for problem in _misfits(known)]
    return problems


def _misfits(known: Mapping[str, tuple[Sides | None, Mapping[str, list[int]]]]) -> Iterator[str]:
    """Yield an error line for each axis at which the numbers of a profile do not fit an input."""
    named: dict[str, tuple[str, list[int]]] = {}  # by the name of an axis an input that has it, and its numbers there
    for name, (sides, ranges) in known.items():
        shapes = ProfileShapes(**{kind: tuple(ranges[kind]) for kind in KINDS})
        problems = [*shapes.problems(None if sides is None else 0)]
        yield from (f"{name}.{problem}" for problem in problems)
        if problems or sides is None:
            continue
        if len(shapes.opt) != len(sides):
            form = f"{len(sides)} axes as in the graph, {_described(sides)}"
            yield coded("wrong-shape", f"{name}.opt: expected {form}, got {list(shapes.opt)}")
            continue
        for axis, (side, *numbers) in enumerate(zip(sides, *(ranges[kind] for kind in KINDS), strict=True)):
            where, got = f"{name}.opt: axis {axis}", ", ".join(map(str, numbers))
            if isinstance(side, int) and {*numbers} != {side}:
                remedy = "give that number, or trace the model with this axis dynamic (trace.dynamic_axes)"
                yield coded("axis-fixed", f"{where} is fixed at {side}, got {got}; {remedy}")
            elif isinstance(side, str) and (first := named.setdefault(side, (name, numbers)))[1] != numbers:
                wanted = f"the same min, opt and max, {', '.join(map(str, first[1]))}, got {got}"
                yield coded("in-conflict", f"{where} is named {side!r} like one of {first[0]}: expected {wanted}")


def _inputs(graph: ir.Graph) -> dict[str, Sides | None]:
    """Sides of the inputs by name; None of an unknown rank, and of what may be a shape tensor."""
    inputs: dict[str, Sides | None] = {}
    for value in graph.inputs:
        if value.is_initializer():
            continue
        sizes = [side if isinstance(side, int) else side.value for side in value.shape or ()]
        sides = [None if isinstance(size, int) and size < 0 else size for size in sizes]
        may_be_shape = value.dtype in (ir.DataType.INT32, ir.DataType.INT64) and len(sides) <= 1 and _is_fixed(sides)
        inputs[str(value.name)] = None if value.shape is None or may_be_shape else sides
    return inputs


def _is_fixed(sides: Sides) -> bool:
    return all(isinstance(side, int) for side in sides)


def _described(sides: Sides) -> str:
    return f"[{', '.join('?' if side is None else str(side) for side in sides)}]"


# --- profiles of a file -----------------------------------------------------------------------------------------------


def profile_of(model: ir.Model, shapes: Mapping[str, Shapes]) -> Profile:
    """The optimization profile of a file.

    Args:
        shapes: {"min" | "opt" | "max": {input: shape}}; an input that is given only one kind has it for all. Inputs
            that are given none have the profile of truehalf.io_spec.profile_shapes.

    Raises:
        StageError: a shape of an unknown input, a side that varies and has no number.
    """
    declared = {entry.name: entry for entry in spec_inside(model).inputs}
    inputs: dict[str, InputSpec] = {}
    for value in fed_inputs(model):
        sides = tuple(side if isinstance(side, int) else str(side.value or "?") for side in value.shape or ())
        name = str(value.name)
        inputs[name] = replace(declared.get(name, InputSpec(name)), shape=sides)
    given = {name for of_kind in shapes.values() for name in of_kind}
    if unknown := sorted(given - {*inputs}):
        raise StageError("wrong-name", f"the model has no input {', '.join(unknown)}; it has {', '.join(inputs)}")
    if still_open := [f"{name}: {list(entry.sides)}" for name, entry in inputs.items() if _is_open(entry, given)]:
        raise StageError(
            "needs-value",
            "inputs have sides that vary besides the number of samples, and the file does not say their sizes: "
            f"{', '.join(still_open)}; give their shapes, such as --opt-shape NAME:1x3x640x640",
        )
    (profile,) = completed(None, list(inputs.values()))
    for name in given:
        least, opt, most = (shapes.get(kind, {}).get(name) for kind in KINDS)
        opt = opt or most or least or ()
        profile[name] = {"min": list(least or opt), "opt": list(opt), "max": list(most or opt)}
    return profile


def _is_open(entry: InputSpec, given: Collection[str]) -> bool:
    has_size = entry.name in given or entry.traced or entry.size
    return not has_size and any(isinstance(side, str) for side in entry.sides[1:])
