"""Attentions spelled out in ONNX, float16 but for chosen nodes, which stand between casts; and whether the compiler
that needs no GPU leaves them in one fused kernel.
"""

from __future__ import annotations

from collections.abc import Container, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from truehalf.config.engine import NO_GATES, Backend, EngineConfig
from truehalf.engines.build import Order, build_engine
from truehalf.engines.engine_report import EngineReport
from truehalf.io_spec.profiles import Profile
from truehalf.ir.facts import model_facts
from truehalf.ir.model_forms import ModelFile
from truehalf.runtime.tensorrt import RTX

PARTS = ("qk", "scale", "mask", "softmax", "pv")
_TYPES: dict[int, Any] = {int(TensorProto.FLOAT): np.float32, int(TensorProto.FLOAT16): np.float16}


@dataclass(frozen=True)
class Form:
    """An attention: softmax(scale * Q K^T + mask) V, and the projections around it.

    Attributes:
        queries, keys: tokens; equal numbers make it a self-attention of one input, others have one of their own.
        width: of a head.
        scale: "after" Q K^T, "before" it (of Q), on "both" Q and K, or "none".
        mask: "none", "constant" or "input" (both added), or "where" (chosen by a boolean input).
        rank: 4: [batch, head, token, width]; 3: [batch * head, token, width].
        joint: Q, K and V are split from one projection, by a node called split3.0.
    """

    queries: int = 128
    keys: int = 128
    heads: int = 4
    width: int = 32
    scale: str = "after"
    mask: str = "none"
    rank: int = 4
    joint: bool = False

    @property
    def parts(self) -> tuple[str, ...]:
        """Those of PARTS that it has."""
        absent = {"scale"} if self.scale == "none" else set[str]()
        absent |= {"mask"} if self.mask == "none" else set()
        return tuple(part for part in PARTS if part not in absent)


FORMS = {
    **{f"encoder, heads of {width}": Form(width=width) for width in (16, 24, 32, 48, 64, 80, 128)},
    **{f"encoder, scale {where}": Form(scale=where) for where in ("before", "both", "none")},
    **{f"encoder, mask {mask}": Form(mask=mask) for mask in ("constant", "input", "where")},
    "encoder, Q, K, V split from one": Form(joint=True),
    "encoder, 400 tokens": Form(400, 400, 8, scale="both"),
    "encoder, 1024 tokens": Form(1024, 1024, 4, 64),
    "ViT": Form(197, 197, 3, 64),
    "ViT, scale both": Form(197, 197, 3, 64, "both"),
    "decoder": Form(300, 300, 8, scale="before"),
    "decoder, 3 axes": Form(300, 300, 8, scale="before", rank=3),
    "decoder, 3 axes, mask constant": Form(300, 300, 8, scale="before", rank=3, mask="constant"),
    "decoder, mask where": Form(300, 300, 8, scale="both", mask="where"),
    "cross": Form(100, 400, 8),
    "cross, scale both": Form(100, 400, 4, 64, "both"),
    "cross, mask where": Form(100, 400, 8, mask="where"),
    "one query": Form(1, 128),
}


class Everything:
    """Contains any name."""

    def __contains__(self, name: object) -> bool:
        return True


class _Writer:
    def __init__(self, wide: Container[str]) -> None:
        self.wide = wide
        self.nodes: list[onnx.NodeProto] = []
        self.tensors: dict[str, onnx.TensorProto] = {}
        self.types: dict[str, int] = {}
        self.numbers: dict[str, np.ndarray] = {}

    def add(self, op: str, name: str, inputs: list[str], output: str, **attributes: Any) -> str:
        return self.add_all(op, name, inputs, [output], **attributes)[0]

    def add_all(self, op: str, name: str, inputs: list[str], outputs: list[str], **attributes: Any) -> list[str]:
        dtype = TensorProto.FLOAT if name.rpartition(".")[0] in self.wide else TensorProto.FLOAT16
        read = [self._typed(each, dtype) for each in inputs]
        self.nodes.append(helper.make_node(op, read, outputs, name=name, **attributes))
        self.types |= dict.fromkeys(outputs, dtype)
        return outputs

    def _typed(self, name: str, dtype: int) -> str:
        if name in self.numbers:
            array = self.numbers[name]
            typed, array = (
                (name, array) if array.dtype == np.int64 else (f"{name}_{dtype}", array.astype(_TYPES[dtype]))
            )
            self.tensors[typed] = numpy_helper.from_array(array, typed)
            return typed
        if self.types[name] in (dtype, TensorProto.BOOL):
            return name
        typed = f"{name}_{dtype}"
        if typed not in self.types:
            self.nodes.append(helper.make_node("Cast", [name], [typed], name=f"cast_{typed}", to=dtype))
            self.types[typed] = dtype
        return typed


def attention(form: Form, wide: Container[str] = ()) -> onnx.ModelProto:
    """A float16 model of one attention whose `wide` parts are float32: of PARTS, or what other nodes are called before
    the dot (<part>.<number>). "x" among them: inputs are float32.
    """
    rng, to = np.random.default_rng(0), _Writer(wide)
    channels = form.heads * form.width
    sources = {"q": "x", "k": "x" if form.keys == form.queries else "memory"}
    sources["v"] = sources["k"]
    tokens = {"q": form.queries, "k": form.keys, "v": form.keys}
    ends = {"x": [1, form.queries, channels], sources["k"]: [1, form.keys, channels]}
    to.types |= dict.fromkeys(ends, TensorProto.FLOAT if "x" in wide else TensorProto.FLOAT16)
    swapped = {4: [0, 2, 3, 1], 3: [1, 2, 0]}[form.rank]
    moved = {4: [0, 2, 1, 3], 3: [1, 0, 2]}[form.rank]
    if form.joint:
        to.numbers["wqkv"] = rng.normal(0, channels**-0.5, (channels, 3 * channels))
        to.numbers["thirds"] = np.array([channels] * 3, np.int64)
        to.add("MatMul", "project.0", ["x", "wqkv"], "rows3")
        to.add_all("Split", "split3.0", ["rows3", "thirds"], [f"{each}_rows" for each in "qkv"], axis=2)
    for each in "qkv":
        to.numbers[f"w{each}"] = rng.normal(0, channels**-0.5, (channels, channels))
        batch = [1] if form.rank == 4 else []
        to.numbers[f"split_{each}"] = np.array([*batch, tokens[each], form.heads, form.width], np.int64)
        if not form.joint:
            to.add("MatMul", f"project_{each}.0", [sources[each], f"w{each}"], f"{each}_rows")
        to.add("Reshape", f"split_{each}.0", [f"{each}_rows", f"split_{each}"], f"{each}_split")
        to.add("Transpose", f"heads_{each}.0", [f"{each}_split"], each, perm=swapped if each == "k" else moved)
    q, k = "q", "k"
    to.numbers["s"] = np.array(form.width ** (-0.25 if form.scale == "both" else -0.5))
    if form.scale in ("before", "both"):
        q = to.add("Mul", "scale.0", ["q", "s"], "q_scaled")
    if form.scale == "both":
        k = to.add("Mul", "scale.1", ["k", "s"], "k_scaled")
    scores = to.add("MatMul", "qk.0", [q, k], "scores")
    if form.scale == "after":
        scores = to.add("Mul", "scale.2", [scores, "s"], "scaled")
    square = [1, 1, form.queries, form.keys][4 - form.rank :]
    if form.mask == "constant":
        to.numbers["m"] = np.where(rng.random(square) < 0.3, -60000.0, 0.0)
        scores = to.add("Add", "mask.0", [scores, "m"], "masked")
    elif form.mask != "none":
        ends["m"] = square
        to.types["m"] = to.types["x"] if form.mask == "input" else TensorProto.BOOL
        to.numbers["low"] = np.array(-60000.0)
        inputs = [scores, "m"] if form.mask == "input" else ["m", scores, "low"]
        scores = to.add("Add" if form.mask == "input" else "Where", "mask.0", inputs, "masked")
    to.add("Softmax", "softmax.0", [scores], "weights", axis=-1)
    to.add("MatMul", "pv.0", ["weights", "v"], "read")
    to.numbers["join"] = np.array([1, form.queries, channels], np.int64)
    to.numbers["wo"] = rng.normal(0, channels**-0.5, (channels, channels))
    to.add("Transpose", "rows.0", ["read"], "read_rows", perm=moved)
    to.add("Reshape", "merge.0", ["read_rows", "join"], "merged")
    to.add("MatMul", "project_o.0", ["merged", "wo"], "y")
    given = [helper.make_tensor_value_info(name, to.types[name], shape) for name, shape in ends.items()]
    made = [helper.make_tensor_value_info("y", to.types["y"], ends["x"])]
    graph = helper.make_graph(to.nodes, "g", given, made, list(to.tensors.values()))
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)


NO_GPU: Any = {"gpus": None, "tensorrt": None, RTX: "1.7", "polygraphy": "0.53"}


def compiled(path: Path, folder: Path, profiles: Sequence[Profile] = ()) -> EngineReport:
    """The engine that TensorRT for RTX makes of a file; `folder` gets it. Its status is "failed" where it refuses."""
    declared = "fp16" if model_facts(ModelFile(path).typed)["fp16_nodes"] else "fp32"
    order = Order(declared=declared, profiles=list(profiles), probe=NO_GPU)
    return build_engine(path, folder / "engine", order, EngineConfig(backend=Backend.tensorrt_rtx, gates=NO_GATES))


def is_fused(model: onnx.ModelProto, folder: Path) -> bool:
    """Whether TensorRT for RTX leaves every attention of a model in one kernel; `folder` gets file and engine."""
    path = folder / "model.onnx"
    onnx.save(model, path)
    facts = compiled(path, folder).compiled
    assert facts is not None
    return facts["fused_attention"] == facts["attention_regions"] > 0
