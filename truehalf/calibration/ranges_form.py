"""Content of ranges.json; truehalf.calibration.calibrate says how it is measured."""

from __future__ import annotations

from typing import TypedDict


class SmallEntry(TypedDict):
    """Shares of the nonzero finite elements with |x| <= 2^-25 and < 2^-14; the sample with the most of the first."""

    zero: float
    subnormal: float
    sample: str | None


class TensorEntry(TypedDict):
    """Of one tensor over all samples.

    min, max and absmax are over finite elements, and None, with `sample`, when there is none; `sample` holds the
    absmax; a share in `above` is (finite elements with |x| > rung) / elements. `integral`: whether all finite elements
    are integers, where absmax > 2048, else None.
    """

    min: float | None
    max: float | None
    absmax: float | None
    sample: str | None
    elements: int
    nan: int
    posinf: int
    neginf: int
    above: dict[str, float]
    integral: bool | None
    small: SmallEntry | None


class InnerEntry(TypedDict):
    """The largest sum ("sum") or mean square ("mean_square") inside a node, and its sample."""

    quantity: str
    value: float
    sample: str


class RoundingStep(TypedDict):
    """The error that is left when some nodes stay in float32."""

    error: float
    nodes: list[str]


class RoundingEntry(TypedDict):
    """Error of a node's output when it and its neighbourhood are computed in float16, and with more and more of them in
    float32 (truehalf.calibration.replays); `kind`: "phases", "cancellation", "underflow" or "inner".
    """

    kind: str
    error: float
    sample: str
    steps: list[RoundingStep]


class RangesFile(TypedDict):
    """`tensors` by name; `inner` by node: where extremes do not suffice to prove that a sum stays within 8192;
    `rounding` by node: where the error in float16 exceeds 2^-7.
    """

    samples: int
    ladder: list[float]
    warnings: list[str]
    tensors: dict[str, TensorEntry]
    inner: dict[str, InnerEntry]
    rounding: dict[str, RoundingEntry]
