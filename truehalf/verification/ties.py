"""Near ties in outputs that hold indices: what an ArgMax, ArgMin or TopK of the reference chose among, and whether
another choice is as good within the margin that FP16's rounding explains.

    explained    |x[o] - x[r]| <= margin * spread of x        x: the values that the reference chose from, or those
                                                              that a function which keeps their order made them of
                                                              r, o: the indices that the two files chose
                                                              spread: the largest along the axis, see spread_along
    TopK         so place by place, and no index is there twice

Softmax and Sigmoid make a step of the logits as large as they like beside the spread of what they put out, or nothing
where they are flat: rounding explains either.

Only the outputs that differ are looked at: the reference then runs once more, with x as its output.

Where an index goes on to other nodes, the reference takes the candidate's instead of its own wherever a tie explains
it, and what follows is computed anew: an FP32 run that chose otherwise among equals.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from truehalf.errors import StageError
from truehalf.verification.metrics.scales import spread_along
from truehalf.verification.runs import Arrays, Run

if TYPE_CHECKING:
    import onnx_ir as ir


_OF_ONE_AXIS = 13  # the opset from which Softmax is


@dataclass(frozen=True)
class Choice:
    """What an output of indices was chosen from.

    Attributes:
        values: names of tensors inside the reference, of one number of values in one order: what was chosen from, and
            before it what a function that keeps their order made it of.
        axis: of the first, along which it was chosen.
        many: whether there are several of each (TopK).
        is_least: whether the least was chosen.
    """

    values: tuple[str, ...]
    axis: int
    many: bool
    is_least: bool = False


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
        if node is not None and node.outputs[row_of(node).choice or 0] is value and (choice := _choice(node)):
            found[str(output.name)] = choice
    return found


def choices_inside(model: ir.Model, other: ir.Model) -> dict[str, Choice]:
    """By index that an ArgMax, ArgMin or TopK of floats gives to other nodes of the main graph, in their order; where
    another model has one by this name.
    """
    from truehalf.ir.ops import row_of

    found: dict[str, Choice] = {}
    theirs = {value.name for node in other.graph for value in node.outputs}
    for node in model.graph:
        index = node.outputs[row_of(node).choice or 0] if node.outputs else None
        if index is not None and index.name and index.name in theirs and index.uses() and (choice := _choice(node)):
            found[index.name] = choice
    return found


def _choice(node: ir.Node) -> Choice | None:
    from truehalf.ir.facts import is_op

    source, many = node.inputs[0] if node.inputs else None, node.op_type == "TopK"
    if not is_op(node, "ArgMax", "ArgMin", "TopK") or source is None or not source.name:
        return None
    axis = node.attributes.get_int("axis", -1 if many else 0)
    is_least = node.op_type == "ArgMin" or (many and not node.attributes.get_int("largest", 1))
    return Choice(tuple(_in_order(source, axis)), axis, many, is_least)


def _in_order(value: ir.Value | None, axis: int) -> Iterator[str]:
    """Names of a value and of those that it is made of, each by a function that keeps their order along the axis."""
    from truehalf.ir.facts import is_op
    from truehalf.ir.ops import Trait, has

    same_axes = True
    while value is not None and value.name:
        yield value.name
        node = value.producer()
        if node is None or not node.inputs:
            return
        is_view = has(node, Trait.VIEW)
        keeps = is_view or has(node, Trait.RISES) or (is_op(node, "Cast") and _is_float(node.inputs[0]))
        if not keeps and not (same_axes and is_op(node, "Softmax", "LogSoftmax") and _is_along(node, axis)):
            return
        same_axes = same_axes and (not is_view or is_op(node, "Identity"))
        value = node.inputs[0]


def _is_float(value: ir.Value | None) -> bool:
    return value is not None and value.dtype is not None and value.dtype.is_floating_point()


def _is_along(node: ir.Node, axis: int) -> bool:
    """Whether a (Log)Softmax is of one axis, this one; before opset 13 it is of all from its own on."""
    value = node.inputs[0]
    rank = None if value is None or value.shape is None else len(value.shape)
    version = node.version or (node.graph.opset_imports.get("", 0) if node.graph is not None else 0)
    its_own = node.attributes.get_int("axis", -1 if version >= _OF_ONE_AXIS else 1)
    if rank is not None:
        its_own, axis = its_own % rank, axis % rank
    return its_own == axis and (version >= _OF_ONE_AXIS or its_own + 1 == rank)


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
    wanted = list(dict.fromkeys(source for name in names for source in choices[name].values))
    inside = [values_of(run, wanted) for run in runs]
    settled, counts = list(runs), {}
    for name in names:
        explained = _explained_in(runs, name, choices[name], inside, margin)
        counts[name] = sum(int(each.sum()) for each in explained)
        for i, each in enumerate(explained):
            o = np.asarray(settled[i].candidate[name])
            candidate = {**settled[i].candidate, name: np.where(each, runs[i].reference[name], o).astype(o.dtype)}
            settled[i] = replace(settled[i], candidate=candidate)
    return settled, {name: count for name, count in counts.items() if count}


def with_ties_inside(
    run: Run,
    choices: dict[str, Choice],
    margin: float,
    theirs: Callable[[Sequence[str]], Arrays],
    values_of: Callable[[Sequence[str], Arrays], Arrays],
) -> tuple[Run, dict[str, int]]:
    """A run whose reference has the candidate's indices inside wherever a near tie explains another one; as it is where
    a file does not run with its indices as outputs.

    Args:
        choices: of the reference, see `choices_inside`.
        margin: see `without_ties`.
        theirs: the candidate's indices by name.
        values_of: tensors of the reference by name, where it takes given indices for its own.

    Returns:
        the run, and by index how many a near tie explains, where there are any.
    """
    given: dict[str, np.ndarray] = {}
    counts: dict[str, int] = {}
    try:
        chosen = theirs(list(choices)) if choices else {}
        for name, choice in choices.items():
            inside = values_of([name, *choice.values], given)
            beside = replace(run, reference={name: inside[name]}, candidate={name: chosen[name]})
            (explained,) = _explained_in([beside], name, choice, [inside], margin)
            if explained.any():
                counts[name], given[name] = int(explained.sum()), np.where(explained, chosen[name], inside[name])
        return (replace(run, reference=values_of(list(run.reference), given)) if given else run), counts
    except StageError:
        return run, {}


def _explained_in(
    runs: Sequence[Run], name: str, choice: Choice, inside: Sequence[Arrays], margin: float
) -> list[np.ndarray]:
    """Of each run bool of the shape of its output: another index, which a near tie explains."""
    explained = [np.zeros(np.shape(run.reference[name]), bool) for run in runs]
    for source in choice.values:
        values = [np.asarray(each[source], np.float64).reshape(each[choice.values[0]].shape) for each in inside]
        values = [-each for each in values] if choice.is_least else values
        most = margin * max(float(spread_along(each, choice.axis).max(initial=0.0)) for each in values)
        for run, x, found in zip(runs, values, explained, strict=True):
            if _differs(run, name):
                found |= _explained(x, choice, np.asarray(run.reference[name]), run.candidate[name], most)
    return explained


def _differs(run: Run, name: str) -> bool:
    r, o = run.reference[name], run.candidate.get(name)
    return o is not None and np.shape(r) == np.shape(o) and not np.array_equal(r, o)


def _explained(values: np.ndarray, choice: Choice, r: np.ndarray, o: np.ndarray, most: float) -> np.ndarray:
    """bool of the shape of `r`: another index, of a value as good as the reference's."""
    x = np.moveaxis(values, choice.axis, -1)
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
