"""Pairs of files that `truehalf verify` must judge rightly, and files that it must read once."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import numpy_helper
from PIL import Image

from tests.cases.doors import fails, loads, parsed, saved, truehalf
from tests.messages import expect
from truehalf import compare
from truehalf.config.verification import VerifyConfig
from truehalf.data import preprocessing

# --- float16 meets float32 in one node (pytorch 190338, onnxconverter-common 320, 329, 331) ---------------------------

_NORM = """r = ReduceMean<axes=[-1], keepdims=1>({x}) s = Sub({x}, r) p = Pow(s, two)
    q = ReduceMean<axes=[-1], keepdims=1>(p) a = Add(q, eps) w = Sqrt(a) y = Div(s, w)"""
_NORM_WEIGHTS = "<float two = {2.0}, float eps = {0.00001}>"
_ZERO = "<float zero = {0.0}>"
MIXED = {
    # name: weights, FP32 nodes, nodes of the FP16 file, one operator at which the types meet
    "epsilon of a norm": (_NORM_WEIGHTS, _NORM.format(x="x"), "t = Cast<to=10>(x) " + _NORM.format(x="t"), "Add"),
    "fill of a Where": (
        "<float zero = {0.0}, float fill = {-1.0}>",
        "c = Greater(x, zero) y = Where(c, x, fill)",
        "t = Cast<to=10>(x) z = Cast<to=10>(zero) c = Greater(t, z) y = Where(c, t, fill)",
        "Where",
    ),
    "Cast to float": (
        _ZERO,
        "m = Greater(x, zero) c = Cast<to=1>(m) y = Mul(x, c)",
        "t = Cast<to=10>(x) m = Greater(x, zero) c = Cast<to=1>(m) y = Mul(t, c)",
        "Mul",
    ),
    "bias": (
        "<float[8] b = {0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 7.0}>",
        "v = Softmax(x) y = Add(v, b)",
        "t = Cast<to=10>(x) v = Softmax(t) y = Add(v, b)",
        "Add",
    ),
}


@pytest.mark.parametrize("case", MIXED)
def test_a_file_in_which_types_meet_fails_with_the_node(tmp_path: Path, case: str) -> None:
    weights, plain, mixed, operator = MIXED[case]
    reference = saved(tmp_path / "fp32.onnx", parsed(f"g (float[n,8] x) => (float[n,8] y) {weights} {{ {plain} }}"))
    candidate = saved(tmp_path / "fp16.onnx", parsed(f"g (float[n,8] x) => (float16[n,8] y) {weights} {{ {mixed} }}"))
    assert loads(reference) and not loads(candidate)
    np.savez(tmp_path / "s.npz", x=np.random.default_rng(0).standard_normal((16, 8)).astype(np.float32) * 2)
    code, printed = truehalf("verify", reference, candidate, "--samples", tmp_path / "s.npz")
    assert code == 1
    expect(printed, None, next(node.name for node in onnx.load(candidate).graph.node if node.op_type == operator))


@pytest.mark.parametrize("case", MIXED)
def test_lint_finds_the_node_in_which_types_meet(tmp_path: Path, case: str) -> None:
    weights, _, mixed, operator = MIXED[case]
    file = saved(tmp_path / "fp16.onnx", parsed(f"g (float[n,8] x) => (float16[n,8] y) {weights} {{ {mixed} }}"))
    code, printed = truehalf("lint", file)
    assert code == 1
    expect(printed, None, next(node.name for node in onnx.load(file).graph.node if node.op_type == operator))


# --- tags in a file's metadata ----------------------------------------------------------------------------------------

TAGS = {
    "command": ('["export.py", "--fp32"]', '["export.py", "--half"]'),
    "tags": ('["v1"]', '["v1", "fp16"]'),
    "args": ("{'device': ['cpu'], 'half': False}", "{'device': ['cuda:0'], 'half': True}"),
    "history": ('["onnxslim"]', '["onnxslim", "onnxconverter-common"]'),
}


def _tagged(path: Path, key: str, value: str) -> Path:
    model = parsed("g (float[n,4] x) => (float[n,4] y) { y = Tanh(x) }")
    onnx.helper.set_model_props(model, {key: value})
    return saved(path, model)


@pytest.fixture
def four_columns(tmp_path: Path) -> Path:
    np.savez(tmp_path / "s.npz", x=np.random.default_rng(0).normal(size=(6, 4)).astype(np.float32))
    return tmp_path / "s.npz"


@pytest.mark.parametrize("key", TAGS)
def test_the_same_file_with_other_tags_passes(tmp_path: Path, four_columns: Path, key: str) -> None:
    """ultralytics writes its arguments into a file, other tools their command and history."""
    before, after = TAGS[key]
    pair = _tagged(tmp_path / "a.onnx", key, before), _tagged(tmp_path / "b.onnx", key, after)
    assert truehalf("verify", *pair, "--samples", four_columns)[0] == 0


def test_exchanged_names_of_classes_fail(tmp_path: Path, four_columns: Path) -> None:
    names = "{0: 'cat', 1: 'dog'}", "{0: 'dog', 1: 'cat'}"
    pair = _tagged(tmp_path / "a.onnx", "names", names[0]), _tagged(tmp_path / "b.onnx", "names", names[1])
    assert truehalf("verify", *pair, "--samples", four_columns)[0] != 0


# --- -inf that a model means (transformers 47674, NVIDIA/TensorRT 3413) -----------------------------------------------

MASKED = """g (float[n,3,32,32] pixels, int64[n,16] ids, int64[n,16] mask) => (float[n,4,16] logits, float[n,4,4] boxes)
    <int64 zero = {0}, float off = {-3.4e38}, int64[3] shape = {0,8,4}, int64[1] one = {1}> {
        c = Conv<strides=[16,16]>(pixels, kernel)  r = Reshape(c, shape)  f = Transpose<perm=[0,2,1]>(r)
        e = Gather(table, ids)  t = Transpose<perm=[0,2,1]>(e)  l = MatMul(f, t)
        is_off = Equal(mask, zero)  wide = Unsqueeze(is_off, one)  logits = Where(wide, minus_inf, l)
        b = MatMul(f, box)  boxes = Sigmoid(b) }"""


@pytest.fixture
def masked(tmp_path: Path) -> tuple[Path, Path]:
    """Grounding DINO's head, small: -inf in the columns of tokens that the prompt has not; and samples."""
    rng = np.random.default_rng(0)
    model = parsed(MASKED)
    arrays = {
        "kernel": rng.standard_normal((8, 3, 16, 16)) / 28,
        "table": rng.standard_normal((50, 8)),
        "box": rng.standard_normal((8, 4)),
        "minus_inf": np.array(-np.inf),
    }
    for name, array in arrays.items():
        model.graph.initializer.append(numpy_helper.from_array(array.astype(np.float32), name))
    mask = np.ones((8, 16), np.int64)
    mask[:, 10:] = 0
    pixels = rng.standard_normal((8, 3, 32, 32)).astype(np.float32)
    np.savez(tmp_path / "s.npz", pixels=pixels, ids=rng.integers(0, 50, (8, 16)), mask=mask)
    return saved(tmp_path / "m.onnx", model), tmp_path / "s.npz"


SPEC = """{"inputs": [{"name": "pixels", "shape": ["n", 3, 32, 32]}], "outputs": [
    {"name": "logits", "kind": "logits", "activation": "sigmoid"},
    {"name": "boxes", "kind": "boxes", "format": "cxcywh", "normalized": true}]}"""


def test_a_model_that_means_minus_inf_is_converted(tmp_path: Path, masked: tuple[Path, Path]) -> None:
    model, samples = masked
    assert truehalf("convert", model, "--samples", samples, "-o", tmp_path / "out.onnx")[0] in (0, 3)


@fails("-inf of the reference ends calibrate and verify")
def test_minus_inf_of_the_reference_is_a_value(tmp_path: Path, masked: tuple[Path, Path]) -> None:
    model, samples = masked
    (tmp_path / "spec.json").write_text(SPEC)
    target = tmp_path / "out.onnx"
    codes = {
        "calibrate": truehalf("calibrate", model, "--samples", samples, "-o", tmp_path / "r.json")[0],
        "convert": truehalf("convert", model, "--samples", samples, "-o", target, "--quiet")[0],
        "inspect": truehalf("inspect", model, "--samples", samples)[0],
        "verify": truehalf("verify", model, target, "--samples", samples)[0],
        "verify --spec": truehalf("verify", model, target, "--samples", samples, "--spec", tmp_path / "spec.json")[0],
    }
    assert {name: code for name, code in codes.items() if code not in (0, 3)} == {}


# --- the pessimistic evaluation ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "pool",
    ["y = GlobalAveragePool(b)", "y = ReduceMean<axes=[2,3]>(b)"],
)
@pytest.mark.parametrize("opset", [13, 17])
def test_pessimistic_evaluation_of_sizes_that_are_not_known(tmp_path: Path, opset: int, pool: str) -> None:
    """PP-OCRv4 detection (Paddle, opset 11, raised to 13)."""
    text = "g ({}[n,8,h,w] x) => ({}[n,8,1,1] y) {{ a = Relu(x) b = Relu(a) " + pool + " }}"
    pair = [saved(tmp_path / f"{kind}.onnx", parsed(text.format(kind, kind), opset)) for kind in ("float", "float16")]
    np.savez(tmp_path / "s.npz", x=np.random.default_rng(0).random((4, 8, 20, 20)).astype(np.float32))
    options = ["--samples", tmp_path / "s.npz", "--evaluation", "emulated-fp16-pessimistic"]
    assert truehalf("verify", *pair, *options)[0] in (0, 3)


def test_a_failing_pair_with_an_if_ends_in_a_verdict_of_the_pessimistic_evaluation(tmp_path: Path) -> None:
    """Silero VAD: branches of an If read values from outside; the search for the node at fault clones their graph."""
    text = """g ({0}[n,8] x) => ({0}[n,8] y) <float zero = {{0.0}}, float factor = {{{1}}}> {{ k = CastLike(factor, x)
        a = Relu(x)  m32 = Cast<to=1>(a)  m = ReduceMean<keepdims=0>(m32)  c = Greater(m, zero)
        i = If(c) <then_branch = t () => ({0}[n,8] p) {{
                       q = Mul(a, k) j = If(c) <then_branch = tt () => ({0}[n,8] o) {{ o = Add(q, a) }},
                                                else_branch = ee () => ({0}[n,8] u) {{ u = Relu(q) }}>
                       p = Softmax(j) }},
                   else_branch = e () => ({0}[n,8] r) {{ r = Mul(a, k) }}>
        y = Tanh(i) }}"""
    reference = saved(tmp_path / "a.onnx", parsed(text.format("float", "0.5")))
    candidate = saved(tmp_path / "b.onnx", parsed(text.format("float16", "0.8")))
    np.savez(tmp_path / "s.npz", x=np.random.default_rng(0).random((4, 8)).astype(np.float32))
    options = ["--samples", tmp_path / "s.npz", "--evaluation", "emulated-fp16-pessimistic", "--locate", "always"]
    assert truehalf("verify", reference, candidate, *options)[0] == 1


# --- how often images are read ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 25])
def test_images_are_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, batch: int) -> None:
    """Near ties in every image: 60 images caused 5,550 reads."""
    counted = []
    prepared = preprocessing.Preprocessing.apply

    def counting(self: preprocessing.Preprocessing, *options: Any, **named: Any) -> Any:
        counted.append(options)
        return prepared(self, *options, **named)

    monkeypatch.setattr(preprocessing.Preprocessing, "apply", counting)
    rng = np.random.default_rng(0)
    (tmp_path / "images").mkdir()
    for i in range(20):
        pixels = rng.integers(100, 104, (16, 16, 3), dtype=np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{i:03}.png")
    text = """g (float[n,3,16,16] images) => (int64[n] best) <float[3] w = {WEIGHTS}> {
        m = ReduceMean<axes=[2,3], keepdims=0>(images) y = Add(m, w) best = ArgMax<axis=1, keepdims=0>(y) }"""
    pair = []
    for name, weights in (("a", "{0.0, 0.0, 0.0}"), ("b", "{0.0003, 0.0, -0.0003}")):
        pair.append(saved(tmp_path / f"{name}.onnx", parsed(text.replace("{WEIGHTS}", weights))))
    options = VerifyConfig(batch=batch)
    compare(*pair, tmp_path / "images", spec={}, locate=False, options=options, preprocessing={"size": [16, 16]})
    assert len(counted) == 20
