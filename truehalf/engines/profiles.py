"""Optimization profiles checked against the graph: every problem at once, before anything is built.

For an input with the axes d, a profile's numbers l, o, h (min, opt, max) hold when

    len(l) = len(o) = len(h) = len(d);   0 <= l[i] <= o[i] <= h[i];   d[i] fixed -> l[i] = o[i] = h[i] = d[i]

and two inputs whose axes have one name get the same numbers there. The numbers of a shape tensor (an integer input of
rank 0 or 1 whose values become shapes) are its values: as many as it has elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from truehalf.codes import coded
from truehalf.config.engine import KINDS, ProfileShapes
from truehalf.ir.ops import Trait, has, row_of
from truehalf.runtime.tensorrt.versions import Profile

if TYPE_CHECKING:
    import onnx_ir as ir

_INTEGERS = ("INT32", "INT64")
_ARITHMETIC = Trait.ON_SIZES | Trait.STAYS_A_SIZE  # through which a shape is computed from shapes


def shape_inputs(graph: ir.Graph) -> set[str]:
    """Names of the inputs whose values become shapes, as the graph shows it; TensorRT's parser has the last word."""
    return {str(value.name) for value in _inputs(graph) if _may_be_shape(value) and _reaches_a_shape(value)}


def profiled_inputs(graph: ir.Graph) -> list[str]:
    """Names of the inputs that a profile must give: those with a dynamic axis, and those whose values become shapes."""
    shapes = shape_inputs(graph)
    return [str(value.name) for value in _inputs(graph) if value.name in shapes or _dynamic(value)]


def check_profiles(graph: ir.Graph, profiles: Sequence[Profile]) -> list[str]:
    """Every way in which the profiles do not fit the graph; empty when they do.

    Args:
        graph: with its inputs' shapes; an axis without a number is dynamic.
        profiles: [{input: {"min": numbers, "opt": numbers, "max": numbers}}].
    """
    inputs = {str(value.name): value for value in _inputs(graph)}
    shapes = shape_inputs(graph)
    needed = profiled_inputs(graph)
    problems = []
    if needed and not profiles:
        message = f"engine.profiles: expected at least one; {_listed(needed)} need min, opt and max"
        problems.append(coded("needs-value", message))
    for number, profile in enumerate(profiles):
        where = f"engine.profiles[{number}]"
        for name in needed:
            if name not in profile:
                kind = "a shape tensor, whose values it must give" if name in shapes else "dynamic"
                message = f"{where}: input {name!r} is missing; it is {kind}: {_described(inputs[name])}"
                problems.append(coded("needs-value", message))
        for name, numbers in profile.items():
            if name not in inputs:
                message = f"{where}.{name}: no such input; the graph has {_listed(list(inputs))}"
                problems.append(coded("wrong-name", message))
            else:
                problems += _check_numbers(f"{where}.{name}", inputs[name], numbers, name in shapes)
        problems += _check_names(where, inputs, profile, shapes)
    return problems


def _inputs(graph: ir.Graph) -> list[ir.Value]:
    return [value for value in graph.inputs if value.name not in graph.initializers]


def _axes(value: ir.Value) -> list[int | str | None] | None:
    """Numbers, names, or None where an axis has neither; None when the rank is not known."""
    if value.shape is None:
        return None
    axes: list[int | str | None] = []
    for axis in value.shape:
        size = axis if isinstance(axis, int) else axis.value
        axes.append(size if not isinstance(size, int) or size >= 0 else None)
    return axes


def _dynamic(value: ir.Value) -> bool:
    axes = _axes(value)
    return axes is None or not all(isinstance(axis, int) for axis in axes)


def _described(value: ir.Value) -> str:
    axes = _axes(value)
    return "of unknown rank" if axes is None else f"[{', '.join('?' if axis is None else str(axis) for axis in axes)}]"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(names) or "none"


def _may_be_shape(value: ir.Value) -> bool:
    """Of at most one axis, whose size TensorRT wants to know: one of a size that varies is data to it."""
    axes = _axes(value)
    is_integer = value.dtype is not None and value.dtype.name in _INTEGERS
    return is_integer and axes is not None and len(axes) <= 1 and not _dynamic(value)


def _reaches_a_shape(value: ir.Value) -> bool:
    from truehalf.ir.facts import reached

    def computed(value: ir.Value) -> list[ir.Value]:
        return [output for node in value.consumers() if has(node, _ARITHMETIC) for output in node.outputs]

    uses = (use for each in reached([value], computed) for use in each.uses())
    slots = ((row_of(node).sizes, index) for node, index in uses)
    return any(sizes is None or index in sizes for sizes, index in slots)


def _check_numbers(where: str, value: ir.Value, numbers: Any, is_shape: bool) -> Iterator[str]:
    if not isinstance(numbers, Mapping) or set(numbers) != set(KINDS):
        got = _listed(sorted(map(str, numbers))) if isinstance(numbers, Mapping) else repr(numbers)
        yield coded("wrong-type", f"{where}: expected min, opt and max, got {got}")
        return
    wrong = {kind: given for kind, given in numbers.items() if not _are_integers(given)}
    for kind, given in wrong.items():
        yield coded("wrong-type", f"{where}.{kind}: expected a list of integers, got {given!r}")
    if wrong:
        return
    axes = _axes(value)
    if is_shape and axes is not None:  # of at most one axis, whose size is known
        axes = [None] * (int(axes[0] or 0) if axes else 1)
    misfits = [kind for kind in KINDS if axes is not None and len(numbers[kind]) != len(axes)]
    for kind in misfits:
        form = f"{len(axes or ())} {'values' if is_shape else 'axes'} as in the graph, {_described(value)}"
        yield coded("wrong-shape", f"{where}.{kind}: expected {form}, got {numbers[kind]}")
    if misfits:
        return
    lowest = None if is_shape else 0
    yield from (f"{where}.{problem}" for problem in ProfileShapes(**numbers).problems(lowest))
    for i, axis in enumerate(axes or ()):
        sides = [numbers[kind][i] for kind in KINDS]
        if isinstance(axis, int) and {*sides} != {axis}:
            remedy = "give that number, or trace the model with this axis dynamic (trace.dynamic_axes)"
            listed = ", ".join(map(str, sides))
            yield coded("axis-fixed", f"{where}: axis {i} is fixed at {axis}, got {listed}; {remedy}")


def _are_integers(given: object) -> bool:
    return isinstance(given, Sequence) and all(type(each) is int for each in given)


def _check_names(where: str, inputs: Mapping[str, ir.Value], profile: Profile, shapes: set[str]) -> Iterator[str]:
    """One name of an axis is one number, in every input that has it."""
    first: dict[str, tuple[str, tuple[int, ...]]] = {}
    for name, numbers in profile.items():
        axes = _axes(inputs[name]) if name in inputs and name not in shapes else None
        for i, axis in enumerate(axes or []):
            try:
                given = tuple(numbers[kind][i] for kind in KINDS)
            except (LookupError, TypeError):
                continue  # reported by _check_numbers
            if not isinstance(axis, str):
                continue
            other, expected = first.setdefault(axis, (name, given))
            if given != expected:
                yield coded(
                    "in-conflict",
                    f"{where}.{name}: axis {i} is named {axis!r} like one of {other}: expected the same min, opt and "
                    f"max, {', '.join(map(str, expected))}, got {', '.join(map(str, given))}",
                )
