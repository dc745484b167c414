"""Each pass on small random graphs: where ONNX Runtime runs the old one, it runs the new one, to the same outputs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from random import Random
from typing import Any, NamedTuple

import numpy as np
import onnx
import onnx_ir as ir
import pytest

from tests.truehalf.patterns.repairing import assert_equal, ops, parsed, run
from truehalf.patterns import PASSES, RepairReport, repair

GRAPHS = 24  # of each kind
Feed = Mapping[str, Any]


class Case(NamedTuple):
    model: onnx.ModelProto
    feeds: list[Feed]
    rtol: float = 0.0


def graph(text: str, *, shapeless: bool = False) -> onnx.ModelProto:
    model = parsed(text)
    for output in model.graph.output if shapeless else ():
        output.type.tensor_type.ClearField("shape")
    return model


def fixed(model: onnx.ModelProto, *passes: str) -> tuple[onnx.ModelProto, RepairReport]:
    """Without onnx's checker, which takes no output without a shape; ONNX Runtime checks what it loads."""
    made = ir.from_proto(onnx.ModelProto.FromString(model.SerializeToString()))
    report = repair(made, passes)
    return ir.to_proto(made), report


def numbers(rng: Random, *shape: int, low: float = -1.0, high: float = 1.0) -> np.ndarray:
    return np.random.default_rng(rng.randrange(1 << 30)).uniform(low, high, shape).astype(np.float32)


def moved_sizes(rng: Random) -> Case:
    """Sizes and small constants of three types, moved and added."""
    types = {"int64": 7, "int32": 6, "uint8": 2}
    known: dict[str, np.ndarray] = {"s": np.array([2, 3, 4]), "t": np.array([3, 4])}
    body, constants = "s = Shape (x)  t = Shape <start = 1> (x)  ", list[str]()

    def constant(array: np.ndarray, name: str) -> str:
        dims = f"[{','.join(map(str, array.shape))}]" if array.ndim else ""
        constants.append(f"{array.dtype}{dims} {name} = {{{', '.join(map(str, array.ravel()))}}}")
        return name

    for index, dtype in enumerate(types):
        shape = rng.choice([(), (1,), (3,), (2, 2)])
        array = np.array(rng.choices(range(1, 9), k=int(np.prod(shape))), dtype).reshape(shape)
        known[constant(array, f"k{index}")] = array
    for step in range(rng.randrange(4, 10)):
        name, source = f"v{step}", rng.choice([each for each, array in known.items() if array.size])
        array, other = known[source], rng.choice(list(known))
        ints = [rng.randrange(-4, 6) for _ in range(2)]
        match rng.choice(["Gather", "Slice", "Concat", "Unsqueeze", "Squeeze", "Cast", "Reshape", "Arithmetic"]):
            case "Gather" if array.ndim:
                axis, count = rng.randrange(array.ndim), rng.choice([(), (1,), (2,), (1, 2)])
                size = array.shape[axis]
                at = np.array([rng.randrange(-size, size) for _ in range(int(np.prod(count)))]).reshape(count)
                body += f"{name} = Gather <axis = {axis}> ({source}, {constant(at, f'{name}_at')})  "
                known[name] = np.take(array, at, axis)
            case "Slice" if array.ndim:
                step_by = rng.choice([1, 1, 2])
                ends = [constant(np.array([end]), f"{name}_{i}") for i, end in enumerate((*ints, 0, step_by))]
                body += f"{name} = Slice ({source}, {', '.join(ends)})  "
                known[name] = array[slice(*ints, step_by)]
            case "Concat" if array.ndim and known[other].dtype == array.dtype and known[other].shape == array.shape:
                axis = rng.randrange(array.ndim)
                body += f"{name} = Concat <axis = {axis}> ({source}, {other})  "
                known[name] = np.concatenate([array, known[other]], axis)
            case "Unsqueeze":
                axis = rng.randrange(-array.ndim - 1, array.ndim + 1)
                body += f"{name} = Unsqueeze ({source}, {constant(np.array([axis]), f'{name}_axis')})  "
                known[name] = np.expand_dims(array, axis)
            case "Squeeze":
                body += f"{name} = Squeeze ({source})  "
                known[name] = array.squeeze()
            case "Cast":
                to = rng.choice(list(types))
                body += f"{name} = Cast <to = {types[to]}> ({source})  "
                known[name] = array.astype(to)
            case "Reshape":
                body += f"{name} = Reshape ({source}, {constant(np.array([-1]), f'{name}_flat')})  "
                known[name] = array.reshape(-1)
            case "Arithmetic" if array.dtype == known[other].dtype != np.uint8 and array.shape == known[other].shape:
                how = rng.choice(["Add", "Mul"])
                body += f"{name} = {how} ({source}, {other})  "
                known[name] = array + known[other] if how == "Add" else array * known[other]
    ends = list(known)[-3:]
    body += "  ".join(f"y{index} = Identity ({end})" for index, end in enumerate(ends))
    outputs = ", ".join(f"{known[end].dtype} y{index}" for index, end in enumerate(ends))
    dims = rng.choice(["2, 3, 4", "n, 3, 4", "2, m, 4", "n, m, 4"])
    text = f"net (float[{dims}] x) => ({outputs}) <{', '.join(constants)}> {{ {body} }}"
    return Case(graph(text, shapeless=True), [{"x": np.zeros((2, 3, 4), np.float32)}])


def indexed(rng: Random) -> Case:
    """Reading and writing under a mask, whose sizes may be others than those of what it indexes."""
    mask = rng.choice(["mask", "c"])
    rank, sizes = rng.choice([1, 2]), rng.choice([("n", "n"), ("n", "m"), ("3", "3"), ("3", "1"), ("n", "1")])
    rows, behind = (2 if sizes[0] == "n" else 3), [] if rank == 1 else ["4"]
    of_x, of_mask = ", ".join([sizes[0], *behind]), ", ".join([sizes[1], *behind[: rng.randrange(2)]])
    how = rng.choice(
        [
            "s = Shape (at)  n = Gather (s, zero)  one = Expand (v, n)  y = ScatterND (x, at, one)",
            "rows = GatherND (u, at)  y = ScatterND (x, at, rows)",
            "rows = GatherND (u, at)  y = Neg (rows)",
        ]
    )
    text = f"""net (float[{of_x}] z, float[{of_x}] u, bool[{of_mask}] mask, float[{of_mask}] score) => (float y)
    <int64[1] zero = {{0}}, float[1] v = {{9.0}}, float half = {{0.5}}>
    {{ x = {rng.choice(["Sigmoid (z)", "Exp (z)"])}  c = Greater (score, half)  nz = NonZero ({mask})
       at = Transpose <perm = [1, 0]> (nz)  {how} }}"""
    feeds = []
    for of_mask_rows in ({"n": [0, rows], "m": [1, rows], "3": [3], "1": [1]})[sizes[1]]:
        of_x_rows = of_mask_rows if sizes == ("n", "n") else rows
        x, over = (of_x_rows, *(4 for _ in behind)), (of_mask_rows, *(4 for _ in of_mask.split(",")[1:]))
        feed = {"z": numbers(rng, *x), "u": numbers(rng, *x), "score": numbers(rng, *over, low=0.0)}
        feeds.append(feed | {"mask": numbers(rng, *over) > 0})
    return Case(graph(text, shapeless=True), feeds, rtol=1e-6)  # the order of float32 sums


def sampled(rng: Random) -> Case:
    """GridSample of every option, of small and empty pictures."""
    height, width = rng.randrange(1, 5), rng.randrange(1, 5)
    size = rng.choice([f"{height}, {width}", "h, w", f"{height}, w"])
    options = f'align_corners = {rng.randrange(2)}, padding_mode = "{rng.choice(["zeros", "border", "reflection"])}"'
    text = f"""net (float[n, c, {size}] x, float[n, p, q, 2] grid) => (float[n, c, p, q] y)
    {{ y = GridSample <{options}, mode = "{rng.choice(["bilinear", "bilinear", "nearest"])}"> (x, grid) }}"""
    feeds = []
    for _ in range(2):
        batch, points = rng.choice([1, 2, 0]), (rng.randrange(4), rng.randrange(3))
        grid = numbers(rng, batch, *points, 2, low=-1.5, high=1.5)
        feeds.append({"x": numbers(rng, batch, 2, height, width), "grid": grid})
    return Case(graph(text), feeds, rtol=5e-7)  # sums of four products in another order


def tables(rng: Random) -> Case:
    """Sines and cosines of positions, repeated and added to data."""
    steps, wave = rng.randrange(2, 7), rng.choice(["Sin", "Cos"])
    repeats = rng.choice([[1, 2], [2, 1], [2, 2], [1, 9], [1, 1]])
    where = rng.choice(["angles", "rows"])
    text = f"""net (float[{steps}, 2] x) => (float y)
    <int64 zero = {{0}}, int64 one = {{1}}, int64 steps = {{{steps}}}, float[2] rates = {{1.0, 0.25}},
     int64[1] last = {{1}}, int64[2] repeats = {{{repeats[0]}, {repeats[1]}}}>
    {{ at = Range (zero, steps, one)  f = Cast <to = 1> (at)  rows = Unsqueeze (f, last)
       angles = Mul (rows, rates)  t = {wave} ({where})
       d = {rng.choice(["Mul (t, x)", "Cos (x)"])}
       e = Tile ({rng.choice(["t", "d"])}, repeats)  g = Tile (t, repeats)
       y = {rng.choice(["Add (e, e)", "Neg (g)"])} }}"""
    return Case(graph(text, shapeless=True), [{"x": numbers(rng, steps, 2)}], rtol=1e-6)  # numpy's sine


def reshaped(rng: Random) -> Case:
    """Reshape of what a count of true elements sizes."""
    sizes = rng.choice(["rows, one", "one, rows", "rows, minus", "one, rows, one", "rows", "rows, none"])
    dtype, v = rng.choice([("float", "GatherND (x, at)"), ("int64", "Transpose (nz)")])
    text = f"""net (float[n] x, bool[n] mask) => ({dtype} y)
    <int64[1] zero = {{0}}, int64[1] one = {{1}}, int64[1] minus = {{-1}}, int64[1] none = {{0}}>
    {{ nz = NonZero (mask)  at = Transpose <perm = [1, 0]> (nz)
       v = {v}
       s = Shape (v)  rows = Gather (s, zero)  sizes = Concat <axis = 0> ({sizes})  y = Reshape (v, sizes) }}"""
    masks = [np.array([True, False, True]), np.array([True])]
    return Case(graph(text, shapeless=True), [{"x": numbers(rng, len(mask)), "mask": mask} for mask in masks])


def folded(rng: Random) -> Case:
    return rng.choice([moved_sizes, tables])(rng)


def unnamed(rng: Random) -> Case:
    """Any of the others, with nodes without a name or with one name."""
    case = rng.choice([moved_sizes, indexed])(rng)
    for node in case.model.graph.node:
        node.name = rng.choice([node.name, "", "/net/same"])
    return case


KINDS: dict[str, Callable[[Random], Case]] = {
    "allowzero": reshaped,
    "fold_constants": folded,
    "grid_sample_gather": sampled,
    "bool_index": indexed,
    "deduplicate_names": unnamed,
}
NEVER_REFUSE = {"deduplicate_names"}


def assert_equal_where_it_ran(case: Case, after: onnx.ModelProto) -> int:
    """Compare; on how many feeds."""
    compared, before = 0, onnx.ModelProto.FromString(case.model.SerializeToString())
    for node in before.graph.node:
        node.name = ""  # ONNX Runtime takes none, and no name twice
    for feed in case.feeds:
        try:
            run(before, feed)
        except Exception:  # ONNX Runtime's own, of whatever class
            continue
        assert_equal(before, after, [feed], case.rtol)
        compared += 1
    return compared


def test_every_pass_has_its_kind_of_graphs() -> None:
    assert set(KINDS) == set(PASSES)


@pytest.mark.parametrize("name", KINDS)
def test_random_graphs_keep_their_outputs(name: str) -> None:
    changed = refused = compared = 0
    for seed in range(GRAPHS):
        case = KINDS[name](Random(seed))
        reports = list[RepairReport]()
        for passes in ([name], list(PASSES)):
            after, report = fixed(case.model, *passes)
            compared += assert_equal_where_it_ran(case, after)
            reports.append(report)
        changed += reports[0].counts[name]
        refused += len(reports[0].refused)
    assert changed > 0, "no graph has the pattern: nothing was tested"
    assert compared > GRAPHS
    assert (refused > 0) == (name not in NEVER_REFUSE)  # both sides of the rule were met


def test_a_fault_of_a_pass_is_found() -> None:
    case = moved_sizes(Random(0))
    after, _ = fixed(case.model, "fold_constants")
    assert ops(after)
    for tensor in after.graph.initializer:
        tensor.CopyFrom(onnx.numpy_helper.from_array(onnx.numpy_helper.to_array(tensor) + 1, tensor.name))
    with pytest.raises(AssertionError):
        assert_equal_where_it_ran(case, after)
