"""Inputs moved by half a step of what they are made of: a change that nobody calls one.

    images     4 axes, 1, 3 or 4 channels: half of the step between two values of a pixel, 1/255 of their range; a
               uint8 pixel goes up or down by 1 in one of four places, which is as far in the root mean square
    audio      multiples of 2^-15, as 16 bits hold them: 2^-16
    tokens     integers, bools, and floats that are all whole: not moved
    others     half a unit in the last place of float16

Each value goes up or down by its half step, as a seed decides.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from truehalf.io_spec.spec import InputSpec, IoSpec

Arrays = Mapping[str, np.ndarray]
DRAWS = 2  # of the directions; their responses are taken together
PIXEL, AUDIO, FLOAT16 = "a pixel", "16-bit audio", "float16"
_AXES, _CHANNELS = 4, (1, 3, 4)
_LEVELS = 256  # of a pixel
_FEWEST_LEVELS = 16  # that show the step between them
_SEEN = 2**16  # values of a channel that are looked at for their step


@dataclass(frozen=True)
class Response:
    """Response of a reference, or of one output of it, to half a step of its inputs; computed when it is asked for.

    Attributes:
        of: names what the step is of, as "a pixel"; empty where no input can be moved.
        draws: of a reference: (outputs, outputs on moved inputs) by draw and run; of an output: the reference's arrays
            on moved inputs by draw and run, in the shapes of the reference's. Empty where there is no response.
    """

    of: Callable[[], str] = str
    draws: Callable[[], Sequence[Sequence[Any]]] = tuple


def moved(feed: Arrays, spec: IoSpec, seed: Sequence[int]) -> dict[str, np.ndarray]:
    """Move a feed by half a step; arrays by input name, without those that are not moved.

    Args:
        feed: arrays by input name, axis 0 counts samples or not.
        spec: whose inputs may declare the range of pixels.
        seed: of the directions.
    """
    random = np.random.default_rng(seed)
    declared = {entry.name: entry for entry in spec.inputs}
    found = {}
    for name, values in feed.items():
        up = random.integers(0, 2, values.shape, dtype=np.int8)
        made_of = unit(values)
        if values.dtype == np.uint8 and made_of:
            step = np.where(random.integers(0, 4, values.shape) == 0, 2 * up.astype(np.int16) - 1, 0)
            found[name] = np.clip(values + step, 0, 255).astype(np.uint8)
        elif made_of:
            half = _half_step(values, made_of, declared.get(name))
            found[name] = np.where(up, values + half, values - half).astype(values.dtype)
    return found


def unit(values: np.ndarray) -> str:
    """Name a step of an input: of "a pixel", "16-bit audio" or "float16"; empty where it is not moved."""
    if values.ndim == _AXES and _channel_axis(values) is not None and values.dtype.kind in "fu":
        return PIXEL
    if values.dtype.kind != "f" or (np.rint(values) == values).all():
        return ""
    sound = np.abs(values).max(initial=0.0) <= 1 and (np.rint(values * 2.0**15) == values * 2.0**15).all()
    return AUDIO if sound else FLOAT16


def _channel_axis(values: np.ndarray) -> int | None:
    return next((axis for axis in (1, 3) if values.shape[axis] in _CHANNELS), None)


def _half_step(values: np.ndarray, made_of: str, declared: InputSpec | None) -> np.ndarray:
    """Half a step of each value, broadcast over it."""
    if made_of == AUDIO:
        return np.asarray(2.0**-16, np.float32)
    if made_of == FLOAT16:
        with np.errstate(over="ignore", invalid="ignore"):
            last_place = np.abs(np.spacing(values.astype(np.float16)).astype(np.float32))
        return np.nan_to_num(last_place, nan=0.0, posinf=0.0) / 2
    axis = _channel_axis(values)
    assert axis is not None, "an image"
    channels = np.moveaxis(values, axis, 0)
    steps = _declared_steps(declared, len(channels)) or [_step_between(channel) for channel in channels]
    return np.array(steps, np.float32).reshape([-1 if i == axis else 1 for i in range(values.ndim)]) / 2


def _declared_steps(declared: InputSpec | None, channels: int) -> list[float] | None:
    """Step between two values of a pixel in each channel, as preprocessing makes it; None where it is not declared."""
    if declared is None or not declared.range:
        return None
    step = (declared.range[-1] - declared.range[0]) / (_LEVELS - 1)
    outside = declared.normalization if not declared.is_normalized_inside else None
    std = (outside.std if outside is not None else None) or (1.0,) * channels
    return [step / each for each in std] if len(std) == channels else None


def _step_between(channel: np.ndarray) -> float:
    """Step between two values of a channel: of the grid that they lie on, else 1/255 of their range."""
    values = channel.ravel()
    levels = np.unique(values[:: max(1, values.size // _SEEN)]).astype(np.float64)
    levels = levels[np.isfinite(levels)]
    if len(levels) < 2:
        return 0.0
    spread = levels[-1] - levels[0]
    between = np.diff(levels)
    smallest = between[between > 1e-6 * spread].min()
    whole = np.abs(between / smallest - np.rint(between / smallest)).max() < 0.02
    if whole and _FEWEST_LEVELS <= len(levels) <= _LEVELS:
        return float(smallest)
    return float(spread / (_LEVELS - 1))
