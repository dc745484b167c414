"""Where a second run may begin."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from truehalf.calibration import checkpoints as module
from truehalf.calibration.ranges import Counter, Scanner
from truehalf.ir.normalize import InferTypes

PLENTY = 1e9


def checkpoints(model: ir.Model, bytes_max: float = PLENTY) -> list[str]:
    return module.checkpoints(model, bytes_max)


def model_of(body: str, head: str = "(float[N,8] h0, float[8,8] w) => (float[N,8] y)") -> ir.Model:
    model = ir.from_onnx_text(f'<ir_version: 8, opset_import: ["": 17]> g {head} {{ {body} }}')
    InferTypes()(model)
    return model


def layers(count: int, node: str = "MatMul(h{0}, w)") -> str:
    return "  ".join(
        f"m{i} = {node.format(i)}  t{i} = Tanh(m{i})  u{i} = Neg(t{i})  h{i + 1} = Add(u{i}, h{i})"
        for i in range(count)
    )


def test_a_chain_is_parted_where_one_tensor_crosses() -> None:
    """Inside a layer its input crosses, too; between two layers only h (32 bytes)."""
    model = model_of(f"{layers(72)}  y = Relu(h72)")
    assert pieces(checkpoints(model), 3) == 24
    assert pieces(checkpoints(model, bytes_max=32 * 22), 9) == 8, "fewer where so many would be too large"


def pieces(found: list[str], layers_of_each: int) -> int:
    """How many pieces of as many layers they part the chain into."""
    assert all(name.startswith("h") for name in found)
    places = [int(name[1:]) for name in found]
    assert all(abs(place - layers_of_each * piece) <= layers_of_each / 2 for piece, place in enumerate(places, 1))
    return len(found) + 1


def test_small_graphs_and_unknown_sizes_have_none() -> None:
    assert checkpoints(model_of(f"{layers(10)}  y = Relu(h10)")) == []
    model = model_of(f"{layers(40, 'Relu(h{0})')}  y = Relu(h40)", "(float[N,K] h0) => (float[N,K] y)")
    assert checkpoints(model) == []


def test_what_subgraphs_read_crosses() -> None:
    branch = "y = If(c) <then_branch = t () => (float[N,8] a) { a = Add(h40, m3) }, "
    branch += "else_branch = e () => (float[N,8] b) { b = Identity(h40) }>"
    model = model_of(f"{layers(40)}  {branch}", "(float[N,8] h0, float[8,8] w, bool c) => (float[N,8] y)")
    found = checkpoints(model)
    assert "m3" in found
    feeds = {"h0": np.ones((1, 8), np.float32), "w": np.eye(8, dtype=np.float32), "c": np.array(True)}
    scan = Scanner(model, ["y", "m3"], found).run(feeds)
    counts = Counter(model, {"y": (0.5,), "m3": (0.5,)}, set(), given=found).run(scan.kept | feeds)
    plain = Counter(model, {"y": (0.5,), "m3": (0.5,)}, set()).run(feeds)
    assert counts == plain


def test_sequences_do_not_cross() -> None:
    body = f"s = SequenceConstruct(h0, h0)  {layers(40)}  k = Constant<value = int64 {{0}}>()  z = SequenceAt(s, k)"
    assert checkpoints(model_of(f"{body}  y = Add(z, h40)")) == []
