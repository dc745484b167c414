"""Report of a calibration, the content of reports/calibrate.json."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

from truehalf.json_values import JsonObject, from_fields, to_fields

if TYPE_CHECKING:
    import onnx_ir as ir

    from truehalf.calibration.ranges_form import RangesJson

_LISTED_TENSORS = 10


class LargestTensor(TypedDict):
    """A tensor's absmax, the node that writes it (None of an input), and the sample that it comes from."""

    tensor: str
    node: str | None
    sample: str | None
    absmax: float


@dataclass(frozen=True)
class CalibrateReport:
    """Counts of a ranges.json, and its largest tensors.

    Attributes:
        samples: calibrated on.
        tensors: with a range.
        tensors_above_512, tensors_above_65504, tensors_nonfinite: by absmax; those with NaN or Inf.
        largest: ten tensors, the largest first.
        warnings: what the samples do not show.
    """

    samples: int = 0
    tensors: int = 0
    tensors_above_512: int = 0
    tensors_above_65504: int = 0
    tensors_nonfinite: int = 0
    largest: Sequence[LargestTensor] = ()
    warnings: Sequence[str] = ()

    def to_json(self) -> JsonObject:
        return to_fields(self)

    @classmethod
    def from_json(cls, content: JsonObject) -> CalibrateReport:
        return from_fields(cls, content)


def calibration_report(ranges: RangesJson, model: ir.Model) -> CalibrateReport:
    """Count the tensors of a ranges.json, and name the ten largest with the nodes that write them."""
    producers = {value.name: node.name or node.op_type for node in model.graph for value in node.outputs}
    tensors = ranges["tensors"]
    measured = {name: entry["absmax"] for name, entry in tensors.items() if entry["absmax"] is not None}
    largest = sorted(measured, key=lambda name: -measured[name])[:_LISTED_TENSORS]
    return CalibrateReport(
        samples=ranges["samples"],
        tensors=len(tensors),
        tensors_above_512=sum(absmax > 512 for absmax in measured.values()),
        tensors_above_65504=sum(absmax > 65504 for absmax in measured.values()),
        tensors_nonfinite=sum(entry["nonfinite"] > 0 for entry in tensors.values()),
        largest=[
            {
                "tensor": name,
                "node": producers.get(name),
                "sample": tensors[name]["sample"],
                "absmax": measured[name],
            }
            for name in largest
        ],
    )
