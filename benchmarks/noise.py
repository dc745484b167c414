"""What calibration on noise gets wrong, on the embedded D-FINE detector: ranges, and nodes that stay FP32 by them.

    python -m benchmarks.noise

Beside 64 digit scenes, 64 pictures of noise: uniform in the range of a pixel (what data=random makes), and normal with
mean 0 and deviation 1, fed as it is (what torch.randn makes). The detector as it was trained, and the same function
with larger values inside: attention values times 2^n, output projections times 2^-n. Writes results/noise.json, the
figures of docs/how-to/data.md.
"""

from __future__ import annotations

import argparse
import json
import re
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.models import _composed, detector
from pipeline.workspace import CONF
from tests.measuring.converted import to_fp16
from truehalf.calibration.calibrate import calibrate
from truehalf.data.samples import calibration_samples, stacked
from truehalf.ir.model_file import load_model
from truehalf.models.configuration import validated
from truehalf.models.source import described, open_model

SAMPLES = 64
GAINS_LOG2 = (0, 7)  # model.options.attention_gain_log2: as trained, and with values that data_max is there for
LIMITS = (512.0, 128.0, 32.0)  # of data_max: the default, and lower ones
LAYERS = {  # of the table: the largest |x| that any tensor below a scope has
    "backbone": r"/network/model/backbone/",
    "encoder": r"/network/model/encoder/",
    "decoder": r"/network/model/decoder/",
}


def pictures() -> dict[str, np.ndarray]:
    """Samples by kind, float32 [SAMPLES, 3, 128, 128]."""
    found = {}
    for kind, choice in (("digit scenes", "digits"), ("uniform noise", "random")):
        config = validated(_composed("decoder=dfine", f"data={choice}", f"data.calibration_samples={SAMPLES}"))
        known = described(open_model(config, CONF.parent))
        found[kind] = stacked(calibration_samples(config, CONF.parent, known)[:])["images"]
    found["normal noise"] = np.random.default_rng(0).standard_normal((SAMPLES, 3, 128, 128), np.float32)
    return found


def measured(path: Path, images: np.ndarray) -> Mapping[str, Any]:
    """Ranges of a model on samples, see truehalf.calibration.calibrate."""
    found: Mapping[str, Any] = calibrate(path, [{"images": image[np.newaxis]} for image in images])
    return found


def kept_by_range(path: Path, ranges: Mapping[str, Any], data_max: float) -> list[str]:
    """Nodes that stay FP32 because of data_max."""
    with tempfile.TemporaryDirectory() as folder:
        decisions = Path(folder) / "decisions.json"
        to_fp16(path, Path(folder) / "fp16.onnx", ranges=ranges, data_max=data_max, decisions_path=decisions)
        rows = json.loads(decisions.read_text())
    return [row["node"] for row in rows if row["precision"] == "fp32" and "data_max" in row["reason"]]


def compared(path: Path) -> dict[str, Any]:
    """By kind of samples: the largest |x| by layer, shares of the tensors whose |x| is off by more than two beside real
    pictures, and the nodes that data_max keeps FP32.
    """
    producers = {value.name: node.name or "" for node in load_model(path).graph for value in node.outputs}
    kinds = {kind: measured(path, images) for kind, images in pictures().items()}
    absmax = {
        kind: {name: entry["absmax"] or 0.0 for name, entry in ranges["tensors"].items() if name in producers}
        for kind, ranges in kinds.items()
    }
    real = absmax["digit scenes"]
    kept = {kind: {limit: kept_by_range(path, ranges, limit) for limit in LIMITS} for kind, ranges in kinds.items()}
    return {
        kind: {
            "layers": {
                layer: max((largest[name] for name in real if re.search(scope, producers[name])), default=0.0)
                for layer, scope in LAYERS.items()
            },
            "tensors": len(real),
            "less_than_half": _share([largest[name] < real[name] / 2 for name in real]),
            "smallest_share": min(largest[name] / real[name] for name in real if real[name] > 1),
            "more_than_twice": _share([largest[name] > real[name] * 2 for name in real]),
            "kept": {f"{limit:g}": len(kept[kind][limit]) for limit in LIMITS},
            "missed": {
                f"{limit:g}": len(set(kept["digit scenes"][limit]) - set(kept[kind][limit])) for limit in LIMITS
            },
            "needless": {
                f"{limit:g}": len(set(kept[kind][limit]) - set(kept["digit scenes"][limit])) for limit in LIMITS
            },
        }
        for kind, largest in absmax.items()
    }


def _share(found: Sequence[bool]) -> float:
    return sum(found) / len(found)


def main() -> None:
    argparse.ArgumentParser(prog="python -m benchmarks.noise", description="Calibration on noise.").parse_args()
    found = {}
    for gain in GAINS_LOG2:
        with tempfile.TemporaryDirectory() as folder:
            overrides = ["model=ltdetr_nano", "decoder=dfine", f"model.options.attention_gain_log2={gain}"]
            detector(Path(folder), "model", overrides)
            found[f"gain 2^{gain}"] = compared(Path(folder) / "model.onnx")
        print(json.dumps(found[f"gain 2^{gain}"], indent=2), flush=True)
    place = Path(__file__).parent / "results" / "noise.json"
    place.write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
