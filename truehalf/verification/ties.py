"""Near ties in outputs that hold indices: what an ArgMax, ArgMin or TopK of the reference chose among, and whether
another choice is as good within the margin that FP16's rounding explains.

    explained    |x[o] - x[r]| <= margin * spread of x        x: the values that the reference chose from
                                                              r, o: the indices that the two files chose
                                                              spread: the largest max - min along the axis
    TopK         so place by place, and no index is there twice

Only the outputs that differ are looked at: the reference then runs once more, with x as its output.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from truehalf.verification.runs import Arrays, Run

if TYPE_CHECKING:
    import onnx_ir as ir


@dataclass(frozen=True)
class Choice:
    """What an output of indices was chosen from.

    Attributes:
        values: name of the tensor inside the reference.
        axis: along which it was chosen.
        many: whether there are several of each (TopK).
    """

    values: str
    axis: int
    many: bool


def choices_of(model: ir.Model) -> dict[str, Choice]:
    """By output of the main graph that an ArgMax, ArgMin or TopK of floats gives, but for its shape and type."""
    from truehalf.ir.facts import is_op
    from truehalf.ir.ops import Trait, has, row_of

    found = {}
    for output in model.graph.outputs:
        value: ir.Value | None = output
        node = output.producer()
        while node is not None and (has(node, Trait.VIEW) or is_op(node, "Cast")) and node.inputs:
            value = node.inputs[0]
            node = value.producer() if value is not None else None
        choice = row_of(node).choice
        if node is None or not is_op(node, "ArgMax", "ArgMin", "TopK") or node.outputs[choice or 0] is not value:
            continue
        source, many = node.inputs[0], node.op_type == "TopK"
        if source is not None and source.name:
            axis = node.attributes.get_int("axis", -1 if many else 0)
            found[str(output.name)] = Choice(source.name, axis, many)
    return found


def without_ties(
    runs: Sequence[Run],
    choices: dict[str, Choice],
    margin: float,
    values_of: Callable[[Run, Sequence[str]], Arrays],
) -> tuple[list[Run], dict[str, int]]:
    """Runs in which the candidate has the reference's index wherever a near tie explains another one.

    Args:
        choices: of the reference, see `choices_of`.
        margin: 0 or more, a share of the spread of what was chosen from.
        values_of: tensors of the reference by name, of a run.

    Returns:
        the runs, and by output how many indices a near tie explains, where there are any.
    """
    names = [name for name in choices if any(_differs(run, name) for run in runs)]
    if not names:
        return list(runs), {}
    settled, counts = [], dict.fromkeys(names, 0)
    inside = [values_of(run, list(dict.fromkeys(choices[name].values for name in names))) for run in runs]
    spreads = {name: max(_spread(each[choices[name].values], choices[name].axis) for each in inside) for name in names}
    for run, values in zip(runs, inside, strict=True):
        candidate = dict(run.candidate)
        for name in filter(lambda name: _differs(run, name), names):
            choice, r = choices[name], np.asarray(run.reference[name])
            explained = _explained(values[choice.values], choice, r, candidate[name], margin * spreads[name])
            counts[name] += int(explained.sum())
            candidate[name] = np.where(explained, r, candidate[name]).astype(candidate[name].dtype)
        settled.append(replace(run, candidate=candidate))
    return settled, {name: count for name, count in counts.items() if count}


def _differs(run: Run, name: str) -> bool:
    r, o = run.reference[name], run.candidate.get(name)
    return o is not None and np.shape(r) == np.shape(o) and not np.array_equal(r, o)


def _spread(values: np.ndarray, axis: int) -> float:
    finite = np.isfinite(values)
    if not finite.any():
        return 0.0
    wide = values.astype(np.float64)
    low, high = np.where(finite, wide, np.inf).min(axis=axis), np.where(finite, wide, -np.inf).max(axis=axis)
    return float(np.where(high >= low, high - low, 0.0).max(initial=0.0))


def _explained(values: np.ndarray, choice: Choice, r: np.ndarray, o: np.ndarray, most: float) -> np.ndarray:
    """bool of the shape of `r`: another index, of a value as good as the reference's."""
    x = np.moveaxis(np.asarray(values, np.float64), choice.axis, -1)
    places = x.shape[:-1]
    count = r.size // max(int(np.prod(places)), 1)
    if r.size != count * int(np.prod(places)) or x.shape[-1] == 0:
        return np.zeros(r.shape, bool)
    back = (*values.shape[: choice.axis % values.ndim], count, *values.shape[choice.axis % values.ndim + 1 :])
    chosen = [np.moveaxis(np.asarray(each, np.float64).reshape(back), choice.axis, -1) for each in (r, o)]
    valid = [(each == np.rint(each)) & (each >= 0) & (each < x.shape[-1]) for each in chosen]
    indices = [np.where(ok, each, 0).astype(np.int64) for each, ok in zip(chosen, valid, strict=True)]
    a, b = (np.take_along_axis(x, each, -1) for each in indices)
    with np.errstate(invalid="ignore"):
        explained = valid[0] & valid[1] & (indices[0] != indices[1]) & (np.abs(a - b) <= most)
    if choice.many:
        ordered = np.sort(indices[1], axis=-1)
        explained &= (ordered[..., 1:] != ordered[..., :-1]).all(axis=-1, keepdims=True)
    return np.asarray(np.moveaxis(explained, -1, choice.axis).reshape(r.shape))
