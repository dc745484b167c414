"""Where NaN and Inf arise in an emulated run.

A NaN may vanish on its way to the outputs: MaxPool and ReduceMax of the CPU provider pass over it, and GPUs do so in
other places (a Relu as max(x, 0)). `first_nonfinite` looks at every tensor, so it sees NaN and Inf where they arise.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import onnx_ir as ir

from stages.graph.emulate import before_rounding, emulate
from stages.onnx_files import load_model
from stages.ort.nonfinite import nonfinite_constants, nonfinite_tensors, origins
from stages.ort.ranges import Counter, Counts, Scanner, float_tensors


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


def first_nonfinite(
    model: Path | str | ir.Model,
    feeds: Mapping[str, np.ndarray],
    reference: Path | str | ir.Model | None = None,
) -> list[Nonfinite]:
    """Where NaN and Inf first appear in one emulated run, in graph order; empty when every tensor is finite.

    Args:
        model: the mixed FP32/FP16 model.
        feeds: one batch.
        reference: the FP32 model it was made from, with the same tensor names.

    Only tensors of the main graph are looked at: an If, Loop or Scan counts as one node.

    Raises:
        StageError: when a model cannot be loaded, emulated or run.
    """
    mixed = _loaded(model)
    emulated = emulate(mixed)
    feeds = _widened(feeds, rounded=[str(v.name) for v in mixed.graph.inputs if v.dtype == ir.DataType.FLOAT16])
    look = _look(emulated, feeds, [name for name in float_tensors(emulated) if name in _names(mixed)])
    if not look.nonfinite:
        return []
    nonfinite = look.nonfinite | nonfinite_constants(mixed)
    found = origins(mixed, nonfinite, nonfinite)
    reaching = {value.name for value in origins(mixed, nonfinite, [str(value.name) for value in mixed.graph.outputs])}
    unrounded = _unrounded_absmax(emulated, found, feeds)
    in_reference = _look_at_reference(reference, feeds)
    counts = _exact_counts(emulated, feeds, (str(value.name) for value in found if value.name in look.absmax))
    result = []
    for value in found:
        name, node = str(value.name), value.producer()
        count = counts[name] if name in counts else _counts_of_constant(value)
        result.append(
            Nonfinite(
                node=(node.name or "") if node else "",
                op_type=node.op_type if node else "Initializer" if value.is_initializer() else "Input",
                tensor=name,
                nan=count.nan,
                posinf=count.posinf,
                neginf=count.neginf,
                inputs_absmax=_inputs_absmax(node, look),
                unrounded_absmax=unrounded.get(name),
                reference_finite=_finite_in_reference(value, in_reference),
                reaches_output=name in reaching,
            )
        )
    return result


@dataclass(frozen=True)
class _Look:
    """What one run tells: largest |x| of every tensor (true where it is finite), and which are not finite."""

    absmax: dict[str, float]
    nonfinite: set[str]


def _look(model: ir.Model, feeds: Mapping[str, np.ndarray], tensors: list[str]) -> _Look:
    scan = Scanner(model, tensors).run(feeds)
    nonfinite = nonfinite_tensors(model, feeds, tensors, scan)
    extremes = np.where(scan.elements > 0, np.maximum(np.abs(scan.low), np.abs(scan.high)), 0)
    return _Look(dict(zip(tensors, map(float, extremes), strict=True)), nonfinite)


def _exact_counts(model: ir.Model, feeds: Mapping[str, np.ndarray], tensors: Iterable[str]) -> dict[str, Counts]:
    rungs: dict[str, tuple[float, ...]] = dict.fromkeys(tensors, ())
    return Counter(model, rungs, rungs.keys()).run(feeds) if rungs else {}


def _unrounded_absmax(
    emulated: ir.Model, found: Iterable[ir.Value], feeds: Mapping[str, np.ndarray]
) -> dict[str, float | None]:
    names = {value.name for value in found}
    sources = {}
    for node in emulated.graph:
        for value in node.outputs:
            source = before_rounding(value)
            if value.name in names and source is not value and source.dtype == ir.DataType.FLOAT:
                sources[str(value.name)] = str(source.name)
    counts = _exact_counts(emulated, feeds, sources.values())
    return {name: counts[source].absmax for name, source in sources.items()}


def _look_at_reference(reference: Path | str | ir.Model | None, feeds: Mapping[str, np.ndarray]) -> dict[str, bool]:
    """Tensor name -> all finite."""
    if reference is None:
        return {}
    model = _loaded(reference)
    look = _look(model, feeds, float_tensors(model))
    return {name: name not in look.nonfinite for name in look.absmax}


def _finite_in_reference(value: ir.Value, in_reference: Mapping[str, bool]) -> bool | None:
    node = value.producer()
    names = [value, node.inputs[0]] if node is not None and node.op_type == "Cast" else [value]
    known = [in_reference[str(v.name)] for v in names if v is not None and v.name in in_reference]
    return known[0] if known else None


def _counts_of_constant(value: ir.Value) -> Counts:
    array = _constant(value)
    assert array is not None, f"{value.name} is neither measured nor constant"
    counts = [int(where(array).sum()) for where in (np.isnan, np.isposinf, np.isneginf)]
    return Counts(counts[0], counts[1], counts[2], None, None, {})


def _inputs_absmax(node: ir.Node | None, look: _Look) -> float | None:
    values = [value for value in node.inputs if value is not None] if node else []
    return max((absmax for value in values if (absmax := _absmax(value, look)) is not None), default=None)


def _absmax(value: ir.Value, look: _Look) -> float | None:
    if value.name in look.absmax:
        return look.absmax[value.name]
    constant = _constant(value)
    return None if constant is None or not constant.size else float(np.abs(constant).max())


def _constant(value: ir.Value) -> np.ndarray | None:
    """A constant of floating-point type as float64."""
    tensor = ir.convenience.get_const_tensor(value)
    return None if tensor is None or not tensor.dtype.is_floating_point() else tensor.numpy().astype(np.float64)


def _names(model: ir.Model) -> set[str | None]:
    return {value.name for value in model.graph.inputs} | {v.name for node in model.graph for v in node.outputs}


def _loaded(model: Path | str | ir.Model) -> ir.Model:
    return model if isinstance(model, ir.Model) else load_model(model)


def _widened(feeds: Mapping[str, np.ndarray], rounded: Iterable[str]) -> dict[str, np.ndarray]:
    """float16 arrays as float32; those in `rounded` through float16 first."""
    names = set(rounded)
    with np.errstate(over="ignore"):
        halves = {name: array.astype(np.float16) if name in names else array for name, array in feeds.items()}
    return {name: array.astype(np.float32) if array.dtype == np.float16 else array for name, array in halves.items()}
