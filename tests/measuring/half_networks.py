"""Whole networks that torch runs in half precision, rounding after each of its operations, beside their emulation.

Each is exported from the half module itself, so both sides hold the same weights and the same operations. What differs:
torch's kernels add up in another order, and torch has single operations (a linear layer, GELU) where the graph has
several nodes (docs/explanation/fp16-emulation.md).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from tests.measuring.emulated_operators import distances
from tests.measuring.shipped import CONF
from truehalf.emulation.sessions import EmulatedSession

if TYPE_CHECKING:
    import torch

_OPSET = 17


def convolutional() -> tuple[torch.nn.Module, torch.Tensor]:
    """A residual network: strided and grouped convolutions, batch normalisation, pools, a linear head."""
    import torch

    nn = torch.nn

    class Block(nn.Module):
        def __init__(self, inside: int, outside: int, stride: int) -> None:
            super().__init__()
            self.main = nn.Sequential(
                nn.Conv2d(inside, outside, 3, stride, 1, bias=False),
                nn.BatchNorm2d(outside),
                nn.ReLU(),
                nn.Conv2d(outside, outside, 3, 1, 1, groups=4, bias=False),
                nn.BatchNorm2d(outside),
            )
            self.skip = nn.Conv2d(inside, outside, 1, stride)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.relu(self.main(x) + self.skip(x))

    torch.manual_seed(0)
    stem = (nn.Conv2d(3, 32, 7, 2, 3), nn.BatchNorm2d(32), nn.SiLU(), nn.MaxPool2d(3, 2, 1))
    blocks = [Block(32, 32, 1), Block(32, 64, 2), Block(64, 64, 1), Block(64, 128, 2), Block(128, 128, 1)]
    network = nn.Sequential(*stem, *blocks, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(128, 100))
    images = torch.rand(4, 3, 128, 128)
    with torch.no_grad():
        network.train()(images)  # statistics to normalise by
    return network.eval(), images


def transformer(as_exported: bool = False) -> tuple[torch.nn.Module, torch.Tensor]:
    """A vision transformer: patches, six blocks of attention and GELU, layer normalisation.

    torch has one operation for a linear layer and one for GELU where the exported graph has two and five nodes, and
    keeps numbers such as the scale of attention in float32, which are FP16 constants in the graph. `as_exported`: torch
    does as the graph does.
    """
    import torch

    nn = torch.nn

    class Linear(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.weight.T + self.bias if as_exported else super().forward(x)

    class Gelu(nn.GELU):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            root = torch.tensor(2**0.5, dtype=x.dtype)
            return x * (torch.erf(x / root) + 1) * 0.5 if as_exported else super().forward(x)

    class Block(nn.Module):
        def __init__(self, width: int, heads: int) -> None:
            super().__init__()
            self.heads = heads
            self.norms = nn.ModuleList([nn.LayerNorm(width), nn.LayerNorm(width)])
            self.qkv, self.out = Linear(width, 3 * width), Linear(width, width)
            self.mlp = nn.Sequential(Linear(width, 4 * width), Gelu(), Linear(4 * width, width))

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            batch, tokens, width = x.shape
            parts = self.qkv(self.norms[0](x)).reshape(batch, tokens, 3, self.heads, -1).permute(2, 0, 3, 1, 4)
            query, key, value = parts[0], parts[1], parts[2]
            scale = (width // self.heads) ** -0.5
            weights = query @ key.transpose(-2, -1) * (torch.tensor(scale, dtype=x.dtype) if as_exported else scale)
            weights = torch.softmax(weights, dim=-1)
            x = x + self.out((weights @ value).transpose(1, 2).reshape(batch, tokens, width))
            return x + self.mlp(self.norms[1](x))

    class Network(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.patches = nn.Conv2d(3, 192, 16, 16)
            self.blocks = nn.Sequential(*[Block(192, 6) for _ in range(6)])
            self.norm = nn.LayerNorm(192)

        def forward(self, images: torch.Tensor) -> torch.Tensor:
            tokens: torch.Tensor = self.norm(self.blocks(self.patches(images).flatten(2).transpose(1, 2)))
            return tokens

    torch.manual_seed(0)
    return Network().eval(), torch.rand(2, 3, 128, 128)


def operation(build: Callable[[Any], Any], *shape: int) -> tuple[torch.nn.Module, torch.Tensor]:
    """A network of one operation: `build` makes it from torch.nn."""
    import torch

    torch.manual_seed(0)
    module: torch.nn.Module = build(torch.nn)
    return module.eval(), torch.randn(*shape)


def _product(nn: Any) -> Any:
    import torch

    class Product(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(768, 192) / 28)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x @ self.weight

    return Product()


def detector(decoder: str) -> tuple[torch.nn.Module, torch.Tensor]:
    """The embedded detector with its trained weights, on a picture of its data."""
    import torch

    from tests.configurations import composed
    from truehalf.data.run_samples import run_samples
    from truehalf.data.samples import stacked
    from truehalf.models.configuration import validated
    from truehalf.models.source import described, open_model

    config = validated(composed("model=ltdetr_nano", f"decoder={decoder}"))
    model = open_model(config, CONF.parent)
    samples = run_samples("verification", config, CONF.parent, described(model))
    return model.module, torch.from_numpy(stacked(samples[:1])["images"])


# One node of the graph each.
OPERATIONS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "matrix product, 768 terms": lambda: operation(_product, 2, 64, 768),
    "convolution, 3 x 3 x 64 terms": lambda: operation(lambda nn: nn.Conv2d(64, 64, 3, padding=1), 2, 64, 32, 32),
    "linear layer of a matrix": lambda: operation(lambda nn: nn.Linear(768, 192), 128, 768),
    "softmax": lambda: operation(lambda nn: nn.Softmax(-1), 2, 6, 64, 64),
    "layer normalization": lambda: operation(lambda nn: nn.LayerNorm(192), 2, 64, 192),
    "batch normalization": lambda: operation(lambda nn: nn.BatchNorm2d(64), 2, 64, 32, 32),
    "global average": lambda: operation(lambda nn: nn.AdaptiveAvgPool2d(1), 64, 64, 8, 8),
    "sigmoid": lambda: operation(lambda nn: nn.Sigmoid(), 2, 64, 192),
    "tanh": lambda: operation(lambda nn: nn.Tanh(), 2, 64, 192),
}
NETWORKS: dict[str, Callable[[], tuple[Any, Any]]] = {
    "residual network": convolutional,
    "vision transformer": transformer,
    "vision transformer, torch rounding at the graph's nodes": lambda: transformer(as_exported=True),
    "embedded detector, D-FINE": lambda: detector("dfine"),
    "embedded detector, RT-DETRv2": lambda: detector("rtdetrv2"),
}


def compared(name: str, folder: Path, device: str = "cpu") -> dict[str, dict[str, float]]:
    """Emulation against torch in half precision, and both against float32.

    Returns:
        for each output (in order, by number): numbers, equal (share of them), units_p50, units_p99, units_max
        (FP16 numbers between the two), rms (of the difference, relative to that of the output), half_rms (the same
        for half precision in torch against float32 in torch: what FP16 costs), emulated_rms (for the emulation
        against float32). The queries of a detector are matched one to one first, least distance of scores and boxes.
    """
    import torch

    network, images = (OPERATIONS | NETWORKS)[name]()
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        wide = _tensors(network(images))
        network = network.half()
        path = folder / "model.onnx"
        torch.onnx.export(network, (images.half(),), str(path), dynamo=False, opset_version=_OPSET, input_names=["x"])
        halves = _tensors(network.to(device)(images.half().to(device)))
    emulated = list(EmulatedSession(path).run({"x": images.half().numpy()}).values())
    if "detector" in name:  # rounding changes the order of queries with nearly the same score
        emulated, wide = _in_order_of(halves, emulated), _in_order_of(halves, wide)
    rows = {}
    for number, (a, b, exact) in enumerate(zip(emulated, halves, wide, strict=True)):
        units, apart = distances(a.astype(np.float16), b.astype(np.float16))
        rows[str(number)] = {
            "numbers": a.size,
            "equal": float((units == 0).sum() / a.size),
            "units_p50": float(np.percentile(units, 50)),
            "units_p99": float(np.percentile(units, 99)),
            "units_max": float(units.max()) if not apart else float("inf"),
            "rms": rms(a - b) / rms(b),
            "half_rms": rms(b - exact) / rms(exact),
            "emulated_rms": rms(a - exact) / rms(exact),
        }
    return rows


def _in_order_of(reference: list[np.ndarray], outputs: list[np.ndarray]) -> list[np.ndarray]:
    """[1, queries, ...] with the queries in the order of their counterparts."""
    from scipy.optimize import linear_sum_assignment
    from scipy.spatial.distance import cdist

    rows = [np.concatenate([np.tanh(array[0] / 4) for array in arrays], axis=1) for arrays in (reference, outputs)]
    _, order = linear_sum_assignment(cdist(*rows))
    return [array[:, order] for array in outputs]


def _tensors(outputs: Any) -> list[np.ndarray]:
    return [one.float().cpu().numpy() for one in (outputs if isinstance(outputs, (tuple, list)) else [outputs])]


def rms(array: np.ndarray) -> float:
    return float(np.sqrt(np.mean(np.square(array.astype(np.float64)))))
