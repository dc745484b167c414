"""Sums that no kernel makes on tensor cores: FP16 nodes that add up term by term, each sum rounded.

    CumSum, CumProd                   a Scan that rounds after each term
    ScatterElements, ScatterND        a Scan along the updates (reduction add or mul), that rounds after each
    LpNormalization                   x / s,  s = the sum of |x| term by term, or the Sqrt of that of x * x
    LRN                               the sum of x * x over the channels around, term by term; then in FP32, and rounded
                                      once: x / (bias + alpha / size * sum) ^ beta
    LpPool, GlobalLpPool              the sum of |x| ^ p term by term; its root
    RNN, GRU, LSTM                    a Scan over the steps of each direction, of the node for one step: states are kept
                                      in FP16 from step to step

Each evaluation has them so. Where a sum has more than TERMS terms or steps, or a Scan would write more than WRITTEN
numbers, the node is left as it is in the default evaluation, which accumulates in FP32 and rounds once, and listed.
"""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import onnx_ir as ir

from truehalf.codes import coded
from truehalf.emulation.half_nodes import HALF, OPSET, HalfNodes, NotSplitError, dims_of, known, source_of
from truehalf.errors import StageError
from truehalf.ir.facts import all_nodes, label_of
from truehalf.ir.normalize import Names
from truehalf.ir.ops import adds_up, row_of
from truehalf.ir.opset import ToOpset

TERMS = 4096
WRITTEN = 2**30  # by a Scan whose state is a whole tensor
NOT_SPLIT = "not_split"  # key of ir.Model.meta
_END = 2**31 - 1
_FLOAT, _INT64, _BOOL = ir.DataType.FLOAT, ir.DataType.INT64, ir.DataType.BOOL
Rule = Callable[[HalfNodes], list[ir.Value] | None]


def split(model: ir.Model, rules: dict[str, Rule], names: Names) -> dict[str, str]:
    """Replace the FP16 nodes that have a rule, in place; of those that were left, or are not split everywhere, why."""
    opset = model.graph.opset_imports.get("", 0)
    left: dict[str, str] = {}
    for graph in list(model.graphs()):
        for node in list(graph):
            rule = rules.get(node.op_type) if node.domain == "" else None
            if rule is None or _moves(node) or not (is_half(node.inputs[:1]) and is_half(node.outputs)):
                continue
            if reasons := _split(node, graph, rule, HalfNodes(node, opset, names)):
                left[label_of(node)] = reasons
    return left


def raise_for_rules(model: ir.Model, rules: Iterable[str]) -> bool:
    """Bring a model to the opset in which rules state their nodes, where one has an FP16 node and onnx can; whether it
    was. Afterwards new values have no type.
    """
    nodes = (node for node in all_nodes(model) if node.domain == "" and node.op_type in rules and not _moves(node))
    if model.graph.opset_imports.get("", OPSET) >= OPSET or not any(is_half(node.inputs[:1]) for node in nodes):
        return False
    with contextlib.suppress(StageError):
        ToOpset(OPSET)(model)
    return model.graph.opset_imports[""] == OPSET


def _split(node: ir.Node, graph: ir.Graph, rule: Rule, build: HalfNodes) -> str:
    """Replace `node`; what could not be done, or nothing."""
    if build.opset < OPSET:
        return f"opset {build.opset}: expected {OPSET} or more, and onnx cannot raise it"
    try:
        results = rule(build)
    except NotSplitError as error:
        return str(error)
    if results is not None:
        old = [value for value, _ in zip(node.outputs, results, strict=False) if value.name]
        new = [result for value, result in zip(node.outputs, results, strict=False) if value.name]
        ir.convenience.replace_nodes_and_values(graph, node, [node], build.nodes, old, new)
    return "; ".join(build.notes)


def _moves(node: ir.Node) -> bool:
    """Whether an operator that adds up does not, by its attributes."""
    return row_of(node).moves_when is not None and not adds_up(node)


def is_half(values: Iterable[ir.Value | None]) -> bool:
    return any(value is not None and value.dtype == HALF for value in values)


# --- rules ------------------------------------------------------------------------------------------------------------


def cumulate(build: HalfNodes) -> list[ir.Value]:
    """A Scan along the axis; a step outputs its state after the addition, or before it (exclusive)."""
    node = build.node
    source, dims = source_of(build)
    tensor = ir.convenience.get_const_tensor(node.inputs[1]) if node.inputs[1] is not None else None
    if tensor is None:
        raise NotSplitError("its axis is no constant")
    axis = int(tensor.numpy().reshape(-1)[0]) % len(dims)
    _check_terms(dims[axis])
    exclusive, is_sum = node.attributes.get_int("exclusive", 0), node.op_type == "CumSum"

    def step(state: ir.Value, terms: list[ir.Value]) -> list[ir.Value]:
        added = build.op("Add" if is_sum else "Mul", state, terms[0])
        return [added, build.op("Identity", state if exclusive else added)]

    start = build.filled_like(build.reduced("ReduceMax", source, [axis], keepdims=0), 0 if is_sum else 1)
    way = [int(node.attributes.get_int("reverse", 0))]
    ways: dict[str, Any] = {"scan_input_directions": way, "scan_output_directions": way, "scan_output_axes": [axis]}
    return [build.scan(start, [source], [axis], step, **ways)[1]]


def scatter_elements(build: HalfNodes) -> list[ir.Value]:
    """Entries of one place along the axis go to different elements, so a step adds one term to each."""
    data, indices, updates, reduction = _scattered(build)
    axis = build.node.attributes.get_int("axis", 0) % len(dims_of(data))
    _check_terms(dims_of(indices)[axis], dims_of(data))

    def step(state: ir.Value, terms: list[ir.Value]) -> list[ir.Value]:
        one = [build.op("Unsqueeze", term, build.ints([axis]), dtype=term.dtype or HALF) for term in terms]
        return [build.op("ScatterElements", state, *one, axis=axis, reduction=reduction)]

    return build.scan(data, [indices, updates], [axis, axis], step)


def scatter_nd(build: HalfNodes) -> list[ir.Value]:
    data, indices, updates, reduction = _scattered(build)
    *places, width = dims_of(indices)
    width = known(width, "the length of its indices")
    _check_terms(math.prod(places) if None not in places else None, dims_of(data))  # type: ignore[arg-type]
    rest = build.op("Slice", build.shape(data), build.ints([width]), build.ints([_END]), dtype=_INT64)
    rows = build.op("Reshape", indices, build.ints([-1, width]), dtype=_INT64)
    parts = build.op("Reshape", updates, build.op("Concat", build.ints([-1]), rest, dtype=_INT64, axis=0))

    def step(state: ir.Value, terms: list[ir.Value]) -> list[ir.Value]:
        one = [build.op("Unsqueeze", term, build.ints([0]), dtype=term.dtype or HALF) for term in terms]
        return [build.op("ScatterND", state, *one, reduction=reduction)]

    return build.scan(data, [rows, parts], [0, 0], step)


def _scattered(build: HalfNodes) -> tuple[ir.Value, ir.Value, ir.Value, str]:
    reduction = build.node.attributes.get_string("reduction", "none")
    if reduction in ("max", "min"):
        raise NotSplitError("")  # nothing is rounded
    data, indices, updates = build.node.inputs[:3]
    assert data is not None and indices is not None and updates is not None
    return data, indices, updates, reduction


def lp_normalization(build: HalfNodes) -> list[ir.Value]:
    """x / s, and 0 where s is 0."""
    source, dims = source_of(build)
    axis = build.node.attributes.get_int("axis", -1) % len(dims)
    norm = _norm(build, source, axis, dims[axis], build.node.attributes.get_int("p", 2))
    some = build.op("Cast", norm, dtype=_BOOL, to=int(_BOOL))
    return [build.op("Where", some, build.op("Div", source, norm), build.half(0))]


def local_response_normalization(build: HalfNodes) -> list[ir.Value]:
    source, dims = source_of(build)
    given = build.node.attributes
    size = given["size"].as_int()
    _check_terms(size)
    before, after = (size - 1) // 2, size // 2
    pads = [[0, around, *[0] * (len(dims) - 2)] for around in (before, after)]
    square = build.op("Pad", build.op("Mul", source, source), build.ints(pads[0] + pads[1]))
    parts = []
    for start in range(size):
        ends = start - size + 1 or _END
        parts.append(build.op("Slice", square, *(build.ints([number]) for number in (start, ends, 1))))
    wide = build.cast(build.added(parts), _FLOAT)
    scale = build.constant(given.get_float("alpha", 1e-4) / size, _FLOAT)
    wide = build.op("Mul", wide, scale, dtype=_FLOAT)
    wide = build.op("Add", wide, build.constant(given.get_float("bias", 1.0), _FLOAT), dtype=_FLOAT)
    wide = build.op("Pow", wide, build.constant(given.get_float("beta", 0.75), _FLOAT), dtype=_FLOAT)
    return [build.cast(build.op("Div", build.cast(source, _FLOAT), wide, dtype=_FLOAT), HALF)]


def global_lp_pool(build: HalfNodes) -> list[ir.Value]:
    source, dims = source_of(build)
    lengths = [dim for dim in dims[2:] if dim is not None]
    length = math.prod(lengths) if len(lengths) == len(dims) - 2 else None
    flat = build.op("Reshape", source, build.ints([0, 0, -1]))
    norm = _norm(build, flat, 2, length, build.node.attributes.get_int("p", 2))
    return [build.op("Unsqueeze", norm, build.ints(range(3, len(dims)))) if len(dims) > 3 else norm]


def lp_pool(build: HalfNodes) -> list[ir.Value]:
    """A term is a convolution with a kernel that holds a single one."""
    source, dims = source_of(build)
    given = build.node.attributes
    channels, kernel = known(dims[1], "the number of its channels"), list(given["kernel_shape"].as_ints())
    if given.get_int("ceil_mode", 0):
        raise NotSplitError("LpPool with ceil_mode")
    terms = math.prod(kernel)
    _check_terms(terms * terms)
    kept: dict[str, Any] = {name: each for name, each in given.items() if name not in ("p", "ceil_mode")}
    p = given.get_int("p", 2)
    powers = _power(build, source, p)
    places = build.op("Reshape", build.op("EyeLike", build.op("Expand", build.half(0), build.ints([terms] * 2))),
                      build.ints([terms, 1, *kernel]))  # fmt: skip
    parts = []
    for place in build.pieces(places, 0, terms, 1) if terms > 1 else [places]:
        weights = build.op("Expand", place, build.ints([channels, 1, *kernel]))
        parts.append(build.op("Conv", powers, weights, group=channels, **kept))
    return [_root(build, build.added(parts), p)]


def recurrent(build: HalfNodes) -> list[ir.Value] | None:
    """X [steps, batch, inputs] -> Y [steps, directions, batch, hidden], and the last state or states of the directions;
    of layout 1 with the batch first. Nothing of one step, whose states are outputs.
    """
    given, inputs = build.node.attributes, [*build.node.inputs, *[None] * 8][:8]
    by_batch = given.get_int("layout", 0)
    steps_of = source_of(build)[1][by_batch]
    if steps_of == 1:
        return None
    _check_terms(steps_of)
    for place in (0, 5, 6) if by_batch else ():
        inputs[place] = inputs[place] and build.op("Transpose", inputs[place], perm=[1, 0, 2])
    ways = {"forward": [0], "reverse": [1], "bidirectional": [0, 1]}[given.get_string("direction", "forward")]
    names = list(given["activations"].as_strings()) if "activations" in given else []
    if len(ways) > 1 and (other := {"activation_alpha", "activation_beta"} & {*given}):
        raise NotSplitError(f"{min(other)} of two directions")
    found = []
    for number, way in enumerate(ways):
        ends = [build.ints([each]) for each in (number, number + 1, 0)]
        own = [
            each and build.op("Slice", each, *ends) if place not in (0, 4) else each
            for place, each in enumerate(inputs)
        ]
        each = len(names) // len(ways)
        found.append(_direction(build, own, way, names[number * each :][:each]))
    steps, *last = zip(*found, strict=True)
    results = [build.op("Concat", *steps, axis=1), *(build.op("Concat", *each, axis=0) for each in last)]
    if by_batch:
        results = [build.op("Transpose", one, perm=[1, 0, 2] if n else [2, 0, 1, 3]) for n, one in enumerate(results)]
    return results


def _direction(build: HalfNodes, inputs: Sequence[ir.Value | None], way: int, activations: list[str]) -> list[ir.Value]:
    """Of one direction; states of an LSTM, both of one size, are one state of the Scan. A sequence that has ended, or
    not begun in reverse, keeps its state and puts out 0.
    """
    source, weights, lengths, peepholes = inputs[0], inputs[1:4], inputs[4], inputs[7]
    assert source is not None
    left_out = ("direction", "activations", "layout")
    kept: dict[str, Any] = {name: each for name, each in build.node.attributes.items() if name not in left_out}
    kept |= {"activations": activations} if activations else {}
    hidden, count = build.node.attributes["hidden_size"].as_int(), 2 if build.node.op_type == "LSTM" else 1
    sides = [build.op("Slice", build.shape(source), *map(build.ints, ([n], [n + 1])), dtype=_INT64) for n in (0, 1)]
    sources, zero = [source], build.half(0)
    if lengths is not None:
        ends = build.constant(0, _INT64), build.op("Squeeze", sides[0], build.ints([0]), dtype=_INT64)
        sources.append(build.op("Range", *ends, build.constant(1, _INT64), dtype=_INT64))
        lengths = build.cast(lengths, _INT64)

    def parts(state: ir.Value) -> list[ir.Value]:
        return build.pieces(state, 2, count * hidden, hidden) if count > 1 else [state]

    def step(state: ir.Value, terms: list[ir.Value]) -> list[ir.Value]:
        one = build.op("Unsqueeze", terms[0], build.ints([0]))
        one.shape = ir.Shape([1, None, None])
        more = [] if peepholes is None else [peepholes]
        _, *states = build.ops(1 + count, build.node.op_type, one, *weights, None, *parts(state), *more, **kept)
        after, made = build.op("Concat", *states, axis=2), states[0]
        if lengths is not None:
            goes_on = build.op("Less", terms[1], lengths, dtype=_BOOL)
            goes_on = build.op("Unsqueeze", goes_on, build.ints([0, 2]), dtype=_BOOL)
            after, made = build.op("Where", goes_on, after, state), build.op("Where", goes_on, made, zero)
        return [after, build.op("Identity", made)]

    shape = build.op("Concat", build.ints([1]), sides[1], build.ints([hidden]), dtype=_INT64, axis=0)
    begin = [each or build.op("Expand", zero, shape) for each in inputs[5 : 5 + count]]
    ways: dict[str, Any] = {"scan_input_directions": [way] * len(sources), "scan_output_directions": [way]}
    state, made = build.scan(build.op("Concat", *begin, axis=2), sources, [0] * len(sources), step, **ways)
    return [made, *parts(state)]


def _norm(build: HalfNodes, value: ir.Value, axis: int, length: int | None, p: int) -> ir.Value:
    """(sum of |x| ^ p) ^ (1 / p) along an axis, which stays with length 1."""
    _check_terms(length)

    def step(state: ir.Value, terms: list[ir.Value]) -> list[ir.Value]:
        return [build.op("Add", state, terms[0])]

    powers = _power(build, value, p)
    start = build.filled_like(build.reduced("ReduceMax", powers, [axis], keepdims=0), 0)
    total = build.scan(start, [powers], [axis], step)[0]
    return _root(build, build.op("Unsqueeze", total, build.ints([axis])), p)


def _power(build: HalfNodes, value: ir.Value, p: int) -> ir.Value:
    if p == 2:
        return build.op("Mul", value, value)
    magnitude = build.op("Abs", value)
    return magnitude if p == 1 else build.op("Pow", magnitude, build.half(p))


def _root(build: HalfNodes, total: ir.Value, p: int) -> ir.Value:
    if p == 2:
        return build.op("Sqrt", total)
    return total if p == 1 else build.op("Pow", total, build.half(1 / p))


def _check_terms(terms: int | None, state: Iterable[int | None] = ()) -> None:
    """Raise NotSplitError where a sum has too many terms, or a Scan too large a state."""
    size = math.prod(side for side in state if side is not None)
    if terms is not None and (terms > TERMS or terms * size > WRITTEN):
        raise NotSplitError(
            coded("sums-not-rounded", f"a sum of {terms} terms, beside {size} numbers; {TERMS} and {WRITTEN} at most")
        )


RULES: dict[str, Rule] = {
    **dict.fromkeys(("CumSum", "CumProd"), cumulate),
    "ScatterElements": scatter_elements,
    "ScatterND": scatter_nd,
    "LpNormalization": lp_normalization,
    "LRN": local_response_normalization,
    "GlobalLpPool": global_lp_pool,
    "LpPool": lp_pool,
    **dict.fromkeys(("RNN", "GRU", "LSTM"), recurrent),
}
