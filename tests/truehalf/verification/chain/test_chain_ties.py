"""A chain whose model decides: near ties that rounding decides are no difference, in a batch, on adversarial
samples and at a point of an engine, too; others are.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
import torch

from tests.truehalf.verification.small_detector import OPTIONS
from truehalf.data.samples import Sample
from truehalf.io_spec.spec import IoSpec
from truehalf.verification.chain import chain
from truehalf.verification.chain.reference import freeze
from truehalf.verification.chain.stage import Judge

ROWS, CLASSES, WIDE = 12, 6, 4
NEAR, CLEAR = 1e-3, 0.05  # margins, of what the values spread over
SPEC = IoSpec.from_json(
    {
        "inputs": [{"name": "x", "shape": ["batch", CLASSES, WIDE]}],
        "outputs": [{"name": "y"}],
        "class_names": [],
        "trained": True,
    }
)


HEAD = '<ir_version: 10, opset_import: ["" : 17]> mapped (float[batch,6,4] x) => ({dtype}[batch,{shape}] y)'
ADDED = "moved = Add (x, offset)"
TABLE = torch.from_numpy(np.random.default_rng(5).normal(0, 1, (CLASSES, 3)).astype(np.float32))
Chosen = Callable[[torch.Tensor], torch.Tensor]
# What a model outputs, and the nodes that make it of `moved`, [batch, CLASSES, WIDE].
KINDS: dict[str, tuple[str, str, Chosen]] = {
    "best class of each place": ("4", "y = ArgMax <axis = 1, keepdims = 0> (moved)", lambda x: x.argmax(1)),
    "mask of the two best": (
        "6,4",
        "v, i = TopK <axis = 1> (moved, two)  t = ReduceMin <axes = [1]> (v)  m = Less (moved, t)  n = Not (m)  "
        "y = Cast <to = 1> (n)",
        lambda x: (x >= x.topk(2, dim=1).values.amin(1, keepdim=True)).float(),
    ),
}
# The same, of indices that go on to other nodes.
CARRIED: dict[str, tuple[str, str, Chosen]] = {
    "row of a table": (
        "4,3",
        "i = ArgMax <axis = 1, keepdims = 0> (moved)  y = Gather (table, i)",
        lambda x: TABLE[x.argmax(1)],
    ),
    "two choices": (
        "4",
        "i = ArgMax <axis = 1, keepdims = 0> (moved)  t = Gather (table, i)  y = ArgMax <axis = 2, keepdims = 0> (t)",
        lambda x: TABLE[x.argmax(1)].argmax(2),
    ),
}


ALL = KINDS | CARRIED


class Choosing(torch.nn.Module):
    def __init__(self, chosen: Chosen) -> None:
        super().__init__()
        self.chosen = chosen

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor]:
        return (self.chosen(x),)


def rows(margin: float) -> np.ndarray:
    """Values of two levels, 0 and 1, those of one level at most `margin` apart."""
    rng = np.random.default_rng(3)
    shape = (ROWS, CLASSES, WIDE)
    return (rng.integers(0, 2, shape) + rng.uniform(0, margin, shape)).astype(np.float32)


def write(path: Path, kind: str, offset: np.ndarray) -> Path:
    shape, nodes, chosen = ALL[kind]
    dtype = "int64" if chosen(torch.zeros(1, CLASSES, WIDE)).dtype == torch.int64 else "float"
    model = onnx.parser.parse_model(f"{HEAD.format(shape=shape, dtype=dtype)} {{ {ADDED}  {nodes} }}")
    constants = {"offset": offset, "two": np.array([2], np.int64), "table": TABLE.numpy()}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(each, name) for name, each in constants.items())
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path


def moved_by(margin: float) -> np.ndarray:
    """What often makes another value of a level the best."""
    return np.random.default_rng(4).uniform(0, margin, (1, CLASSES, WIDE)).astype(np.float32)


def frozen(kind: str, x: np.ndarray) -> Any:
    samples = [Sample(f"made/{number}", {"x": row}, None, None) for number, row in enumerate(x)]
    return freeze(Choosing(ALL[kind][2]), samples, SPEC, 5)


def verified(folder: Path, kind: str, margin: float) -> dict[str, Any]:
    reference = frozen(kind, rows(margin))
    fp32 = write(folder / "fp32.onnx", kind, np.zeros((1, CLASSES, WIDE), np.float32))
    final = write(folder / "final.onnx", kind, moved_by(margin))
    files = {"trace": fp32, "slim": fp32, "fp16": final, "cast_cleanup": final}
    judge, made = Judge(reference, reference, OPTIONS), chain.Making(batch_sizes=(1, 4))
    return chain.verify(judge, files, folder / "out", made).to_json()


@pytest.mark.parametrize("kind", ALL)
def test_near_ties_of_a_chain_pass_and_are_counted(kind: str, tmp_path: Path) -> None:
    report = verified(tmp_path, kind, NEAR)
    assert report["verdict"] == "passed", report["reasons"]
    assert any("[near-ties]" in each for each in report["not_verified"])
    states = {check["check"]: check["state"] for check in report["checks"]}
    assert states["batch"] == states["adversarial"] == states["tensors"] == "verified"


@pytest.mark.parametrize("kind", ALL)
def test_indices_of_clearly_smaller_values_fail(kind: str, tmp_path: Path) -> None:
    assert verified(tmp_path, kind, CLEAR)["verdict"] == "failed"
