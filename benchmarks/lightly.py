"""lightly-train's own export of its LT-DETR, FP32 and FP16, with random weights; run in its own environment.

    make bench-lightly
    .venv-lightly/bin/python -P benchmarks/lightly.py benchmarks/build/models

Writes vitt16_<decoder>.onnx (FP32), vitt16_<decoder>.fp16.onnx and the samples beside them: those of dfine640, which
benchmarks.models has made, normalised as the network expects.
"""

from __future__ import annotations

import sys
from collections import Counter
from pathlib import Path

CLASSES = {number: str(number) for number in range(10)}
SIZE = (640, 640)
MEAN = (0.485, 0.456, 0.406)
STD = (0.229, 0.224, 0.225)


def export(folder: Path, decoder: str) -> None:
    import numpy as np
    import onnx
    import torch

    from truehalf.models.sources.lightly_train import made

    torch.manual_seed(0)
    network = made("dinov3/vitt16-ltdetr", CLASSES, SIZE, decoder_name=decoder).eval()
    for precision, suffix in (("fp32", ""), ("fp16", ".fp16")):
        path = folder / f"vitt16_{decoder}{suffix}.onnx"
        network.export_onnx(path, precision=precision)
        model = onnx.load(path)
        if not any(tensor.external_data for tensor in model.graph.initializer):
            path.with_name(f"{path.name}.data").unlink(missing_ok=True)  # a leftover: onnxslim took the weights in
        counts = Counter(node.op_type for node in model.graph.node)
        print(f"{path}: {counts['Cast']} casts, {sum(counts.values())} nodes", flush=True)
    mean, std = (np.array(channels, np.float32).reshape(1, 3, 1, 1) for channels in (MEAN, STD))
    for suffix in (".npz", ".check.npz"):
        with np.load(folder / f"dfine640{suffix}") as scenes:
            np.savez(folder / f"vitt16_{decoder}{suffix}", images=(scenes["images"] - mean) / std)


if __name__ == "__main__":
    target = Path(sys.argv[1])
    for name in ("dfine", "rtdetrv2"):
        export(target, name)
