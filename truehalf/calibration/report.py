"""Report of a calibration: counts, and the largest tensors with their producers."""

from __future__ import annotations

from typing import TYPE_CHECKING

from truehalf.calibration.ranges_form import RangesJson
from truehalf.json_values import JsonObject

if TYPE_CHECKING:
    import onnx_ir as ir


def calibration_report(ranges: RangesJson, model: ir.Model) -> JsonObject:
    """The content of reports/calibrate.json: counts, and the ten largest tensors with their producers."""
    producers = {value.name: node.name or node.op_type for node in model.graph for value in node.outputs}
    tensors = ranges["tensors"]
    measured = {name: entry["absmax"] for name, entry in tensors.items() if entry["absmax"] is not None}
    largest = sorted(measured, key=lambda name: -measured[name])[:10]
    return {
        "samples": ranges["samples"],
        "tensors": len(tensors),
        "tensors_above_512": sum(absmax > 512 for absmax in measured.values()),
        "tensors_above_65504": sum(absmax > 65504 for absmax in measured.values()),
        "tensors_nonfinite": sum(bool(e["nan"] + e["posinf"] + e["neginf"]) for e in tensors.values()),
        "largest": [
            {
                **{"tensor": name, "node": producers.get(name)},
                **{"sample": tensors[name]["sample"], "absmax": measured[name]},
            }
            for name in largest
        ],
    }
