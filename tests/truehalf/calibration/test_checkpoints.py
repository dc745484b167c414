"""Where a second run may begin."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from truehalf.calibration.checkpoints import checkpoints
from truehalf.calibration.ranges import Counter, Scanner
from truehalf.ir.normalize import InferTypes


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
    """Inside a layer its input crosses, too; between two layers only h."""
    found = checkpoints(model_of(f"{layers(40)}  y = Relu(h40)"))
    assert len(found) == 7
    assert all(name.startswith("h") for name in found)
    places = [int(name[1:]) for name in found]
    assert all(abs(place - 5 * piece) <= 3 for piece, place in enumerate(places, 1))


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
