"""Optimization profiles as the I/O spec completes them.

null as a side                   the side that the model fixes
an input that is left out        its varying sides, where other inputs of the profile have sides of the same names
null for all profiles            one for the inputs of the model: 1 to 8 samples, other sides as they were traced
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from truehalf.config.engine import KINDS, ProfileShapes
from truehalf.errors import StageError
from truehalf.io_spec.inputs import traced_shape
from truehalf.io_spec.spec import InputSpec

Profile = dict[str, dict[str, list[int]]]
SAMPLES = {"min": 1, "opt": 1, "max": 8}  # where the number of them varies, and it is not declared how


def completed(profiles: Sequence[Mapping[str, ProfileShapes]] | None, inputs: Sequence[InputSpec]) -> list[Profile]:
    """The profiles of a configuration as numbers.

    Args:
        profiles: of the configuration; None: one that is made for the inputs.
        inputs: `inputs` of the model's I/O spec.

    Returns:
        [{input: {"min": numbers, "opt": numbers, "max": numbers}}].

    Raises:
        StageError: where null stands for a side that varies, a number for one that is fixed at another, or a profile
            names an unknown input.
    """
    if profiles is None:
        return [_made_for(inputs)]
    return [_completed(profile, inputs, f"engine.profiles[{number}]") for number, profile in enumerate(profiles)]


def _made_for(inputs: Sequence[InputSpec]) -> Profile:
    """A profile in which only the number of samples varies, if the model lets it."""
    found: Profile = {}
    samples = inputs[0].sides[0] if inputs and inputs[0].sides else None
    for entry in inputs:
        sides, traced = entry.sides, traced_shape(entry)
        found[entry.name] = {
            kind: [
                number if isinstance(side, str) and (axis == 0 or side == samples) else known
                for axis, (side, known) in enumerate(zip(sides, traced, strict=True))
            ]
            for kind, number in SAMPLES.items()
        }
    return found


def _completed(profile: Mapping[str, ProfileShapes], inputs: Sequence[InputSpec], where: str) -> Profile:
    sides_of = {entry.name: entry.sides for entry in inputs}
    if unknown := [name for name in profile if name not in sides_of]:
        known = ", ".join(sides_of)
        raise StageError("wrong-name", f"{where}: the model has no input {', '.join(unknown)}; it has {known}")
    found: Profile = {}
    by_name: dict[str, dict[str, int]] = {}  # lengths of the sides that have a name
    for name, shapes in profile.items():
        sides = sides_of[name]
        found[name] = {kind: _numbers(getattr(shapes, kind), sides, f"{where}.{name}") for kind in KINDS}
        for axis, side in enumerate(sides[: len(shapes.opt)]):
            if isinstance(side, str):
                by_name.setdefault(side, {kind: found[name][kind][axis] for kind in KINDS})
    for name, sides in sides_of.items():
        named = [side for side in sides if isinstance(side, str)]
        if name not in found and named and by_name.keys() >= {*named}:
            found[name] = {kind: [by_name[e][kind] if isinstance(e, str) else e for e in sides] for kind in KINDS}
    return found


def _numbers(given: Sequence[int | None], sides: Sequence[int | str], where: str) -> list[int]:
    numbers = []
    for axis, number in enumerate(given):
        side = sides[axis] if axis < len(sides) else "not known"
        fixed = side if isinstance(side, int) else number
        if fixed is None:
            raise StageError("needs-value", f"{where}: axis {axis} varies ({side}); expected a number, got null")
        if number not in (None, fixed):
            raise StageError("axis-fixed", f"{where}: axis {axis} is fixed at {side}, got {number}; give that number")
        numbers.append(fixed)
    return numbers


def named_shape(text: str, where: str) -> tuple[str, list[int]]:
    """NAME:1x3x640x640 as name and shape.

    Raises:
        StageError: where it is none.
    """
    name, _, sides = text.rpartition(":")
    if not name or not re.fullmatch(r"\d+(x\d+)*", sides):
        raise StageError("bad-syntax", f"{where}: expected NAME:1x3x640x640, got {text!r}")
    return name, [int(side) for side in sides.split("x")]
