"""What plain ONNX Runtime on a CPU says of an FP16 file, what emulation says, and the truth.

    python -m benchmarks.blind_spot                    all of them, or those named

The CPU provider computes FP16 nodes in FP32, so it sees no overflow between them. All errors are against the FP32
graph: relative RMS of the worst output, rows in order of size; "Inf" where outputs are not finite. The truth is

    small graphs     onnx.reference, which rounds to float16 after each node
    detectors        the same network in torch, half precision on the CPU, whose kernels round after each operation;
                     GridSample in FP32, rounded: torch's own half kernel for it reads foreign memory on a CPU (other
                     values at each call on maps of 80x80)

    attention        scores in the tens of thousands before the scale, Softmax behind it
    LayerNorm        its parts (Pow, ReduceMean, Sqrt), on values whose squares exceed 65504
    ..., attention   a detector, attention values times 2^17 and taken back (conf/experiment/overflow.yaml), converted
                     without a rule and with no pins
    ..., feed-forward
                     likewise, the first layer of the decoder's feed-forward parts times 2^16
    ..., feed-forward, bad block list
                     the same with LayerNormalization and Softmax left in FP32, as block lists do, and not the layers
                     that overflow; the truth is torch in half precision with these two in FP32

nano_dfine and nano_rtdetrv2 are the embedded detectors; dfine640 has random weights. The blind spot has holes: where an
overflowing node stands beside one that the provider runs in float16 (Reshape, Transpose and other moves), the tensor
between them is stored as float16, and the provider sees the Inf: so it does with attention scaled in the embedded
detectors.

Writes benchmarks/results/blind_spot.json and prints the table.
"""

from __future__ import annotations

import argparse
import copy
import json
import math
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from benchmarks.models import DETECTORS
from pipeline.workspace import CONF
from tests.measuring.converted import to_fp16
from truehalf.emulation.sessions import EmulatedSession
from truehalf.runtime.ort import Session
from truehalf.verification.metrics.tensors import outputs_apart

if TYPE_CHECKING:
    import torch

RESULTS = Path(__file__).resolve().parent / "results" / "blind_spot.json"
_NO_RULES: dict[str, Any] = {"rules": "autocast", "data_max": None, "init_max": None, "placement": "eager"}
_OPSET = 17
BAD_BLOCK_LIST = ("LayerNormalization", "Softmax")
EMBEDDED = ("nano_dfine", "nano_rtdetrv2")
_GAIN_LOG2 = 17
_FEED_FORWARD_LOG2 = 16
Outputs = dict[str, np.ndarray]

ATTENTION = """g (float[1,16,32] q, float[1,16,32] k, float[1,16,32] v) => (float[1,16,32] y) <float scale = {0.0005}> {
    t = Transpose<perm = [0, 2, 1]>(k)
    s = MatMul(q, t)
    a = Mul(s, scale)
    p = Softmax<axis = -1>(a)
    y = MatMul(p, v)
}"""
LAYER_NORM = """g (float[4,64] x) => (float[4,64] y) <float two = {2.0}, float eps = {0.00001}> {
    m = ReduceMean<axes = [-1]>(x)
    d = Sub(x, m)
    s = Pow(d, two)
    v = ReduceMean<axes = [-1]>(s)
    e = Add(v, eps)
    r = Sqrt(e)
    y = Div(d, r)
}"""


def small(text: str, feeds: Mapping[str, np.ndarray], folder: Path) -> dict[str, float]:
    """Errors of a small graph; the truth is onnx.reference on the FP16 file."""
    import onnx
    import onnx.parser
    from onnx.reference import ReferenceEvaluator

    source, target = folder / "fp32.onnx", folder / "fp16.onnx"
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {_OPSET}]>\n{text}')
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, source)
    to_fp16(source, target, **_NO_RULES)
    exact = Session(source).run(feeds)
    evaluator = ReferenceEvaluator(str(target))
    with np.errstate(all="ignore"):
        truth = dict(zip(evaluator.output_names, evaluator.run(None, dict(feeds)), strict=True))
    return _errors(exact, target, feeds, truth)


def scale_feed_forward(module: torch.nn.Module, gain_log2: int) -> None:
    """Multiply the first layer of the decoder's feed-forward parts by 2^n, and the last one's weights by 2^-n.

    Linear, Relu, Linear: the same function in FP32.
    """
    import torch

    with torch.no_grad():
        for name, part in module.named_modules():
            if ".decoder.layers." in name and name.endswith(".mlp"):
                first, *_, last = (each for each in part.modules() if isinstance(each, torch.nn.Linear))
                for tensor in (first.weight, first.bias):
                    tensor.mul_(2.0**gain_log2)
                last.weight.mul_(2.0**-gain_log2)


def detector(name: str, part: str, folder: Path, block_list: Sequence[str] = ()) -> dict[str, float]:
    """Errors of a detector, scaled in a part (attention, feed-forward); the truth is torch in half precision.

    Args:
        block_list: of BAD_BLOCK_LIST, the operators that stay FP32 in the file and in torch.
    """
    import torch

    from benchmarks.models import _composed
    from examples.digits.detector import scale_attention_values
    from truehalf.data.run_samples import run_samples
    from truehalf.data.samples import stacked
    from truehalf.models.configuration import validated
    from truehalf.models.source import described, open_model
    from truehalf.slimming.slim import slim

    config = validated(_composed(*DETECTORS[name]))
    model = open_model(config, CONF.parent)
    network = model.module
    feeds = stacked(run_samples("calibration", config, CONF.parent, described(model))[:1])
    images = torch.from_numpy(feeds["images"])
    names = ["logits", "boxes"]
    assert all(np.isfinite(value).all() for value in _in_half(network, images, block_list)), f"{name} unscaled"
    if part == "attention":
        scale_attention_values(network, _GAIN_LOG2)
    else:
        scale_feed_forward(network, _FEED_FORWARD_LOG2)
    with torch.no_grad():
        torch.onnx.export(
            network, (images,), str(folder / "traced.onnx"), dynamo=False, opset_version=_OPSET,
            input_names=["images"], output_names=names,
        )  # fmt: skip
        exact = dict(zip(names, (value.numpy() for value in network(images)), strict=True))
    slim(folder / "traced.onnx", folder / "fp32.onnx")
    to_fp16(folder / "fp32.onnx", folder / "fp16.onnx", op_block_list=block_list, **_NO_RULES)
    truth = dict(zip(names, _in_half(network, images, block_list), strict=True))
    return _errors(exact, folder / "fp16.onnx", feeds, truth)


def _in_half(network: torch.nn.Module, images: torch.Tensor, block_list: Sequence[str]) -> list[np.ndarray]:
    """Outputs of a half copy of a network; in FP32, and rounded: GridSample, and of the block list what torch has."""
    import torch
    from torch.utils._python_dispatch import TorchDispatchMode

    aten = torch.ops.aten
    known = {"LayerNormalization": aten.native_layer_norm.default, "Softmax": aten._softmax.default}
    wide = {aten.grid_sampler_2d.default, *(known[op_type] for op_type in block_list)}

    class InFloat(TorchDispatchMode):  # type: ignore[no-untyped-call]
        def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
            if func not in wide:
                return func(*args, **(kwargs or {}))
            results = func(*[_cast(each, torch.float32) for each in args], **(kwargs or {}))
            seen.add(func)
            return tuple(map(narrow, results)) if isinstance(results, tuple) else narrow(results)

    def narrow(value: torch.Tensor) -> torch.Tensor:
        return value.to(torch.float16)

    seen: set[Any] = set()
    with torch.no_grad(), InFloat():  # type: ignore[no-untyped-call]
        outputs = copy.deepcopy(network).half()(images.half())
    assert seen == wide, f"torch did not run {wide - seen}"
    return [value.float().numpy() for value in outputs]


def _cast(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype) if hasattr(value, "is_floating_point") and value.is_floating_point() else value


def _errors(exact: Outputs, path: Path, feeds: Mapping[str, np.ndarray], truth: Outputs) -> dict[str, float]:
    return {
        "onnxruntime_cpu": outputs_apart(exact, Session(path).run(feeds)),
        "emulated": outputs_apart(exact, EmulatedSession(path).run(feeds)),
        "truth": outputs_apart(exact, truth),
    }


def _attention(folder: Path) -> dict[str, float]:
    rng = np.random.default_rng(0)
    q, k, v = (rng.standard_normal((1, 16, 32)).astype(np.float32) for _ in range(3))
    return small(ATTENTION, {"q": q * 60, "k": k * 100, "v": v}, folder)


def _layer_norm(folder: Path) -> dict[str, float]:
    x = np.random.default_rng(0).standard_normal((4, 64)).astype(np.float32)
    return small(LAYER_NORM, {"x": x * 400}, folder)


GRAPHS: dict[str, tuple[str, Callable[[Path], dict[str, float]]]] = {
    "attention": ("onnx.reference", _attention),
    "LayerNorm": ("onnx.reference", _layer_norm),
    **{
        f"{name}, {part}": ("torch half", partial(detector, name, part))
        for name in EMBEDDED
        for part in ("attention", "feed-forward")
    },
    **{
        f"{name}, feed-forward, bad block list": (
            "torch half, the list in FP32",
            partial(detector, name, "feed-forward", block_list=BAD_BLOCK_LIST),
        )
        for name in EMBEDDED
    },
    **{
        f"dfine640, {part}": ("torch half", partial(detector, "dfine640", part))
        for part in ("attention", "feed-forward")
    },
}


def table(rows: list[dict[str, Any]]) -> str:
    lines = ["| graph | plain ONNX Runtime, CPU | emulated | truth | by |", "|---|---:|---:|---:|---|"]
    for row in rows:
        cells = " | ".join(_cell(row[key]) for key in ("onnxruntime_cpu", "emulated", "truth"))
        lines.append(f"| {row['graph']} | {cells} | {row['by']} |")
    return "\n".join(lines)


def _cell(error: float | str) -> str:
    return error if isinstance(error, str) else f"{100 * error:.2g} %"


def _stored(error: float) -> float | str:
    return error if math.isfinite(error) else "Inf"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.blind_spot", description="Measure the blind spot.")
    parser.add_argument("names", nargs="*", choices=[[], *GRAPHS], metavar="name", help=", ".join(GRAPHS))
    names = parser.parse_args().names or list(GRAPHS)
    rows = {row["graph"]: row for row in (json.loads(RESULTS.read_text()) if RESULTS.exists() else [])}
    for name in names:
        by, measure = GRAPHS[name]
        with tempfile.TemporaryDirectory() as folder:
            errors = measure(Path(folder))
        rows[name] = {"graph": name, "by": by} | {key: _stored(error) for key, error in errors.items()}
        print(json.dumps(rows[name]), flush=True)
    ordered = [rows[name] for name in GRAPHS if name in rows]
    RESULTS.write_text(json.dumps(ordered, indent=1) + "\n")
    print(table(ordered))


if __name__ == "__main__":
    main()
