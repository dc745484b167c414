"""Faults that other converters are known for, each shown on the peer and absent in truehalf.

The halves that run a peer need `make bench-peers` and are skipped without it; ONNX Runtime's converter is always here.
A peer's half that fails says that the peer has fixed the fault: state its new version in benchmarks/peers.txt.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import ClassVar

import numpy as np
import onnx
import pytest

from tests.conftest import ROOT
from tests.measuring.process import measured
from tests.messages import raises
from tests.peers.conversion import (
    FLOAT,
    FLOAT16,
    Arrays,
    by_peer,
    by_us,
    command,
    half_weights,
    is_valid,
    op_type_of,
    write,
)
from truehalf.conversion.casts_of_file import clean_casts

HEADER = '<ir_version: 8, opset_import: ["" : 17]>'


class TestTwoBlockedNodesReadOneTensor:
    """microsoft/onnxruntime#27469: same-named Casts, one for each blocked node, at the end of the list of nodes."""

    TEXT = f"""{HEADER} agraph (float[2, 8] x) => (float[2, 8] y) {{
        r = Relu(x)
        a = Softmax<axis = -1>(r)
        b = Softmax<axis = 0>(r)
        y = Add(a, b)
    }}"""

    def test_onnxruntime(self, tmp_path: Path) -> None:
        made = by_peer("onnxruntime", write(tmp_path, self.TEXT), fix=False, slim=False, more_blocked=["Softmax"])
        casts = [node.output[0] for node in onnx.load(made).graph.node if node.op_type == "Cast"]
        assert len(casts) > len(set(casts))
        assert not is_valid(made)

    def test_truehalf(self, tmp_path: Path) -> None:
        made = by_us(write(tmp_path, self.TEXT), op_block_list=["Softmax"])
        assert is_valid(made)

    def test_truehalf_mends_the_file(self, tmp_path: Path) -> None:
        made = by_peer("onnxruntime", write(tmp_path, self.TEXT), fix=False, slim=False, more_blocked=["Softmax"])
        clean_casts(made, tmp_path / "clean.onnx")
        assert is_valid(tmp_path / "clean.onnx")


class TestWeightAboveTenThousand:
    """FP16 holds 20000; onnxconverter-common writes 10000."""

    TEXT = f"{HEADER} agraph (float[1, 2] x) => (float[1, 1] y) {{ y = MatMul(x, w) }}"
    WEIGHTS: ClassVar[Arrays] = {"w": np.array([[20000.0], [0.5]], np.float32)}

    def test_onnxconverter_common(self, tmp_path: Path) -> None:
        made = by_peer("onnxconverter", write(tmp_path, self.TEXT, self.WEIGHTS))
        assert [list(weight) for weight in half_weights(made)] == [[10000.0, 0.5]]

    def test_truehalf(self, tmp_path: Path) -> None:
        made = by_us(write(tmp_path, self.TEXT, self.WEIGHTS))
        assert [list(weight) for weight in half_weights(made)] == [[20000.0, 0.5]]


class TestTinyNegativeWeight:
    """-1e-9 is nearest to -0 in FP16; AutoCast writes +6e-8, of the other sign and 60 times as large."""

    TEXT = f"{HEADER} agraph (float[1, 2] x) => (float[1, 1] y) {{ y = MatMul(x, w) }}"
    WEIGHTS: ClassVar[Arrays] = {"w": np.array([[-1e-9], [0.5]], np.float32)}
    SAMPLE: ClassVar[Arrays] = {"x": np.ones((1, 2), np.float32)}

    def test_autocast(self, tmp_path: Path) -> None:
        made = by_peer("autocast", write(tmp_path, self.TEXT, self.WEIGHTS), self.SAMPLE)
        assert [weight[0] > 0 for weight in half_weights(made)] == [True]

    def test_truehalf(self, tmp_path: Path) -> None:
        made = by_us(write(tmp_path, self.TEXT, self.WEIGHTS), self.SAMPLE)
        (weight,) = half_weights(made)
        assert weight[0] == 0 and np.signbit(weight[0]) and weight[1] == 0.5


class TestNanBesideALargeNumber:
    """max |x| of a tensor with a NaN is NaN, and NaN > 512 is false: the 3.2e6 beside it goes unseen."""

    TEXT = f"""{HEADER} agraph (float[1, 4] x) => (float[1, 4] y)
        <float e = {{2.5}}, float zero = {{0.0}}, float small = {{0.0001}}> {{
        p = Pow(x, e)
        nan = IsNaN(p)
        scaled = Mul(p, small)
        y = Where(nan, zero, scaled)
    }}"""
    SAMPLE: ClassVar[Arrays] = {"x": np.array([[-1.0, 400.0, 1.0, 4.0]], np.float32)}

    def test_autocast(self, tmp_path: Path) -> None:
        made = by_peer("autocast", write(tmp_path, self.TEXT), self.SAMPLE, keep_io_types=True)
        assert op_type_of(made, "Pow") == FLOAT16

    def test_truehalf(self, tmp_path: Path) -> None:
        made = by_us(write(tmp_path, self.TEXT), self.SAMPLE)
        assert op_type_of(made, "Pow") == FLOAT


class TestIndicesAreNoRanges:
    """The index 8000 is no activation: FP16 never holds it."""

    TEXT = f"""{HEADER} agraph (float[1, 9000] x) => (float[1, 1, 4] y) {{
        i = ArgMax<axis = 1, keepdims = 1>(x)
        axes = Constant<value_ints = [2]>()
        g = GatherElements<axis = 1>(x, i)
        u = Unsqueeze(g, axes)
        y = MatMul(u, w)
    }}"""
    WEIGHTS: ClassVar[Arrays] = {"w": np.ones((1, 4), np.float32)}

    @pytest.fixture
    def sample(self) -> Arrays:
        x = np.zeros((1, 9000), np.float32)
        x[0, 8000] = 1.0
        return {"x": x}

    def test_autocast(self, tmp_path: Path, sample: Arrays) -> None:
        made = by_peer("autocast", write(tmp_path, self.TEXT, self.WEIGHTS), sample)
        assert op_type_of(made, "GatherElements") == FLOAT

    @pytest.mark.parametrize("rules", ["default", "autocast"])
    def test_truehalf(self, tmp_path: Path, sample: Arrays, rules: str) -> None:
        made = by_us(write(tmp_path, self.TEXT, self.WEIGHTS), sample, keep_io_types=False, rules=rules)
        assert op_type_of(made, "GatherElements") == FLOAT16


class TestDepthOfReduction:
    """A limit of 64 terms, and operators that add up 256 of them."""

    TEXTS: ClassVar[dict[str, str]] = {
        "Softmax": f"{HEADER} agraph (float[2, 256] x) => (float[2, 256] y) {{ y = Softmax<axis = -1>(x) }}",
        "LayerNormalization": f"""{HEADER} agraph (float[2, 256] x) => (float[2, 256] y)
            <float[256] w = {{{", ".join(["1"] * 256)}}}> {{ y = LayerNormalization<axis = -1>(x, w) }}""",
        "ConvTranspose": f"""{HEADER} agraph (float[1, 256, 4, 4] x) => (float[1, 1, 4, 4] y)
            <float[256, 1, 1, 1] w = {{{", ".join(["1"] * 256)}}}> {{ y = ConvTranspose(x, w) }}""",
        "Einsum": f"""{HEADER} agraph (float[2, 256] x) => (float[2, 2] y)
            {{ y = Einsum<equation = "ik,jk->ij">(x, x) }}""",
    }

    @staticmethod
    def sample(op: str) -> Arrays:
        return {"x": np.full((1, 256, 4, 4) if op == "ConvTranspose" else (2, 256), 0.1, np.float32)}

    @pytest.mark.parametrize("op", TEXTS)
    def test_autocast(self, tmp_path: Path, op: str) -> None:
        source = write(tmp_path, self.TEXTS[op])
        made = by_peer("autocast", source, self.sample(op), max_depth_of_reduction=64)
        assert op_type_of(made, op) == FLOAT16

    @pytest.mark.parametrize("op", TEXTS)
    def test_truehalf(self, tmp_path: Path, op: str) -> None:
        source = write(tmp_path, self.TEXTS[op])
        made = by_us(source, self.sample(op), keep_io_types=False, reduction_depth_max=64)
        assert op_type_of(made, op) == FLOAT


@pytest.mark.slow
class TestMemoryOfCalibration:
    """NVIDIA/Model-Optimizer#2337: all activations of all samples are kept. Here 64 of 16 MB, one after the other."""

    LAYERS, ELEMENTS = 64, 4 * 1024 * 1024
    ALL_MB = LAYERS * ELEMENTS * 4 / 1e6

    def peak_mb(self, tool: str, folder: Path) -> float:
        lines = "\n".join(f"t{i + 1} = {'Sin' if i % 2 else 'Neg'}(t{i})" for i in range(self.LAYERS))
        text = (
            f"{HEADER} agraph (float[1, {self.ELEMENTS}] t0) => (float[1, {self.ELEMENTS}] t{self.LAYERS}) {{{lines}}}"
        )
        sample = {"t0": np.ones((1, self.ELEMENTS), np.float32)}
        line = command(tool, write(folder, text), folder / "out.onnx", sample, {})
        usage = measured(line, 300, ROOT if tool == "truehalf" else folder)
        assert usage.error is None
        return usage.anon_mb

    def test_autocast(self, tmp_path: Path) -> None:
        assert self.peak_mb("autocast", tmp_path) > self.ALL_MB

    def test_truehalf(self, tmp_path: Path) -> None:
        assert self.peak_mb("truehalf", tmp_path) < self.ALL_MB / 2


class TestStateOfALoop:
    """A carried state has one type before, in and after the body."""

    TEXT = """<ir_version: 8, opset_import: ["" : 17]>
    agraph (float[2, 2] x) => (float[2, 2] y) <int64 n = {3}, bool go = {1}> {
        start = Relu(x)
        last = Loop(n, go, start) <body = body (int64 i, bool on, float[2, 2] state)
            => (bool on_out, float[2, 2] next) {
                on_out = Identity(on)
                product = MatMul(state, w)
                next = Tanh(product)
            }>
        y = Add(last, start)
    }"""
    WEIGHTS: ClassVar[Arrays] = {"w": np.array([[0.5, 0.25], [-0.25, 0.5]], np.float32)}
    SAMPLE: ClassVar[Arrays] = {"x": np.ones((2, 2), np.float32)}

    def test_autocast(self, tmp_path: Path) -> None:
        assert not is_valid(by_peer("autocast", write(tmp_path, self.TEXT, self.WEIGHTS), self.SAMPLE))

    @pytest.mark.parametrize("calibrated", [False, True])
    def test_truehalf(self, tmp_path: Path, calibrated: bool) -> None:
        """The body stays FP32."""
        source = write(tmp_path, self.TEXT, self.WEIGHTS)
        made = by_us(source, self.SAMPLE if calibrated else None, keep_io_types=False)
        assert is_valid(made)
        (loop,) = [node for node in onnx.load(made).graph.node if node.op_type == "Loop"]
        body = loop.attribute[0].g
        assert {value.type.tensor_type.elem_type for value in (body.input[2], body.output[1])} == {FLOAT}


class TestChainedCasts:
    """lightly-train drops the pairs of f32 -> f16 -> f32 -> f16 -> f32 one by one: readers of what went remain."""

    TEXT = f"""{HEADER} agraph (float[4] x) => (float[4] y) {{
        r = Relu(x)
        a = Cast<to = 10>(r)
        b = Cast<to = 1>(a)
        c = Cast<to = 10>(b)
        d = Cast<to = 1>(c)
        y = Neg(d)
    }}"""

    @pytest.mark.parametrize("strict", [False, True])
    def test_truehalf(self, tmp_path: Path, strict: bool) -> None:
        source = write(tmp_path, self.TEXT)
        report = clean_casts(source, tmp_path / "clean.onnx", strict=strict)
        assert is_valid(tmp_path / "clean.onnx")
        assert report.casts_after == (2 if strict else 0)


class TestCycle:
    """lightly-train's sort deletes nodes on a cycle without a word."""

    TEXT = f"""{HEADER} agraph (float[4] x) => (float[4] y) {{
        a = Add(x, b)
        b = Relu(a)
        y = Neg(x)
    }}"""

    def test_truehalf(self, tmp_path: Path) -> None:
        source = tmp_path / "cycle.onnx"
        onnx.save(onnx.parser.parse_model(self.TEXT), source)
        with raises("graph-cycle") as caught:
            clean_casts(source, tmp_path / "clean.onnx")
        assert re.search(r"\b(Add -> a|Relu -> b)\b", str(caught.value))  # a node of the cycle
        assert not (tmp_path / "clean.onnx").exists()
