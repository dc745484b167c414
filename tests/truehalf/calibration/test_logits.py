"""Logits inside fused attentions against numpy, and what they decide."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

from tests.messages import expect
from truehalf.calibration.calibrate import calibrate
from truehalf.calibration.ranges import Scanner
from truehalf.calibration.sums import reductions
from truehalf.config.precision import Precision
from truehalf.conversion.convert import convert_model
from truehalf.ir.normalize import PREPARE, InferTypes

GENERATOR = np.random.default_rng(7)
HEADS = {"q": (2, 4, 5, 8), "k": (2, 2, 7, 8), "v": (2, 2, 7, 8), "pk": (2, 2, 3, 8), "pv": (2, 2, 3, 8)}
PACKED = {"q": (2, 5, 32), "k": (2, 7, 16), "v": (2, 7, 16), "pk": (2, 2, 3, 8), "pv": (2, 2, 3, 8)}
BIASED = HEADS | {"m": (5, 7)}
ATTRIBUTES = "q_num_heads = 4, kv_num_heads = 2"


def drawn(shapes: dict[str, tuple[int, ...]], gain: float = 1.0) -> dict[str, np.ndarray]:
    sizes = {"q": gain, "k": gain}
    return {name: np.float32(GENERATOR.normal(size=shape) * sizes.get(name, 1.0)) for name, shape in shapes.items()}


def split(x: np.ndarray, heads: int) -> np.ndarray:
    return x if x.ndim == 4 else x.reshape(*x.shape[:2], heads, -1).transpose(0, 2, 1, 3)


def largest(feed: dict[str, np.ndarray], with_past: bool, scale: float) -> float:
    q, k = split(feed["q"], 4), split(feed["k"], 2)
    k = np.concatenate([feed["pk"], k], axis=2) if with_past else k
    batch, _, rows, length = q.shape
    grouped = q.reshape(batch, k.shape[1], -1, rows, length).astype(np.float64)
    return float(np.abs(np.einsum("bhgsd,bhtd->bhgst", grouped, k)).max() * scale)


def attention(shapes: dict[str, tuple[int, ...]], node: str, opset: int) -> ir.Model:
    read = ", ".join(f"float[{','.join(map(str, shape))}] {name}" for name, shape in shapes.items())
    written = "z, pk2, pv2" if "pk" in node else "z"
    model = ir.from_onnx_text(
        f'<ir_version: 10, opset_import: ["" : {opset}]> g ({read}) => (float y) '
        f"{{ [att] {written} = {node}  y = ReduceMax<keepdims = 0>(z) }}"
    )
    PREPARE(model)
    InferTypes()(model)
    return model


CASES = [
    (HEADS, "Attention(q, k, v)", False, 8**-0.5),
    (HEADS, "Attention<scale = 3.0, softcap = 5.0>(q, k, v)", False, 3.0),
    (HEADS, "Attention<is_causal = 1>(q, k, v)", False, 8**-0.5),
    (BIASED, "Attention(q, k, v, m)", False, 8**-0.5),
    (HEADS, 'Attention(q, k, v, "", pk, pv)', True, 8**-0.5),
    (PACKED, f"Attention<{ATTRIBUTES}>(q, k, v)", False, 8**-0.5),
    (PACKED, f'Attention<{ATTRIBUTES}, scale = 2.0>(q, k, v, "", pk, pv)', True, 2.0),
]


@pytest.mark.parametrize("opset", [23, 24])
@pytest.mark.parametrize(("shapes", "node", "with_past", "scale"), CASES)
def test_logits_are_those_of_numpy(
    shapes: dict[str, tuple[int, ...]], node: str, with_past: bool, scale: float, opset: int
) -> None:
    model, feed = attention(shapes, node, opset), drawn(shapes)
    (found,) = reductions(model)
    assert found.quantity == "logit"
    (value,) = Scanner(model, [], [found]).run(feed).inner
    assert value == pytest.approx(largest(feed, with_past, scale), rel=1e-5)


def converted(shapes: dict[str, tuple[int, ...]], node: str, gain: float) -> tuple[str, str, float]:
    """Rule and reason of the attention, and the error of what ONNX Runtime computes of it."""
    model, feed = attention(shapes, node, 23), drawn(shapes, gain)
    ranges = calibrate(model, [feed])
    exact = ort.InferenceSession(ir.to_proto(model).SerializeToString()).run(None, feed)[0]
    made = convert_model(model, Precision(fp16_ops=("Attention", "ReduceMax"), data_max=None), ranges)
    row = next(row for row in made.decisions if row["node"] == "att")
    half = ort.InferenceSession(ir.to_proto(made.model).SerializeToString()).run(None, feed)[0]
    return row["rule"], row["reason"], float(np.abs(half - exact).max())


@pytest.mark.parametrize(("shapes", "node", "with_past", "scale"), CASES)
def test_an_attention_whose_logits_overflow_stays_float32(
    shapes: dict[str, tuple[int, ...]], node: str, with_past: bool, scale: float
) -> None:
    rule, reason, error = converted(shapes, node, 600.0)
    expect(reason, None, "logit", "Attention", 65504)
    assert (rule, error) == ("inner", pytest.approx(0, abs=1e-2))


@pytest.mark.parametrize(("shapes", "node", "with_past", "scale"), CASES)
def test_large_logits_that_float16_holds_stay_float16(
    shapes: dict[str, tuple[int, ...]], node: str, with_past: bool, scale: float
) -> None:
    rule, _, error = converted(shapes, node, 15.0)
    assert (rule, error) == ("fp16_ops", pytest.approx(0, abs=1e-2))


@pytest.mark.parametrize("seed", range(4))
def test_attentions_that_a_generator_draws(seed: int) -> None:
    random = np.random.default_rng(seed)
    heads, groups, length = int(random.integers(1, 4)), int(random.integers(1, 3)), int(random.choice([4, 16, 32]))
    rows, keys = random.integers(1, 20, 2)
    shapes = {
        "q": (1, heads * groups, int(rows), length),
        "k": (1, heads, int(keys), length),
        "v": (1, heads, int(keys), 6),
    }
    feed = drawn(shapes)
    grouped = feed["q"].reshape(1, heads, groups, int(rows), length)
    logit = np.abs(np.einsum("bhgsd,bhtd->bhgst", grouped, feed["k"])).max() / length**0.5
    for factor, rule in ((0.9, "fp16_ops"), (1.1, "inner")):
        given = feed | {"q": np.float32(feed["q"] * (65504 * factor / logit / 100)), "k": feed["k"] * 100}
        model = attention(shapes, f"Attention<is_causal = {seed % 2}>(q, k, v)", 23)
        ranges = calibrate(model, [given])
        precision = Precision(fp16_ops=("Attention",), data_max=None, safety_factor=1.0)
        rules = {row["node"]: row["rule"] for row in convert_model(model, precision, ranges).decisions}
        assert rules["att"] == rule
