"""Ranges of a calibration: as rules read them, and as ranges.json has them.

What a file that somebody wrote leaves out is at its default.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, TypeAlias, TypeVar

from truehalf.errors import StageError, refuse, typed_line
from truehalf.files import read_json
from truehalf.json_values import JsonObject

RangesJson: TypeAlias = Mapping[str, Any]  # content of a ranges.json, as truehalf.calibration.calibrate gives it
_LISTED_PROBLEMS = 20
_Entry = TypeVar("_Entry")


@dataclass(frozen=True)
class TensorRange:
    """What was measured of a tensor over all samples.

    Attributes:
        min, max, absmax: smallest and largest x, largest |x| in the samples without NaN and Inf; None: not known.
        sample: calibration sample that `absmax` comes from; of a tensor that never was finite the first one.
        elements: how many were looked at.
        nonfinite: in how many samples it held NaN or Inf.
    """

    min: float | None = None
    max: float | None = None
    absmax: float | None = None
    sample: str | None = None
    elements: int = 0
    nonfinite: int = 0

    def to_json(self) -> JsonObject:
        return asdict(self)


@dataclass(frozen=True)
class InnerSum:
    """The largest sum ("sum"), mean square ("mean_square") or logit ("logit") inside a node."""

    quantity: str
    value: float | None
    sample: str | None


@dataclass(frozen=True)
class Ranges:
    """What calibration has measured.

    Attributes:
        tensors: by name.
        inner: by name of the node.
        warnings: of the calibration, one line each.
        content: the file as it stands, for rules of the user's.
    """

    tensors: Mapping[str, TensorRange]
    inner: Mapping[str, InnerSum] = field(default_factory=dict)
    warnings: tuple[str, ...] = ()
    content: RangesJson = field(default_factory=lambda: {"tensors": {}})

    def sizes(self) -> dict[str, float]:
        """Elements of each tensor in a run, on the mean of the samples; of tensors that had some."""
        samples = self.content.get("samples") or 1
        return {name: entry.elements / samples for name, entry in self.tensors.items() if entry.elements}


def read_ranges(ranges: RangesJson | Path | str | None) -> Ranges | None:
    """The content of a ranges.json, from its path or as it is.

    Raises:
        StageError: naming every entry that is none, or that holds something else than numbers.
    """
    content = read_json(Path(ranges)) if isinstance(ranges, (str, Path)) else ranges
    if content is None:
        return None
    if not (isinstance(content, Mapping) and isinstance(content.get("tensors"), Mapping)):
        raise StageError(
            "wrong-file", 'ranges: expected {"tensors": {name: {"absmax": ...}}}, as `truehalf calibrate` writes it'
        )
    problems: list[str] = []
    tensors = _entries(content, "tensors", _range, problems)
    inner = _entries(content, "inner", _inner, problems)
    refuse("file-unreadable", "ranges: expected the JSON of `truehalf calibrate`, got", problems, _LISTED_PROBLEMS)
    return Ranges(tensors, inner, tuple(content.get("warnings") or ()), content)


def _entries(content: RangesJson, key: str, read: Callable[[Any], _Entry], problems: list[str]) -> dict[str, _Entry]:
    """Read each entry by `read`, and add a line to `problems` for each that it cannot read."""
    found = {}
    for name, entry in (content.get(key) or {}).items():
        try:
            found[name] = read(entry)
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
            problems.append(f"{key}: {name!r}: {typed_line(error)}, in {entry!r}")
    return found


def _range(entry: Mapping[str, Any]) -> TensorRange:
    low, high = _number(entry, "min"), _number(entry, "max")
    if low is not None and high is not None and low > high:
        raise ValueError(f"min: expected at most max, {high}, got {low}")
    counts = {key: int(_number(entry, key, 0) or 0) for key in ("elements", "nonfinite")}
    return TensorRange(
        absmax=_number({"absmax": entry["absmax"]}, "absmax", 0),
        min=low,
        max=high,
        sample=entry.get("sample"),
        **counts,
    )


def _inner(entry: Mapping[str, Any]) -> InnerSum:
    value = _number({"value": entry["value"]}, "value", 0)
    return InnerSum(str(entry.get("quantity", "sum")), value, entry.get("sample"))


def _number(entry: Mapping[str, Any], key: str, least: float | None = None) -> float | None:
    """A finite number of an entry; None for null, and for what is not finite."""
    import numpy as np

    value = entry.get(key)
    if isinstance(value, bool) or not isinstance(value, (int, float, np.number, type(None))):
        raise TypeError(f"{key}: expected a number or null, got {value!r}")
    if least is not None and value is not None and not least <= value:
        raise ValueError(f"{key}: expected a number, {least} or more, or null, got {value}")
    return float(value) if value is not None and math.isfinite(value) else None
