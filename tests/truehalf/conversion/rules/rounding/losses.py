"""Error of a conversion in emulated FP16, with and without what calibration measured of rounding."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from tests.truehalf.calibration.small_graphs import parsed
from truehalf.calibration.calibrate import calibrate
from truehalf.config.precision import Precision
from truehalf.conversion.convert import convert_model
from truehalf.emulation.sessions import EmulatedSession
from truehalf.ir.normalize import PREPARE
from truehalf.ir.ops import TABLE
from truehalf.runtime.ort.session import Session

TOLERANCE = 0.01  # verify.gates.tensor_error_max
# Other rules and the costs of casts keep much of a small graph in FP32; here as little as may be.
EVERYWHERE = Precision(fp16_ops=tuple(TABLE), data_max=None, underflow_share_max=None)
Arrays = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class Losses:
    """Errors, max |o - r| / max |r|, largest of all outputs.

    Attributes:
        before, after: without and with the rules of this folder.
        kept: rule by FP32 node.
        casts: that were added.
    """

    before: float
    after: float
    kept: Mapping[str, str]
    casts: int


def losses(
    text: str,
    feed: Arrays,
    weights: Arrays | None = None,
    *,
    opset: int = 17,
    pessimistic: bool = False,
    other: Arrays | None = None,
) -> Losses:
    """`weights` become initializers in place of inputs; pessimistic: what FP16 nodes add up is rounded, too; `other`:
    errors are those on it, and not on what was calibrated on.
    """
    model = parsed(text, opset)
    for name, array in (weights or {}).items():
        value = next(value for value in model.graph.inputs if value.name == name)
        model.graph.inputs.remove(value)
        value.const_value = ir.tensor(array, name=name)
        model.graph.register_initializer(value)
    PREPARE(model)
    ranges = calibrate(model, [feed], nonfinite_outputs="warn")
    feed = feed if other is None else other
    expected = Session(model).run(feed)
    file = ir.to_proto(model)  # a clone shares the types of its values, which a conversion changes
    before = convert_model(ir.from_proto(file), EVERYWHERE, {**ranges, "rounding": {}})
    after = convert_model(ir.from_proto(file), EVERYWHERE, ranges)
    report = after.report()
    errors = [_error(each.model, feed, expected, pessimistic) for each in (before, after)]
    kept = {row["node"]: row["rule"] for row in after.decisions if row["precision"] == "fp32"}
    return Losses(*errors, kept, report["casts_to_fp16"] + report["casts_to_fp32"])


def _error(model: ir.Model, feed: Arrays, expected: Arrays, pessimistic: bool) -> float:
    made = EmulatedSession(model, pessimistic=pessimistic).run(feed)
    worst = 0.0
    for name, reference in expected.items():
        other, known = made[name], np.isfinite(reference)
        if not np.isfinite(other[known]).all():
            return float("inf")
        scale = np.abs(reference[known]).max(initial=0.0) or 1.0
        worst = max(worst, float(np.abs(other[known] - reference[known]).max(initial=0.0) / scale))
    return worst
