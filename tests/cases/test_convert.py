"""Files that `truehalf convert` must turn into right FP16 files."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch import nn
from torch.nn import functional

from tests.cases.doors import (
    computed,
    computed_in_fp16,
    half_nodes,
    loads,
    parsed,
    relative_error,
    saved,
    truehalf,
)
from tests.messages import expect
from tests.tiers import compiled

DONE = (0, 3)  # passed, or not verified


def exported(module: nn.Module, path: Path, examples: dict[str, torch.Tensor], output: str = "y") -> Path:
    """A TorchScript export with a dynamic first axis."""
    torch.onnx.export(
        module.eval(),
        tuple(examples.values()),
        str(path),
        dynamo=False,
        opset_version=17,
        input_names=list(examples),
        output_names=[output],
        dynamic_axes={name: {0: "n"} for name in [*examples, output]},
    )
    return path


# --- bodies (Model-Optimizer 1628, 717) -------------------------------------------------------------------------------


def _weights(rng: np.random.Generator, name: str, *shape: int) -> TensorProto:
    return numpy_helper.from_array((rng.standard_normal(shape) * 0.2).astype(np.float32), name)


def _value(name: str, element_type: int, shape: list[int | str] | None) -> onnx.ValueInfoProto:
    return helper.make_tensor_value_info(name, element_type, shape)


def _branch(rng: np.random.Generator, name: str, factor: float) -> onnx.GraphProto:
    """Gemm and Resize of outer activations; a factor of 3e5 leaves FP16's range."""
    weights = [
        _weights(rng, f"{name}_w", 8, 6),
        _weights(rng, f"{name}_b", 6),
        numpy_helper.from_array(np.array(factor, np.float32), f"{name}_k"),
        numpy_helper.from_array(np.array([1, 1, 2, 2], np.float32), f"{name}_scales"),
    ]
    nodes = [
        helper.make_node("Gemm", ["feat", f"{name}_w", f"{name}_b"], [f"{name}_g"], f"{name}_gemm"),
        helper.make_node("Mul", [f"{name}_g", f"{name}_k"], [f"{name}_m"], f"{name}_mul"),
        helper.make_node("Div", [f"{name}_m", f"{name}_k"], [f"{name}_r"], f"{name}_div"),
        helper.make_node("Resize", ["f", "", f"{name}_scales"], [f"{name}_u"], f"{name}_resize", mode="linear"),
    ]
    outputs = [_value(f"{name}_r", TensorProto.FLOAT, ["n", 6]), _value(f"{name}_u", TensorProto.FLOAT, None)]
    return helper.make_graph(nodes, name, [], outputs, weights)


def _loop_body() -> onnx.GraphProto:
    """Three turns: an If of the turn's parity multiplies or adds an outer weight; the state is stacked, too."""
    float_, bool_ = TensorProto.FLOAT, TensorProto.BOOL

    def choice(name: str, operator: str) -> onnx.GraphProto:
        node = helper.make_node(operator, ["s_in", "outer_gain"], [f"{name}_o"], f"{name}_op")
        return helper.make_graph([node], name, [], [_value(f"{name}_o", float_, ["n", 8])])

    branches = {"then_branch": choice("odd_turn", "Mul"), "else_branch": choice("even_turn", "Add")}
    nodes = [
        helper.make_node("Cast", ["i"], ["turn"], "turn_cast", to=float_),
        helper.make_node("Greater", ["turn", "half"], ["odd"], "turn_greater"),
        helper.make_node("If", ["odd"], ["s_if"], "turn_if", **branches),
        helper.make_node("Add", ["s_if", "feat"], ["s_out"], "turn_add"),
        helper.make_node("Identity", ["c_in"], ["c_out"], "turn_condition"),
        helper.make_node("Identity", ["s_out"], ["stacked"], "turn_stacked"),
    ]
    inputs = [_value("i", TensorProto.INT64, []), _value("c_in", bool_, []), _value("s_in", float_, ["n", 8])]
    outputs = [_value("c_out", bool_, []), _value("s_out", float_, ["n", 8]), _value("stacked", float_, ["n", 8])]
    return helper.make_graph(nodes, "body", inputs, outputs)


def _model_with_bodies(rng: np.random.Generator, factor: float) -> onnx.ModelProto:
    branches = {"then_branch": _branch(rng, "bright", 0.5), "else_branch": _branch(rng, "dark", factor)}
    nodes = [
        helper.make_node("Conv", ["x", "cw", "cb"], ["a"], "conv", pads=[1, 1, 1, 1]),
        helper.make_node("Relu", ["a"], ["f"], "relu"),
        helper.make_node("GlobalAveragePool", ["f"], ["g"], "pool"),
        helper.make_node("Flatten", ["g"], ["feat"], "flatten"),
        helper.make_node("ReduceMean", ["x"], ["mean"], "mean", keepdims=0),
        helper.make_node("Greater", ["mean", "zero"], ["is_bright"], "greater"),
        helper.make_node("If", ["is_bright"], ["r", "u"], "if", **branches),
        helper.make_node("Loop", ["trips", "on", "feat"], ["state", "states"], "loop", body=_loop_body()),
    ]
    constants = {"zero": np.float32(0), "trips": np.int64(3), "half": np.float32(0.5), "on": np.bool_(True)}
    weights = [_weights(rng, "cw", 8, 3, 3, 3), _weights(rng, "cb", 8), _weights(rng, "outer_gain", 8)]
    weights += [numpy_helper.from_array(np.array(value), name) for name, value in constants.items()]
    outputs = [
        _value("r", TensorProto.FLOAT, ["n", 6]),
        _value("u", TensorProto.FLOAT, ["n", 8, 32, 32]),
        _value("state", TensorProto.FLOAT, ["n", 8]),
        _value("states", TensorProto.FLOAT, [3, "n", 8]),
    ]
    graph = helper.make_graph(nodes, "g", [_value("x", TensorProto.FLOAT, ["n", 3, 16, 16])], outputs, weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


def _image(rng: np.random.Generator, mean: float) -> np.ndarray:
    image = rng.standard_normal((1, 3, 16, 16)).astype(np.float32)
    return image + mean - image.mean()


@pytest.mark.parametrize("factor", [0.5, 3e5])
@pytest.mark.parametrize("dark_samples", [True, False])
def test_bodies_of_if_and_loop_that_read_outer_activations(tmp_path: Path, factor: float, dark_samples: bool) -> None:
    """Model-Optimizer 1628, 717: also the branch that no sample takes."""
    rng = np.random.default_rng(0)
    source = saved(tmp_path / "in.onnx", _model_with_bodies(rng, factor))
    means = [-1.0 if dark_samples and k % 2 else 1.0 for k in range(8)]
    np.savez(tmp_path / "s.npz", x=np.concatenate([_image(rng, mean) for mean in means]))
    target = tmp_path / "out.onnx"
    truehalf("convert", source, "--samples", tmp_path / "s.npz", "-o", target)
    onnx.checker.check_model(str(target), full_check=True)
    for mean in (1.0, -1.0):
        feeds = {"x": _image(rng, mean)}
        expected = computed(source, feeds)
        actual, in_fp16 = computed(target, feeds), computed_in_fp16(target, feeds)
        in_fp16["states"] = actual["states"]  # onnx.reference joins what a Loop stacks along another axis
        for outputs in (actual, in_fp16):
            assert max(relative_error(expected[name], outputs[name]) for name in expected) < 0.01


# --- weights beside the file (wyoming-whisper-trt 1032, onnxconverter-common 308) -------------------------------------


def test_weights_beside_the_file_from_and_to_other_folders(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    rng = np.random.default_rng(0)
    for folder in ("in", "out", "elsewhere", "lost"):
        (tmp_path / folder).mkdir()
    model = parsed("g (float[n,64] x) => (float[n,64] y) { a = MatMul(x, w) b = Relu(a) y = MatMul(b, w) }")
    model.graph.initializer.append(numpy_helper.from_array(rng.standard_normal((64, 64)).astype(np.float32) / 8, "w"))
    source = tmp_path / "in" / "model.onnx"
    onnx.save(model, source, save_as_external_data=True, location="model.onnx.data", size_threshold=1024)
    samples = tmp_path / "s.npz"
    np.savez(samples, x=rng.standard_normal((8, 64)).astype(np.float32))
    monkeypatch.chdir(tmp_path / "elsewhere")

    assert truehalf("convert", "../in/model.onnx", "--samples", samples, "-o", "../out/w.onnx")[0] in DONE
    assert truehalf("convert", "../in/model.onnx", "--samples", samples)[0] in DONE
    assert loads(tmp_path / "in" / "model_fp16.onnx")
    (tmp_path / "out").rename(tmp_path / "moved")
    assert loads(tmp_path / "moved" / "w.onnx")
    assert truehalf("verify", source, tmp_path / "moved" / "w.onnx", "--samples", samples)[0] in DONE
    assert truehalf("convert", source, "--samples", samples, "-o", source)[0] == 2
    assert loads(source)

    alone = tmp_path / "lost" / "model.onnx"
    alone.write_bytes(source.read_bytes())
    code, printed = truehalf("convert", alone, "-o", tmp_path / "lost" / "out.onnx")
    assert code == 2
    expect(printed, None, "model.onnx.data")


# --- an INT8 detector (TensorRT 4832, Model-Optimizer 1628) -----------------------------------------------------------


def _quantized(opset: int) -> onnx.ModelProto:
    """An INT8 convolution and a float attention behind it, quantized as modelopt does."""
    rng = np.random.default_rng(0)
    scale = np.float32(1 / 127)
    weight = np.clip(np.round(rng.standard_normal((16, 3, 3, 3)) * 40), -127, 127).astype(np.int8)
    arrays = {
        **{"s": scale, "z": np.int8(0), "ws": np.full(16, 0.005, np.float32), "wz": np.zeros(16, np.int8), "w": weight},
        **{"b": np.zeros(16, np.float32), "shape": np.array([0, 16, -1])},
        **{f"w{name}": (rng.standard_normal((16, 16)) * 0.2).astype(np.float32) for name in "qkv"},
    }
    model = parsed(
        """g (float[n,3,32,32] images) => (float[n,256,16] out) {
            iq = QuantizeLinear(images, s, z)  i = DequantizeLinear(iq, s, z)  wd = DequantizeLinear<axis=0>(w, ws, wz)
            c = Conv<strides=[2,2], pads=[1,1,1,1]>(i, wd, b)  r = Relu(c)  f = Reshape(r, shape)
            t = Transpose<perm=[0,2,1]>(f)  q = MatMul(t, wq)  k = MatMul(t, wk)  v = MatMul(t, wv)
            kt = Transpose<perm=[0,2,1]>(k)  qk = MatMul(q, kt)  p = Softmax<axis=-1>(qk)  out = MatMul(p, v) }""",
        opset,
    )
    model.ir_version = {17: 8, 19: 9, 21: 10, 23: 11}[opset]
    model.graph.initializer.extend(numpy_helper.from_array(np.asarray(array), name) for name, array in arrays.items())
    onnx.checker.check_model(model, full_check=True)
    return model


@pytest.mark.parametrize("opset", [17, 19, 21, 23])
def test_no_cast_stands_between_dequantization_and_its_reader(tmp_path: Path, opset: int) -> None:
    source, target = saved(tmp_path / "in.onnx", _quantized(opset)), tmp_path / "out.onnx"
    images = np.random.default_rng(1).random((8, 3, 32, 32)).astype(np.float32)
    np.savez(tmp_path / "s.npz", images=images)
    assert truehalf("convert", source, "--samples", tmp_path / "s.npz", "-o", target)[0] in DONE
    onnx.checker.check_model(str(target), full_check=True)
    nodes = onnx.load(target).graph.node
    makers = {output: node for node in nodes for output in node.output}
    for node in nodes:
        for name in node.input if node.op_type in ("Conv", "MatMul") else []:
            cast = makers.get(name)
            if cast is not None and cast.op_type == "Cast":
                before = makers.get(cast.input[0])
                assert before is None or before.op_type != "DequantizeLinear"
    feeds = {"images": images[:2]}
    assert relative_error(computed(source, feeds)["out"], computed(target, feeds)["out"]) < 0.03
    assert sum(half_nodes(target).values()) >= 5


# --- guards of zero rows that no sample has (pytorch 192017, 32137) ---------------------------------------------------

GUARDS = {
    "normalize": lambda x: functional.normalize(x, dim=-1),
    "clamp_norm": lambda x: x / x.norm(dim=-1, keepdim=True).clamp(min=1e-8),
    "add_eps": lambda x: x / (x.norm(dim=-1, keepdim=True) + 1e-8),
    "sqrt_eps": lambda x: x / torch.sqrt((x * x).sum(-1, keepdim=True) + 1e-10),
    "cosine": lambda x: functional.cosine_similarity(x[:, :, None], x[:, None, :], dim=-1) @ x,
    "std": lambda x: (x - x.mean(-1, keepdim=True)) / (x.std(-1, keepdim=True) + 1e-8),
    "where": lambda x: x / _filled_norm(x),
    "log": lambda x: torch.log(x.abs() + 1e-8),
    "rms_norm": lambda x: x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-12),
    "reciprocal": lambda x: x * (1.0 / (x.norm(dim=-1, keepdim=True) + 1e-8)),
    "pow": lambda x: x * ((x * x).mean(-1, keepdim=True) + 1e-12).pow(-0.5),
}


def _filled_norm(x: torch.Tensor) -> torch.Tensor:
    norm = x.norm(dim=-1, keepdim=True)
    return torch.where(norm > 0, norm, torch.full_like(norm, 1e-12))


class Guarded(nn.Module):
    def __init__(self, guard: str) -> None:
        super().__init__()
        self.guard, self.before, self.after = guard, nn.Linear(32, 32, bias=False), nn.Linear(32, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.after(GUARDS[self.guard](self.before(x)))


@pytest.mark.parametrize("guard", GUARDS)
def test_a_row_of_zeros_that_no_sample_has_stays_finite(tmp_path: Path, guard: str) -> None:
    source = exported(Guarded(guard), tmp_path / "in.onnx", {"x": torch.randn(1, 6, 32)})
    rng = np.random.default_rng(0)
    np.savez(tmp_path / "s.npz", x=rng.standard_normal((16, 6, 32)).astype(np.float32))
    target = tmp_path / "out.onnx"
    truehalf("convert", source, "--samples", tmp_path / "s.npz", "-o", target, "--quiet")
    x = rng.standard_normal((2, 6, 32)).astype(np.float32)
    x[:, 2], x[:, 4] = 0, x[:, 4] * 1e-3
    expected = computed(source, {"x": x})["y"]
    assert relative_error(expected, computed(target, {"x": x})["y"]) < 0.02
    assert relative_error(expected, computed_in_fp16(target, {"x": x})["y"]) < 0.02


# --- Attention of opset 23 (NVIDIA/TensorRT 4705, TensorRT-RTX 26) ----------------------------------------------------


class Attends(nn.Module):
    """Two heads of scaled_dot_product_attention, with a mask as users write it."""

    def __init__(self, mask: str) -> None:
        super().__init__()
        self.mask, self.norm = mask, nn.LayerNorm(64)
        self.before, self.qkv, self.after = nn.Linear(16, 64), nn.Linear(64, 192), nn.Linear(64, 8)

    def forward(self, x: torch.Tensor, keep: torch.Tensor) -> torch.Tensor:
        y = self.before(x)
        batch, length, width = y.shape
        q, k, v = self.qkv(self.norm(y)).view(batch, length, 3, 2, width // 2).permute(2, 0, 3, 1, 4)
        kept = keep[:, None, None, :]
        masks = {
            "bool": lambda: (kept > 0).expand(-1, 1, 64, -1),
            "minus infinity": lambda: torch.zeros_like(kept).masked_fill(kept <= 0, -torch.inf).expand(-1, 1, 64, -1),
            "finfo.min": lambda: ((1.0 - kept) * torch.finfo(torch.float32).min).expand(-1, 1, 64, -1),
        }
        mixed = functional.scaled_dot_product_attention(q, k, v, attn_mask=masks[self.mask]())
        return self.after(y + mixed.transpose(1, 2).reshape(batch, length, width))


COMPILE = """
import sys
import tensorrt_rtx as trt
builder = trt.Builder(trt.Logger(trt.Logger.ERROR))
network = builder.create_network(0)
parser = trt.OnnxParser(network, trt.Logger(trt.Logger.ERROR))
config = builder.create_builder_config()
config.num_compute_capabilities = 1
config.set_compute_capability(trt.ComputeCapability.SM86, 0)
sys.exit(0 if parser.parse_from_file(sys.argv[1]) and builder.build_serialized_network(network, config) else 1)
"""


@compiled
@pytest.mark.parametrize("mask", ["bool", "minus infinity", "finfo.min"])
def test_an_attention_becomes_fp16_whatever_its_mask(tmp_path: Path, mask: str) -> None:
    """TensorRT has no FP32 kernel for the operator."""
    rng = np.random.default_rng(0)
    source, target = tmp_path / "in.onnx", tmp_path / "out.onnx"
    torch.onnx.export(
        Attends(mask).eval(),
        (torch.randn(2, 64, 16), torch.ones(2, 64)),
        str(source),
        dynamo=True,
        opset_version=23,
        input_names=["x", "keep"],
        output_names=["y"],
        external_data=False,
        verbose=False,
    )
    (tmp_path / "samples").mkdir()
    for number in range(8):
        keep = (np.arange(64)[None] < rng.integers(20, 64, (2, 1))).astype(np.float32)
        feeds = {"x": rng.standard_normal((2, 64, 16)).astype(np.float32), "keep": keep}
        np.savez(tmp_path / "samples" / f"{number}.npz", **feeds)
    assert truehalf("convert", source, "--samples", tmp_path / "samples", "-o", target)[0] in DONE
    assert half_nodes(target)["Attention"] == 1
    assert relative_error(computed(source, feeds)["y"], computed(target, feeds)["y"]) < 0.02
    assert subprocess.run([sys.executable, "-c", COMPILE, str(target)], check=False).returncode == 0


# --- walks that double (no model; graphs that a detector's rolls and doublings make likely) ---------------------------


def _rolls(count: int) -> str:
    """x - x, rolled `count` times by Slice, Slice, Concat (Swin's shifted windows)."""
    roll = "a{k} = Slice(d{k}, zero, three, axis) b{k} = Slice(d{k}, three, end, axis) "
    roll += "d{next} = Concat<axis=1>(b{k}, a{k})"
    rolls = " ".join(roll.format(k=k, next=k + 1) for k in range(count))
    weights = "<float c = {300}, int64[1] zero = {0}, int64[1] three = {3}, int64[1] end = {64}, int64[1] axis = {1}>"
    graph = f"h = Add(x, c) d0 = Sub(h, c) {rolls} s = Mul(d{count}, d{count}) y = Tanh(s)"
    return f"g (float[n,64] x) => (float[n,64] y) {weights} {{ {graph} }}"


def _doublings(count: int) -> str:
    doubled = " ".join(f"p{k + 1} = Add(p{k}, p{k})" for k in range(count))
    interface = "g (float[n,64] x) => (float[n,64] y) <float f = {0.000001}>"
    return f"{interface} {{ p0 = Mul(x, f) {doubled} y = Sin(p{count}) }}"


@pytest.mark.parametrize("graph", [_rolls, _doublings])
@pytest.mark.parametrize("sampled", [True, False])
def test_thirty_steps_that_double_end(tmp_path: Path, graph: Callable[[int], str], sampled: bool) -> None:
    """A walk that follows both ways of each step would take days."""
    source = saved(tmp_path / "in.onnx", parsed(graph(30)))
    np.savez(tmp_path / "s.npz", x=np.random.default_rng(0).normal(size=(8, 64)).astype(np.float32))
    samples = ["--samples", str(tmp_path / "s.npz")] if sampled else []
    command = [sys.executable, "-m", "truehalf", "convert", str(source), *samples, "-o", str(tmp_path / "out.onnx")]
    subprocess.run([*command, "--no-verify", "--no-check", "--quiet"], timeout=120, check=False)
    assert (tmp_path / "out.onnx").exists()
