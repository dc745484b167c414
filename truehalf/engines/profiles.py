"""Optimization profiles checked against the graph, every problem at once, before anything is built; and their points.

For an input with the axes d, a profile's numbers l, o, h (min, opt, max) hold when

    len(l) = len(o) = len(h) = len(d);   0 <= l[i] <= o[i] <= h[i];   d[i] fixed -> l[i] = o[i] = h[i] = d[i]

and two inputs whose axes have one name get the same numbers there. An integer input of fixed shape and rank 0 or 1 may
be a shape tensor, whose numbers are its values: TensorRT's parser knows, and says what is wrong with them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from truehalf.codes import coded
from truehalf.config.engine import KINDS, ProfileShapes
from truehalf.engines.engine_report import PointOfProfile
from truehalf.runtime.tensorrt import Profile

if TYPE_CHECKING:
    import onnx_ir as ir

Sides = list[int | str | None]  # numbers, names, or None where an axis has neither


@dataclass(frozen=True)
class Point:
    """A point of an optimization profile.

    Attributes:
        profile: its number, from 0.
        kinds: "min", "opt", "max": those that are this point.
        shapes: of each input in the profile, the shape there.
    """

    profile: int
    kinds: tuple[str, ...]
    shapes: dict[str, list[int]]

    @property
    def label(self) -> str:
        """Such as "profile 0, min and opt"."""
        return f"profile {self.profile}, {' and '.join(self.kinds)}"

    @property
    def facts(self) -> PointOfProfile:
        return {"profile": self.profile, "points": list(self.kinds), "shapes": self.shapes}


def points_of(profiles: Sequence[Profile]) -> list[Point]:
    """Every point of every profile once, in the order min, opt, max; one of a model without a profile."""
    points = []
    for number, profile in enumerate(profiles or [{}]):
        shapes_of = {kind: {name: list(ranges[kind]) for name, ranges in profile.items()} for kind in KINDS}
        for shapes in {str(shapes): shapes for shapes in shapes_of.values()}.values():
            points.append(Point(number, tuple(kind for kind in KINDS if shapes_of[kind] == shapes), shapes))
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
    problems = []
    if needed and not profiles:
        message = f"engine.profiles: expected at least one; {', '.join(needed)} need min, opt and max"
        problems.append(coded("needs-value", message))
    for number, profile in enumerate(profiles):
        where = f"engine.profiles[{number}]"
        for name, sides in needed.items():
            if name not in profile:
                message = f"{where}: input {name!r} is missing; it is dynamic: {_described(sides)}"
                problems.append(coded("needs-value", message))
        named: dict[str, tuple[str, tuple[int | None, ...]]] = {}
        for name, ranges in profile.items():
            if name not in inputs:
                message = f"{where}.{name}: no such input; the graph has {', '.join(inputs) or 'none'}"
                problems.append(coded("wrong-name", message))
                continue
            shapes, sides_there = ProfileShapes(**{kind: tuple(ranges[kind]) for kind in KINDS}), inputs[name]
            misfits = [*shapes.problems(None if sides_there is None else 0)]
            if not misfits and sides_there is not None:
                misfits = [*_misfits(name, sides_there, shapes, named)]
            problems += [f"{where}.{name}.{misfit}" for misfit in misfits]
    return problems


def _misfits(
    name: str, sides: Sides, shapes: ProfileShapes, named: dict[str, tuple[str, tuple[int | None, ...]]]
) -> Iterator[str]:
    """Yield an error line for each axis at which numbers do not fit an input.

    Args:
        named: by the name of an axis an input that has it and its numbers there; gets those of this input.
    """
    if len(shapes.opt) != len(sides):
        form = f"{len(sides)} axes as in the graph, {_described(sides)}"
        yield coded("wrong-shape", f"opt: expected {form}, got {list(shapes.opt)}")
        return
    for i, (side, *numbers) in enumerate(zip(sides, shapes.min, shapes.opt, shapes.max, strict=True)):
        asked = tuple(numbers)
        listed = ", ".join(map(str, asked))
        if isinstance(side, int) and {*asked} != {side}:
            remedy = "give that number, or trace the model with this axis dynamic (trace.dynamic_axes)"
            yield coded("axis-fixed", f"opt: axis {i} is fixed at {side}, got {listed}; {remedy}")
        elif isinstance(side, str):
            other, expected = named.setdefault(side, (name, asked))
            if asked != expected:
                wanted = f"the same min, opt and max, {', '.join(map(str, expected))}, got {listed}"
                yield coded("in-conflict", f"opt: axis {i} is named {side!r} like one of {other}: expected {wanted}")


def _inputs(graph: ir.Graph) -> dict[str, Sides | None]:
    """Sides of the inputs by name; None of an unknown rank, and of what may be a shape tensor."""
    inputs: dict[str, Sides | None] = {}
    for value in graph.inputs:
        if value.name in graph.initializers:
            continue
        sizes = None if value.shape is None else [side if isinstance(side, int) else side.value for side in value.shape]
        sides = None if sizes is None else [None if isinstance(size, int) and size < 0 else size for size in sizes]
        is_integer = value.dtype is not None and value.dtype.name in ("INT32", "INT64")
        may_be_shape = is_integer and sides is not None and len(sides) <= 1 and _is_fixed(sides)
        inputs[str(value.name)] = None if may_be_shape else sides
    return inputs


def _is_fixed(sides: Sides) -> bool:
    return all(isinstance(side, int) for side in sides)


def _described(sides: Sides) -> str:
    return f"[{', '.join('?' if side is None else str(side) for side in sides)}]"
