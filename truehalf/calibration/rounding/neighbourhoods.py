"""Neighbourhoods of nodes that may amplify what float16 rounds: the node, and what its inputs are computed from nearby.

A node amplifies where a relative error of 2^-11 in an input can be a much larger one in its output:

    Log, Reciprocal, Div, Pow with an exponent < 1     x -> 0                      log x(1 + e) = log x + e
    Mul by a Reciprocal                                as Div
    Sqrt, ReduceL2, GlobalLpPool, ReduceLogSum(Exp)    x -> 0, sums of squares     sqrt(0 + e) = sqrt(e)
    Acos, Acosh, Asin, Atanh                           |x| -> 1
    Sin, Cos, Tan                                      |x| large                   sin(x + xe) = sin x + xe cos x
    normalizations                                     rows offset from 0 far more than they vary, or very small ones
    Softmax that is a result                           x - max x, of large x
    sums of constants weighted by a Softmax, as        the same: a position in float16 steps between two peaks
      soft-argmax, that are a result
    CumSum                                             a sum that grows until a term is less than half its last bit
    sums and products whose terms (truehalf.calibration.rounding.terms) are _CANCELS times the result    x - y -> 0

Where its precision was lost is upstream: 1 - p is exact, and it is p that float16 holds with an error of 2^-12. So
a neighbourhood goes back through elementwise functions, reductions, moves, and products of two computed tensors, and
ends at its leaves: graph inputs, what a convolution, a product with weights and the like write, and nodes that say
themselves that they stay float32. A `deep` one goes further, and on to what products with weights read. So does another
one from a logarithm, and, not further, from a divisor or a root as far as nothing adds up in between: a product's sum
has an error of 2^-11 sum |w x|, which is nothing beside the largest sum, but all of a quiet bin of a spectrum. That of
a normalization is the node alone, until it is deep: what it reads shows what was lost before. Nodes that move elements
only do not count: a spectrum may be put together of many parts.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import onnx_ir as ir

from truehalf.calibration.ranges_form import limit_of
from truehalf.calibration.rounding.expectations import expectation
from truehalf.calibration.rounding.terms import terms_of
from truehalf.float16 import KEEP_FLOAT32
from truehalf.ir import ops
from truehalf.ir.facts import constant_of, is_op, lengths_of, subgraphs
from truehalf.ir.ops import Trait
from truehalf.ir.slots import computed_floats, is_float32

_CANCELS = 16.0  # 2^-11 of each operand is then 2^-7 of the result
_NOISE = 2.0**-17  # below this share of its terms a sum has float32's rounding of them, 2^-24, at 2^-7 of itself
_NODES_MAX, _DEPTH_MAX = 16, 6  # of nodes that compute; depth: one behind the other
_DEEP_NODES_MAX, _DEEP_DEPTH_MAX = 32, 10
_MOVES_MAX = 8  # for each of them

_NORMS = ops.with_trait(Trait.STANDARDIZES)
MOVES = (ops.MOVES & ops.with_trait(Trait.NO_ARITHMETIC)) - ops.with_trait(Trait.CONTROL_FLOW | Trait.SEQUENCE)
_COMPUTES = (
    (ops.with_trait(Trait.UNARY | Trait.ELEMENTWISE) - ops.with_trait(Trait.NO_ARITHMETIC))
    | {name for name in ops.TABLE if name.startswith("Reduce")}
    | {"CumSum", "GlobalAveragePool", "Mod", "Softmax"}
)
_REPLAYED = _COMPUTES | MOVES | ops.with_trait(Trait.STANDARDIZES | Trait.STEEP_AT_ZERO)
_HEAVY = ops.with_trait(Trait.MATRIX_PRODUCT | Trait.BILINEAR) | {"AveragePool", "BatchNormalization"}
_AMPLIFY = Trait.PERIODIC | Trait.STANDARDIZES | Trait.STEEP_AT_ZERO | Trait.STEEP_AT_ONE
_LOGARITHMS = ("Log", "ReduceLogSum")
MADE_BY = "made_by"  # key of ir.Value.meta: names of nodes outside a body that compute what it reads there
_CUMULATIVE_MIN = 17  # terms; of fewer the roundings stay below 2^-7


@dataclass(frozen=True)
class Neighbourhood:
    """A node that amplifies, and its surroundings upstream.

    Attributes:
        end: the node that amplifies.
        depths: the nodes, in graph order, each with the number of nodes that compute from it to the end, 1 or more.
        leaves: FLOAT values that are read and computed elsewhere, no constants.
        shown: moves, choices and bounds, one after the other, that alone read what the end writes: what they crop
            counts not.
    """

    end: ir.Node
    depths: dict[ir.Node, int]
    leaves: tuple[ir.Value, ...]
    shown: tuple[ir.Node, ...] = ()

    @property
    def kind(self) -> str:
        """phases, inner (of sums), cancellation, or underflow: nothing is subtracted."""
        if ops.has(self.end, Trait.PERIODIC):
            return "phases"
        if self.end.op_type == "CumSum":
            return "inner"
        subtracts = any(
            node.op_type in ("Neg", "Sub") or (node.op_type == "Add" if _is_sum(node) else node.op_type in _HEAVY)
            for node in self.depths
        )
        cancels = subtracts or ops.has(self.end, Trait.CANCELS | Trait.CENTERS | Trait.STEEP_AT_ONE)
        cancels = cancels or is_op(self.end, "Softmax") or bool(expectation(self.end))
        return "cancellation" if cancels else "underflow"

    @property
    def limit(self) -> float:
        """Of the error; held to the tolerance where the end is steep, as another sample comes nearer to that place, and
        where it is a result of the model, which the tolerance is for.
        """
        steep = ops.has(self.end, Trait.STEEP_AT_ZERO | Trait.STEEP_AT_ONE) or ops.row_of(self.end).divides is not None
        is_result = _is_result(self.end, self.shown) or bool(expectation(self.end))
        return limit_of(self.kind, steep or is_op(self.end, "Mul") or is_result)


def neighbourhoods(
    model: ir.Model, absmax: Callable[[ir.Value], float | None], deep: bool = False
) -> list[Neighbourhood]:
    """Those of the nodes of the main graph that may amplify, in graph order; none of a node whose result nothing reads
    but what leads to another one: in the logit log(p / (1 - p)) it is the logarithm that counts, not the quotient. Of
    the deep ones, which reach further, all.

    Args:
        absmax: largest |x| that was measured of a value; None: it is not known.
    """
    order = {node: index for index, node in enumerate(model.graph)}
    ends = [node for node in order if _is_replayed(node, True) and _amplifies(node, absmax)]
    found = [_neighbourhood(node, order, deep) for node in ends]
    covered = {node for around in found for node in _inside(around)} if not deep else set()
    return [around for around in found if around.end not in covered]


def computed_by(value: ir.Value, model: ir.Model) -> list[str]:
    """Names of the nodes of a deep neighbourhood of what computes a value of the main graph."""
    order = {node: index for index, node in enumerate(model.graph)}
    node = value.producer()
    return (
        []
        if node not in order or node is None
        else [str(each.name) for each in _neighbourhood(node, order, True).depths]
    )


def _inside(around: Neighbourhood) -> set[ir.Node]:
    """The nodes of a neighbourhood, but for its end, that write for it alone."""
    found = {around.end}
    for node in reversed(around.depths):
        is_output = any(value.is_graph_output() for value in node.outputs)
        if not is_output and all(reader in found for value in node.outputs for reader in value.consumers()):
            found.add(node)
    return found - {around.end}


def _amplifies(node: ir.Node, absmax: Callable[[ir.Value], float | None]) -> bool:
    if not computed_floats(node):
        return False
    match node.op_type:
        case "Div":
            return constant_of(node.inputs[1]) is None
        case "Pow":
            exponents = constant_of(node.inputs[1])
            return exponents is None or bool((exponents < 1).any())
        case "Mul":
            return any(_is_inverse(value) for value in computed_floats(node))
        case "Softmax":
            return _is_result(node, _shown(node))
        case "CumSum":
            axes, lengths = constant_of(node.inputs[1]), lengths_of(computed_floats(node)[0]) or []
            inside = [] if axes is None else [int(axis) for axis in axes.flat if -len(lengths) <= axis < len(lengths)]
            return any((lengths[axis] or 0) >= _CUMULATIVE_MIN for axis in inside)
    if ops.has(node, _AMPLIFY) or expectation(node):
        return True
    terms, last = terms_of(node, absmax), [node, *_shown(node)][-1]
    return _cancels(terms, absmax(last.outputs[0])) and not _is_hidden(node, terms, absmax)


def _is_inverse(value: ir.Value) -> bool:
    """Whether a value is 1 / x, or a negative power, perhaps moved."""
    node = value.producer()
    while node is not None and node.domain == "" and node.op_type in MOVES and node.inputs[0] is not None:
        node = node.inputs[0].producer()
    if is_op(node, "Div") and node is not None:
        return constant_of(node.inputs[0]) is not None and constant_of(node.inputs[1]) is None
    exponents = constant_of(node.inputs[1]) if is_op(node, "Pow") and node is not None else None
    return is_op(node, "Reciprocal") or (exponents is not None and bool((exponents < 0).any()))


def _cancels(terms: list[float | None], total: float | None) -> bool:
    """Whether a sum is far below its terms, but not so far that it is float32's own rounding of them."""
    known = [term for term in terms if term is not None]
    if len(known) < len(terms) or not terms or total is None:
        return False
    return _CANCELS * total <= sum(known) < total / _NOISE


def _is_hidden(node: ir.Node, terms: list[float | None], absmax: Callable[[ir.Value], float | None]) -> bool:
    """Whether all that is made of a sum is sums of the size of its terms, which round away about as much themselves."""
    read = list(node.outputs)
    for value in read:
        for reader in value.consumers():
            if reader.domain == "" and reader.op_type in MOVES:
                read += reader.outputs
            elif not is_op(reader, "Add", "Sub", "Sum") or 4 * (absmax(reader.outputs[0]) or 0.0) < sum(
                term or 0.0 for term in terms
            ):
                return False
    return not any(value.is_graph_output() for value in read)


def _neighbourhood(end: ir.Node, order: dict[ir.Node, int], deep: bool) -> Neighbourhood:
    depths = {end: 1}
    nodes_max = _DEEP_NODES_MAX if deep else _NODES_MAX
    depth_max = _DEEP_DEPTH_MAX if deep or end.op_type in _LOGARITHMS else _DEPTH_MAX
    if end.op_type in _NORMS and not deep:
        nodes_max = 1
    weighting = expectation(end)
    everywhere = deep or ops.has(end, Trait.PERIODIC) or end.op_type in _LOGARITHMS
    to_products = {end}
    left = {False: nodes_max - 1, True: nodes_max * _MOVES_MAX}  # of nodes, by whether they move only
    waiting = deque([end])
    while waiting:
        node = waiting.popleft()
        if node is not end and node not in weighting and not _is_replayed(node, False):
            continue
        for value in computed_floats(node):
            source = value.producer()
            with_products = everywhere or (node in to_products and (node is not end or _is_steep_at(end, value)))
            with_products |= node in weighting
            if source is None or source in depths or source not in order or not _is_replayed(source, with_products):
                continue
            if with_products and not ops.adds_up(source):
                to_products.add(source)
            moves = source.op_type in MOVES
            depth = depths[node] + (not moves)
            if source.op_type in _NORMS or depth > depth_max or left[moves] <= 0:
                continue
            depths[source] = depth
            left[moves] -= 1
            (waiting.append if depth > depths[node] else waiting.appendleft)(source)
    ordered = {node: depths[node] for node in sorted(depths, key=order.__getitem__)}
    read = dict.fromkeys(value for node in ordered for value in computed_floats(node))
    leaves = tuple(value for value in read if value.producer() not in ordered)
    return Neighbourhood(end, ordered, leaves, () if end.op_type in _NORMS else tuple(_shown(end)))


def _is_result(end: ir.Node, shown: Iterable[ir.Node]) -> bool:
    """Whether what is shown of it is an output of the model."""
    return [end, *shown][-1].outputs[0].is_graph_output()


def _shown(end: ir.Node) -> Iterator[ir.Node]:
    """See `Neighbourhood`. Bounds are none of products, which activations follow everywhere."""
    node = end
    while len(node.outputs) == 1 and not node.outputs[0].is_graph_output():
        value, readers = node.outputs[0], node.outputs[0].consumers()
        others = [each for reader in readers for each in reader.inputs if each is not None and each is not value]
        if len(readers) != 1 or any(constant_of(other) is None for other in others):
            return
        node = readers[0]
        is_choice = ops.has(node, Trait.EXACT) and not ops.has(node, Trait.STEPS)
        is_bound = (is_choice or ops.row_of(node).bounds is not None) and end.op_type not in _HEAVY
        if not _is_replayed(node, False) or not (node.op_type in MOVES or is_bound):
            return
        yield node


def _is_steep_at(node: ir.Node, value: ir.Value) -> bool:
    """Whether a node divides by a value, or takes its root, or multiplies by an inverse."""
    divides = ops.row_of(node).divides
    return value is node.inputs[divides] if divides is not None else is_op(node, "Mul") and _is_inverse(value)


def _is_replayed(node: ir.Node, deep: bool) -> bool:
    """Whether a node is computed once more beside itself."""
    if node.domain != "" or subgraphs(node) or KEEP_FLOAT32 in node.metadata_props:
        return False
    if not all(is_float32(value) for value in node.outputs if value.name):
        return False
    if (deep and node.op_type in _HEAVY) or (ops.has(node, Trait.MATRIX_PRODUCT) and _is_sum(node)):
        return True
    return node.op_type in _REPLAYED


def _is_sum(node: ir.Node) -> bool:
    """Whether two of its inputs are computed."""
    return len(computed_floats(node)) > 1
