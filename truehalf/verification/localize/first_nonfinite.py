"""Localization of the nodes where NaN and Inf arise in emulated runs.

A NaN may vanish on its way to the outputs: MaxPool and ReduceMax of the CPU provider pass over it, and GPUs do so in
other places (a Relu as max(x, 0)). `first_nonfinite` looks at every tensor, so it sees NaN and Inf where they arise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import onnx_ir as ir

from truehalf.calibration.instrument import main_values
from truehalf.calibration.nonfinite import nonfinite_constants, nonfinite_tensors, origins
from truehalf.calibration.ranges import Counter, Scanner, float_tensors
from truehalf.calibration.tensor_facts import TensorFacts
from truehalf.emulation.emulate import before_rounding, emulate
from truehalf.emulation.pessimistic import split_sums
from truehalf.emulation.sessions import widened
from truehalf.errors import StageError
from truehalf.ir.model_forms import loaded_from


@dataclass(frozen=True)
class Nonfinite:
    """A tensor that holds NaN or Inf although everything its node reads is finite.

    Attributes:
        node, op_type: the producer; op_type is "Input" or "Initializer" and node empty where there is none.
        tensor: its output.
        nan, posinf, neginf: numbers of elements.
        inputs_absmax: largest |x| that the node reads; None when it reads no float.
        unrounded_absmax: largest finite |x| of the output before it was rounded to FP16 (above 65504: an overflow);
            None when it is not rounded, or nothing in it is finite.
        reference_finite: whether the tensor of this name (for a Cast: of its source's) is finite in the FP32 graph;
            None when there is none.
        reaches_output: whether an output of the graph is not finite because of it. A mask of -Inf does not reach one.
        inside: of pessimistic runs: the numbers are those of a partial sum inside the node, of which `tensor` comes.
    """

    node: str
    op_type: str
    tensor: str
    nan: int
    posinf: int
    neginf: int
    inputs_absmax: float | None
    unrounded_absmax: float | None
    reference_finite: bool | None
    reaches_output: bool
    inside: bool = False


def first_nonfinite(
    model: Path | str | ir.Model,
    feeds: Mapping[str, np.ndarray] | Sequence[Mapping[str, np.ndarray]],
    reference: Path | str | ir.Model | None = None,
    *,
    pessimistic: bool = False,
) -> list[Nonfinite]:
    """Where NaN and Inf first appear in emulated runs, in graph order; empty when every tensor is finite.

    Args:
        model: the mixed FP32/FP16 model.
        feeds: one batch, or several, each of which is run; counts are of all of them, extremes of those runs in which
            the tensor is the first that is not finite.
        reference: the FP32 model it was made from, with the same tensor names.
        pessimistic: round the sums inside FP16 nodes, too (truehalf.emulation.pessimistic).

    Only tensors of the main graph are looked at: an If, Loop or Scan counts as one node.

    Raises:
        StageError: when a model cannot be loaded, emulated or run.
    """
    whole = loaded_from(model)
    mixed = split_sums(whole) if pessimistic else whole
    emulated = emulate(mixed)
    batches = [feeds] if isinstance(feeds, Mapping) else list(feeds)
    fp16_inputs = [str(value.name) for value in mixed.graph.inputs if value.dtype == ir.DataType.FLOAT16]
    batches = [_rounded(batch, fp16_inputs) for batch in batches]
    looks = _looks(emulated, batches, [name for name in float_tensors(emulated) if name in _names(mixed)])
    if not any(look.nonfinite for look in looks):
        return []
    outputs = [str(value.name) for value in mixed.graph.outputs]
    constants = nonfinite_constants(mixed)
    first: list[set[ir.Value]] = []
    reaching: set[ir.Value] = set()
    for look in looks:
        nonfinite = look.nonfinite | constants if look.nonfinite else set()
        first.append(set(origins(mixed, nonfinite, nonfinite)))
        reaching |= set(origins(mixed, nonfinite, outputs))
    found = [value for value in main_values(mixed).values() if any(value in each for each in first)]
    unrounded = _unrounded_absmax(emulated, found, batches)
    in_reference = _look_at_reference(reference, batches)
    counts = _exact_counts(emulated, batches, (str(value.name) for value in found if value.name in looks[0].absmax))
    result = []
    for value in found:
        origin = _origin(value, whole) if pessimistic else value
        name, node = str(value.name), value.producer()
        count = counts[name] if name in counts else _counts_of_constant(value)
        there = [look for look, each in zip(looks, first, strict=True) if value in each]
        author = origin.producer()
        result.append(
            Nonfinite(
                node=(author.name or "") if author else "",
                op_type=author.op_type if author else "Initializer" if origin.is_initializer() else "Input",
                tensor=str(origin.name),
                nan=count.nan,
                posinf=count.posinf,
                neginf=count.neginf,
                inputs_absmax=_largest(_inputs_absmax(node, look) for look in there),
                unrounded_absmax=unrounded.get(name),
                reference_finite=_finite_in_reference(origin, in_reference),
                reaches_output=value in reaching,
                inside=name != origin.name,
            )
        )
    return _once(result)


def _origin(value: ir.Value, whole: ir.Model) -> ir.Value:
    """The value of the graph before its sums were split that a value was made for: the first on the way down."""
    known = main_values(whole)
    waiting = [value]
    for each in waiting:
        if str(each.name) in known:
            return known[str(each.name)]
        waiting += [output for reader in each.consumers() for output in reader.outputs if output.name]
    raise StageError(
        "wrong-name", f"tensor {value.name!r} of a split sum leads to no tensor of the graph before; expected one"
    )


def _once(found: Iterable[Nonfinite]) -> list[Nonfinite]:
    """One of each tensor, the first; it reaches an output when one of them does."""
    kept: dict[str, Nonfinite] = {}
    for item in found:
        first = kept.setdefault(item.tensor, item)
        kept[item.tensor] = replace(first, reaches_output=first.reaches_output or item.reaches_output)
    return list(kept.values())


@dataclass(frozen=True)
class _Look:
    """Results of one run: largest |x| of every tensor (true where it is finite), and which are not finite."""

    absmax: dict[str, float]
    nonfinite: set[str]


def _looks(model: ir.Model, batches: Sequence[Mapping[str, np.ndarray]], tensors: list[str]) -> list[_Look]:
    scanner = Scanner(model, tensors)
    looks = []
    for feeds in batches:
        scan = scanner.run(feeds)
        nonfinite = nonfinite_tensors(model, feeds, tensors, scan)
        extremes = np.where(scan.elements > 0, np.maximum(np.abs(scan.low), np.abs(scan.high)), 0)
        looks.append(_Look(dict(zip(tensors, map(float, extremes), strict=True)), nonfinite))
    return looks


def _exact_counts(
    model: ir.Model, batches: Sequence[Mapping[str, np.ndarray]], tensors: Iterable[str]
) -> dict[str, TensorFacts]:
    """Over all batches."""
    found = {name: TensorFacts() for name in tensors}
    if found:
        counter = Counter(model, found)
        for number, feeds in enumerate(batches):
            for name, counts in counter.run(feeds).items():
                found[name].add(counts, str(number))
    return found


def _unrounded_absmax(
    emulated: ir.Model, found: Iterable[ir.Value], batches: Sequence[Mapping[str, np.ndarray]]
) -> dict[str, float | None]:
    names = {value.name for value in found}
    sources = {}
    for node in emulated.graph:
        for value in node.outputs:
            source = before_rounding(value)
            if value.name in names and source is not value and source.dtype == ir.DataType.FLOAT:
                sources[str(value.name)] = str(source.name)
    counts = _exact_counts(emulated, batches, sources.values())
    return {name: counts[source].absmax for name, source in sources.items()}


def _look_at_reference(
    reference: Path | str | ir.Model | None, batches: Sequence[Mapping[str, np.ndarray]]
) -> dict[str, bool]:
    """Tensor name -> all finite."""
    if reference is None:
        return {}
    model = loaded_from(reference)
    looks = _looks(model, batches, float_tensors(model))
    return {name: not any(name in look.nonfinite for look in looks) for name in looks[0].absmax}


def _finite_in_reference(value: ir.Value, in_reference: Mapping[str, bool]) -> bool | None:
    node = value.producer()
    names = [value, node.inputs[0]] if node is not None and node.op_type == "Cast" else [value]
    known = [in_reference[str(v.name)] for v in names if v is not None and v.name in in_reference]
    return known[0] if known else None


def _counts_of_constant(value: ir.Value) -> TensorFacts:
    array = _constant(value)
    assert array is not None, f"{value.name} is neither measured nor constant"
    nan, posinf, neginf = (int(where(array).sum()) for where in (np.isnan, np.isposinf, np.isneginf))
    return TensorFacts(nan=nan, posinf=posinf, neginf=neginf)


def _inputs_absmax(node: ir.Node | None, look: _Look) -> float | None:
    return _largest(_absmax(value, look) for value in node.inputs if value is not None) if node else None


def _largest(numbers: Iterable[float | None]) -> float | None:
    return max((number for number in numbers if number is not None), default=None)


def _absmax(value: ir.Value, look: _Look) -> float | None:
    if value.name in look.absmax:
        return look.absmax[value.name]
    constant = _constant(value)
    return None if constant is None or not constant.size else float(np.abs(constant).max())


def _constant(value: ir.Value) -> np.ndarray | None:
    """A constant of a float type as float64."""
    tensor = ir.convenience.get_const_tensor(value)
    return None if tensor is None or not tensor.dtype.is_floating_point() else tensor.numpy().astype(np.float64)


def _names(model: ir.Model) -> set[str | None]:
    return {value.name for value in model.graph.inputs} | {v.name for node in model.graph for v in node.outputs}


def _rounded(feeds: Mapping[str, np.ndarray], rounded: Iterable[str]) -> dict[str, np.ndarray]:
    """float16 arrays as float32; those in `rounded` through float16 first."""
    names = set(rounded)
    with np.errstate(over="ignore"):
        typed = {name: array.astype(np.float16) if name in names else array for name, array in feeds.items()}
    return widened(typed)
