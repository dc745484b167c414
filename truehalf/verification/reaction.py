"""Does an output react to the input? A file that outputs the same whatever it is fed may be right on every sample.

    failed         no value of an input reaches the output (reached_outputs), and one does in the reference's file; or
                   the output is the same on samples that differ, while the reference's moves by more than STEPS of
                   FP16; or its values move by less than FOLLOWS of what the reference's do that move by more than that
    not verified   the reference does not react, either, or by so little that FP16 may not show it: then nothing says
                   that the output is right on any other input; or one of several inputs no longer reaches the output
    open           one sample, or samples that are all alike: the same question, left open by the samples; it takes
                   nothing from what was compared on them

With random weights it is arbitrary which queries a detector keeps: the reference's may change with the sample and a
file's not. Beside an output of the same queries that reacts, that is not verified, and no failure.

An output of integers, bools or strings may rightly be the same on all samples (a count, a shape), and so may one of
several that make up detections: those count where no output reacts.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from truehalf.codes import coded
from truehalf.ir.ops import Trait, has, moved_inputs

if TYPE_CHECKING:
    import onnx_ir as ir

    from truehalf.verification.runs import Run

STEPS = 2.0  # of FP16 at the value itself: what moves by more is another number there
FOLLOWS = 0.25  # root mean squares around the mean; of a move by STEPS rounding leaves half, and errors only add to it
_KNOWN = ("the input",)  # where no graph is asked
_OF_EQUALS = frozenset({"Sub", "Xor"})  # and comparisons: of a value and itself they are the same whatever it is
_NOTHING = frozenset[str]()
_FIRST = 1024  # values of a weight that are looked at before all of them


Reached = Mapping[str, Collection[str]]  # inputs by output


@dataclass(frozen=True)
class Observed:
    """One output of both files on samples.

    Attributes:
        name: of the output.
        reference, candidate: one array for each sample.
        samples: a digest of each sample's inputs.
        always: whether it counts alone, see above.
        reached: the inputs of which a value reaches it in the reference's file, and in the candidate.
        arbitrary: whether the weights are random and it holds what they choose.
    """

    name: str
    reference: Sequence[np.ndarray]
    candidate: Sequence[np.ndarray]
    samples: Sequence[str]
    always: bool = True
    reached: tuple[Collection[str], Collection[str]] = (_KNOWN, _KNOWN)
    arbitrary: bool = False


@dataclass
class Reactions:
    """What was found: by output the reasons to fail, and what the verdict cannot do without; and, over all outputs,
    what the samples leave open.
    """

    failures: dict[str, str] = field(default_factory=dict)
    unknown: dict[str, str] = field(default_factory=dict)
    open: str = ""


def digest(feed: Mapping[str, np.ndarray]) -> str:
    """Of the inputs of one sample."""
    found = hashlib.blake2b(digest_size=16)
    for name in sorted(feed):
        array = feed[name]
        found.update(f"{name} {array.dtype} {array.shape}".encode())
        found.update(str(array.tolist()).encode() if array.dtype.kind == "O" else np.ascontiguousarray(array).tobytes())
    return found.hexdigest()


def reactions(outputs: Sequence[Observed]) -> Reactions:
    """Judge all outputs of a file together."""
    found = Reactions()
    unmoved: dict[str, str] = {}
    left_open: list[Observed] = []
    chosen_react = any(output.arbitrary and not _is_constant(output.candidate) for output in outputs)
    for output in outputs:
        why = _fault(output)
        if why and output.arbitrary and output.reached[1] and chosen_react:
            said = f"output {output.name!r}: {why}, or the weights, which are random, choose other queries"
            found.unknown[output.name] = coded("input-ignored", said)
        elif why:
            found.failures[output.name] = coded("input-ignored", f"output {output.name!r}: {why}")
        elif lost := [name for name in output.reached[0] if name not in output.reached[1]]:
            named = ", ".join(map(repr, lost))
            said = f"output {output.name!r}: no value of {named} reaches it, and one does in the reference"
            found.unknown[output.name] = coded("input-ignored", said)
        elif why := _unmoved(output):
            said = f"output {output.name!r}: {why}; so nothing says that it is right on another input"
            unmoved[output.name] = coded("input-ignored", said)
        elif len({*output.samples}) < 2:
            left_open.append(output)
    none_moves = len(unmoved) == len(outputs)
    alone = {output.name for output in outputs if output.always or none_moves}
    found.unknown |= {name: said for name, said in unmoved.items() if name in alone}
    if left_open:
        count = max(len(output.samples) for output in left_open)
        samples = "there is one sample" if count == 1 else f"the {count} samples are all alike"
        named = ", ".join(repr(output.name) for output in left_open)
        said = f"whether {named} react{'s' * (len(left_open) == 1)} to the input: {samples}; give samples that differ"
        found.open = coded("samples-alike", said)
    return found


def _fault(output: Observed) -> str:
    """Why an output does not react as it should, or nothing."""
    if output.reached[0] and not output.reached[1]:
        return "no value of an input reaches it, and one does in the reference"
    if len({*output.samples}) < 2:
        return ""
    if not _is_constant(output.candidate):
        share = _share_of_movement(output.reference, output.candidate)
        said = f"from sample to sample it moves by {share:.2%} of what the reference's does: it ignores its input"
        return said if share < FOLLOWS else ""
    if not _moves(output.reference):
        return ""
    if not output.always and len({array.shape for array in output.reference}) > 1:
        return ""  # as many detections as there are: their gates judge it
    return f"it is the same on all {len(output.samples)} samples, and the reference's is not: it ignores its input"


def _unmoved(output: Observed) -> str:
    """Why nothing can be said of an output without a fault, or nothing."""
    count = len(output.samples)
    if not output.reached[0]:
        return "no value of an input reaches the reference's"
    if len({*output.samples}) < 2:
        return ""
    if _is_constant(output.reference):
        return f"the reference's is the same on all {count} samples, which differ"
    if _is_constant(output.candidate):
        return f"it is the same on all {count} samples, and the reference's moves by no more than a step of FP16"
    return ""


def _moves(arrays: Sequence[np.ndarray]) -> bool:
    """Whether an output changes by more than FP16 may swallow."""
    if len({array.shape for array in arrays}) > 1 or arrays[0].dtype.kind != "f":
        return not _is_constant(arrays)
    stacked = np.stack(arrays).astype(np.float64)
    finite = np.isfinite(stacked)
    if (finite.any(axis=0) & ~finite.all(axis=0)).any():
        return True
    values = np.where(finite, stacked, 0.0)
    low, high = values.min(axis=0), values.max(axis=0)
    return bool(_by_more_than_steps(low, high).any())


def _by_more_than_steps(low: np.ndarray, high: np.ndarray) -> np.ndarray:
    exponent = np.frexp(np.maximum(np.abs(low), np.abs(high)))[1] - 1
    return np.asarray(high - low > STEPS * np.ldexp(1.0, np.maximum(exponent, -14) - 10))


def _share_of_movement(reference: Sequence[np.ndarray], candidate: Sequence[np.ndarray]) -> float:
    """How much the candidate moves beside the reference, over the values of which the reference's move by more than
    FP16 may swallow; 1 where there are none, or where the arrays are no floats of one shape.
    """
    if len({array.shape for array in (*reference, *candidate)}) > 1 or reference[0].dtype.kind != "f":
        return 1.0
    first = [np.asarray(side[0], np.float64) for side in (reference, candidate)]
    low, high = first[0], first[0]
    sums, squares = ([np.zeros(each.shape) for each in first] for _ in range(2))
    with np.errstate(invalid="ignore", over="ignore"):
        for pair in zip(reference, candidate, strict=True):
            low, high = np.minimum(low, pair[0]), np.maximum(high, pair[0])
            for side, array in enumerate(pair):
                moved = array - first[side]
                sums[side] += moved
                squares[side] += moved * moved
        spread = [square - total * total / len(reference) for square, total in zip(squares, sums, strict=True)]
        moving = np.isfinite(spread[0]) & np.isfinite(spread[1])
        moving &= _by_more_than_steps(np.where(moving, low, 0.0), np.where(moving, high, 0.0))
    if not moving.any():
        return 1.0
    return float(np.sqrt(max(spread[1][moving].sum(), 0.0) / spread[0][moving].sum()))


def _is_constant(arrays: Sequence[np.ndarray]) -> bool:
    first = arrays[0]
    nan = first.dtype.kind == "f"
    return all(np.array_equal(first, each, equal_nan=nan) for each in arrays[1:])


def observed(
    runs: Sequence[Run],
    names: Iterable[str],
    reached: tuple[Reached, Reached] | None,
    together: Collection[str],
    arbitrary: bool = False,
) -> list[Observed]:
    """Outputs of two files; by sample where axis 0 of inputs counts them and an axis of the outputs
    does (the first of that length, or axis 0 of a multiple of it), else by run.

    Args:
        names: of outputs that both have.
        reached: of `reached_outputs`, of the reference and the candidate; None: no graph is asked.
        together: outputs that make up detections.
        arbitrary: whether the weights are random, and `together` holds what they choose.
    """
    found = []
    for name in names:
        pairs = [(np.asarray(run.reference[name]), np.asarray(run.candidate[name])) for run in runs]
        rows = [len(run.inputs) for run in runs]
        parted = [(_by_sample(a, n), _by_sample(b, n)) for (a, b), n in zip(pairs, rows, strict=True)]
        sides = [[each for each in side if each is not None] for side in zip(*parted, strict=True)]
        if all(len(side) == len(runs) for side in sides):
            reference, candidate = ([row for each in side for row in each] for side in sides)
            samples = [sample for run in runs for sample in run.inputs]
        else:
            reference, candidate = ([pair[side] for pair in pairs] for side in (0, 1))
            samples = [" ".join(run.inputs) for run in runs]
        always = pairs[0][1].dtype.kind == "f" and name not in together
        reaches = (reached[0].get(name, ()), reached[1].get(name, ())) if reached else (_KNOWN, _KNOWN)
        chosen = arbitrary and name in together
        found.append(Observed(name, reference, candidate, samples, always, reaches, chosen))
    return found


def _by_sample(values: np.ndarray, samples: int) -> np.ndarray | None:
    """[samples, ...]; None where no axis counts them."""
    if samples in values.shape:
        return np.moveaxis(values, values.shape.index(samples), 0)
    if values.ndim and len(values) > samples > 1 and len(values) % samples == 0:
        return values.reshape(samples, -1, *values.shape[1:])
    return None


# --- the graph --------------------------------------------------------------------------------------------------------


def reached_outputs(model: ir.Model) -> dict[str, list[str]]:
    """By output, the inputs of which a value can reach it.

    A shape is no value; a product with a weight of zeros, and the side that a constant condition of Where leaves out,
    pass nothing on. Nodes with bodies pass on all of which these read values.
    """
    inputs = {value: frozenset([str(value.name)]) for value in model.graph.inputs if not value.is_initializer()}
    _spread(model.graph, inputs, model)
    return {str(value.name): sorted(inputs.get(value, _NOTHING)) for value in model.graph.outputs}


def _spread(nodes: Iterable[ir.Node], inputs: dict[ir.Value, frozenset[str]], model: ir.Model) -> None:
    """Add the inputs of which a value reaches what the nodes write; those behind a function's parameters go into it."""
    for node in nodes:
        function = model.functions.get(node.op_identifier())
        if function is not None:
            given = [inputs.get(value, _NOTHING) if value is not None else _NOTHING for value in node.inputs]
            inner = dict(zip(function.inputs, given, strict=False))
            _spread(function, inner, model)
            inputs.update(zip(node.outputs, (inner.get(value, _NOTHING) for value in function.outputs), strict=False))
        elif not has(node, Trait.SHAPE_ONLY):
            read = _NOTHING.union(*(inputs.get(value, _NOTHING) for value in _passed_on(node)))
            inputs.update(dict.fromkeys(node.outputs, read))


def _passed_on(node: ir.Node) -> list[ir.Value]:
    """The inputs, and what bodies read, that the outputs depend on."""
    inputs = [value for value in node.inputs if value is not None]
    name = node.op_type if node.domain == "" else ""
    product = has(node, Trait.BILINEAR) or name == "Einsum"
    if product and any(map(_is_zero, inputs if name == "Einsum" else inputs[:2])):
        return inputs[2:] if name != "Einsum" else []
    if name == "Gemm" and node.attributes.get_float("alpha", 1.0) == 0:
        return inputs[2:]
    if has(node, Trait.NORMALIZES) and len(inputs) > 1 and _is_zero(inputs[1]):  # the scale; the shift follows
        return inputs[2:3]
    if (name in _OF_EQUALS or has(node, Trait.COMPARES)) and len(inputs) == 2 and inputs[0] is inputs[1]:
        return []
    if name == "Pow" and _is_zero(inputs[1]):
        return []
    if name == "Clip" and len(inputs) == 3 and inputs[1] is inputs[2]:
        return inputs[1:2]
    if name == "Where":
        sides = [value for value, truth in zip(inputs[1:], (True, False), strict=True) if _is_all(inputs[0], truth)]
        return sides or inputs
    return [*inputs, *_read_by_bodies(node)]


def _is_all(value: ir.Value, truth: bool) -> bool:
    """Whether it is a constant that is zero (or False) everywhere, or not anywhere."""
    return _is_nowhere_zero(value) if truth else _is_zero(value)


def _is_nowhere_zero(value: ir.Value) -> bool:
    values = _constant(value)
    return values is not None and bool(values.all())


def _is_zero(value: ir.Value) -> bool:
    """... also where a constant was cast or moved first."""
    values, node = _constant(value), value.producer()
    if values is not None:
        return not values[:_FIRST].any() and not values.any()
    if node is None or node.domain != "":
        return False
    if node.op_type == "ConstantOfShape":
        filled = node.attributes.get_tensor("value")
        return filled is None or not filled.numpy().any()
    moves = node.op_type == "Cast" or moved_inputs(node) == (0,)
    return moves and node.inputs[0] is not None and _is_zero(node.inputs[0])


def _constant(value: ir.Value) -> np.ndarray | None:
    """[values], at least one."""
    import onnx_ir as ir

    tensor = ir.convenience.get_const_tensor(value)
    return None if tensor is None or not tensor.size else tensor.numpy().ravel()


def _read_by_bodies(node: ir.Node) -> Iterator[ir.Value]:
    import onnx_ir as ir

    for attribute in node.attributes.values():
        if attribute.type not in (ir.AttributeType.GRAPH, ir.AttributeType.GRAPHS):
            continue
        graphs = [attribute.as_graph()] if attribute.type == ir.AttributeType.GRAPH else attribute.as_graphs()
        for graph in graphs:
            yield from graph.outputs
            for inner in graph:
                yield from () if has(inner, Trait.SHAPE_ONLY) else _passed_on(inner)
