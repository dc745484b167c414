"""Errors of nodes alone and in the candidate's own run, against NumPy."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from tests.messages import raises
from truehalf.calibration.instrument import Instrumented
from truehalf.verification.localize.align import align
from truehalf.verification.localize.node_errors import Comparer, Errors, Switched
from truehalf.verification.localize.side_by_side import side_by_side

FEEDS = {"x": np.float32([[1.1, -2.3], [0.7, 3.3]])}


def model(text: str, opset: int = 17) -> ir.Model:
    return ir.from_proto(onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]>\n{text}'))


def compared(reference: ir.Model, candidate: ir.Model, feeds: dict[str, np.ndarray]) -> dict[str, tuple[float, float]]:
    """(local_error, error) by tensor of the reference."""
    comparer = Comparer(side_by_side(reference, candidate, align(reference, candidate)))
    errors: Errors = comparer.run(feeds)
    return {p.reference: (errors.local_error[i], errors.error[i]) for i, p in enumerate(comparer.pairs)}


REFERENCE = """g (float[2,2] x) => (float[2,2] y)
<float[1] k = {3.0}, float[2,2] w = {1.0, 2.0, 3.0, 5.0}> { a = Mul(x, k)  b = MatMul(a, w)  y = Neg(b) }"""
HALF = """g (float[2,2] x) => (float[2,2] y)
<float16[1] k = {16896}, float16[2,2] w = {15360, 16384, 16896, 17664}>
{ h = Cast<to = 10>(x)  a = Mul(h, k)  b = MatMul(a, w)  n = Neg(b)  y = Cast<to = 1>(n) }"""


def relative(x: np.ndarray, t: np.ndarray) -> float:
    d = x.astype(np.float64) - t
    return max(np.linalg.norm(d) / np.linalg.norm(t), np.abs(d).max() / np.abs(t).max())


def test_errors_are_those_of_half_precision() -> None:
    found = compared(model(REFERENCE), model(HALF), FEEDS)
    x, w = FEEDS["x"], np.float32([[1, 2], [3, 5]])
    a, own_a = x * np.float32(3), x.astype(np.float16) * np.float16(3)
    b, own_b = a @ w, (own_a.astype(np.float32) @ w).astype(np.float16)
    alone_b = (a.astype(np.float16).astype(np.float32) @ w).astype(np.float16)
    assert found["a"] == pytest.approx([relative(own_a, a)] * 2, rel=1e-5)
    assert found["b"] == pytest.approx([relative(alone_b, b), relative(own_b, b)], rel=1e-5)
    alone_y = -b.astype(np.float16)
    assert found["y"] == pytest.approx([relative(alone_y, -b), relative(-own_b, -b)], rel=1e-5)


def test_a_wrong_weight_is_an_error_of_its_own_node_alone() -> None:
    wrong = model(HALF.replace("16896, 17664}", "16896, 0}"))
    found = compared(model(REFERENCE), wrong, FEEDS)
    b = FEEDS["x"] @ (3 * np.float32([[1, 2], [3, 5]]))
    assert found["b"][0] == pytest.approx(relative(FEEDS["x"] @ (3 * np.float32([[1, 2], [3, 0]])), b), rel=1e-2)
    assert found["a"][0] < 1e-3
    assert found["y"][0] < 1e-3 < found["b"][0] == pytest.approx(found["y"][1], rel=1e-2)


def test_an_overflow_is_the_fault_of_who_writes_it() -> None:
    found = compared(model(REFERENCE), model(HALF), {"x": np.full((2, 2), 3e4, np.float32)})
    assert found["a"] == (np.inf, np.inf)
    assert found["b"][0] == np.inf  # 65504 * 4 is too much as well
    assert found["y"] == (pytest.approx((240000 * 3 - 65504) / 720000, abs=0.05), np.inf)


def test_masks_do_not_count() -> None:
    text = (
        """g (float[1,3] x) => (float[1,3] y) <float[1,3] m = {0.0, 0.0, -3.4e38}> { s = Add(x, m)  y = Softmax(s) }"""
    )
    half = """g (float[1,3] x) => (float[1,3] y) <float16[1,3] m = {0, 0, 64511}>
    { h = Cast<to = 10>(x)  s = Add(h, m)  p = Softmax(s)  y = Cast<to = 1>(p) }"""
    found = compared(model(text), model(half), {"x": np.float32([[0.1, 0.2, 0.3]])})
    assert 0 < found["s"][0] < 1e-3
    assert 0 < found["y"][0] < 1e-3


def test_tensors_with_masks_leave_one_session(monkeypatch: pytest.MonkeyPatch) -> None:
    """However many batches are run; opened again only for tensors that held no mask before."""
    text = """g (float[1,3] x, float[1,3] m) => (float[1,3] y)
    { s = Add(x, m)  t = Sub(x, m)  u = Min(s, x)  y = Add(t, u) }"""
    comparer = Comparer(side_by_side(model(text), model(text), {name: name for name in "stuy"}))
    comparer.run({name: np.ones((1, 3), np.float32) for name in "xm"})
    opened: list[list[str]] = []
    before = Instrumented.open

    def counted(graph: Instrumented, outputs: list[str], **options: object) -> object:
        opened.append(list(outputs))
        return before(graph, outputs, **options)

    monkeypatch.setattr(Instrumented, "open", counted)
    masked = {"x": np.ones((1, 3), np.float32), "m": np.float32([[0, 0, -1e38]])}
    for _ in range(3):
        assert (comparer.run(masked).local_error == 0).all()
    assert len(opened) == 1 and opened[0][0] == "s"
    assert (comparer.run(masked | {"x": np.zeros((1, 3), np.float32), "m": masked["m"] * 0}).local_error == 0).all()
    assert len(opened) == 1


def test_of_nothing_anything_is_all() -> None:
    reference = model("g (float[2] x) => (float[2] y) { a = Relu(x)  y = Neg(a) }")
    candidate = model("g (float[2] x) => (float[2] y) { a = Abs(x)  y = Neg(a) }")
    assert compared(reference, candidate, {"x": np.float32([-1e-6, -1])})["a"] == (1, 1)
    assert compared(reference, reference, {"x": np.float32([-1, -1])})["a"] == (0, 0)


def test_integers_come_from_the_reference() -> None:
    """The candidate takes its rows in another order; who gathers them is not at fault."""
    reference = model(
        """g (float[4,1] x) => (float[2,1] y) <int64[1] n = {2}>
        { f = Squeeze(x)  v, i = TopK(f, n)  r = Gather(x, i)  y = Neg(r) }"""
    )
    candidate = model(
        """g (float[4,1] x) => (float[2,1] y) <int64[1] n = {2}>
        { g = Squeeze(x)  f = Neg(g)  v, i = TopK(f, n)  r = Gather(x, i)  y = Neg(r) }"""
    )
    found = compared(reference, candidate, {"x": np.float32([[1], [2], [3], [4]])})
    assert found["r"][0] == 0 < found["r"][1]
    assert found["f"][0] == 2


def test_nodes_of_one_side_alone_go_along() -> None:
    """The candidate writes x * x * 0.5 + 1 with other steps; only what both have is compared."""
    reference = model(
        """g (float[2] x) => (float[2] y) <float[1] h = {0.5}, float[1] o = {1.0}>
        { s = Mul(x, x)  t = Mul(s, h)  y = Add(t, o) }"""
    )
    candidate = model(
        """g (float[2] x) => (float[2] y) <float[1] h = {0.5}, float[1] e = {2.0}, float[1] o = {1.0}>
        { p = Pow(x, e)  q = Cast<to = 10>(p)  r = Cast<to = 1>(q)  t = Mul(r, h)  y = Add(t, o) }"""
    )
    found = compared(reference, candidate, {"x": np.float32([1.7, 2.9])})
    assert "s" not in found
    assert 0 < found["t"][0] < 1e-3
    assert found["y"][0] == 0


def test_bodies_and_opsets() -> None:
    text = """g (float[2] x, bool c) => (float[2] y) {
        a = Neg(x)
        y = If(c) <
            then_branch = t () => (float[2] o1) { o1 = Mul(a, x) },
            else_branch = e () => (float[2] o2) { o2 = Identity(a) }
        >
    }"""
    feeds = {"x": np.float32([1, 2]), "c": np.array(True)}
    assert compared(model(text, 13), model(text, 17), feeds)["y"] == (0, 0)
    wrong = model(text.replace("Mul(a, x)", "Add(a, x)"))
    found = compared(model(text), wrong, feeds)
    assert found["a"] == (0, 0)
    assert found["y"] == (1, 1)
    positive = model(text.replace("a = Neg(x)", "a = Abs(x)"))  # read inside the body
    side = side_by_side(model(text), positive, {"a": "a", "y": "y"})
    assert Switched(side, [[side.pairs[0]]]).run(feeds, [0])["y"].tolist() == [1, 4]


def test_nodes_are_exchanged_one_by_one_and_together() -> None:
    reference = model(REFERENCE)
    candidate = model(HALF.replace("{16896}", "{17408}"))  # k = 4
    side = side_by_side(reference, candidate, align(reference, candidate))
    groups = [[pair] for pair in side.pairs]
    session = Switched(side, groups)
    whole = FEEDS["x"] @ (3 * np.float32([[1, 2], [3, 5]]))
    by_tensor = {group[0].reference: session.run(FEEDS, [i])["y"] for i, group in enumerate(groups)}
    np.testing.assert_allclose(by_tensor["a"], -whole * 4 / 3, rtol=2e-3)
    np.testing.assert_allclose(by_tensor["b"], -whole, rtol=2e-3)
    assert (by_tensor["y"] != -whole).any()
    own = Comparer(side).run(FEEDS).candidate["y"]
    np.testing.assert_array_equal(session.run(FEEDS, range(len(groups)))["y"], own)
    np.testing.assert_array_equal(session.run(FEEDS, [])["y"], Comparer(side).run(FEEDS).reference["y"])


def test_another_input_is_refused() -> None:
    with raises("not-comparable", "'z'", "'x'"):
        side_by_side(model(REFERENCE), model("g (float[2,2] z) => (float[2,2] y) { y = Neg(z) }"), {"y": "y"})
