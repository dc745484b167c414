"""The conversion once more, with further pins: as fp16 and cast_cleanup would make it."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from truehalf.calibration.ranges_form import RangesJson
from truehalf.config.precision import Precision
from truehalf.conversion.rules.base import MEASURED, Decision, Verdict
from truehalf.ir.model_file import load_model

if TYPE_CHECKING:
    import onnx_ir as ir

    from truehalf.conversion.convert import Conversion
    from truehalf.conversion.report import CastsReport


@dataclass(frozen=True)
class Reconversion:
    """Options and measurements that the stages fp16 and cast_cleanup go by.

    Attributes:
        precision: with the pins of model and decoder in its lists.
        ranges: content of ranges.json.
        input_shapes: by graph input, the shape at which costs of casts are compared.
        pins: by node name, the decision that a check came to.
    """

    precision: Precision
    ranges: RangesJson | None
    input_shapes: Mapping[str, Sequence[int]] | None
    pins: Mapping[str, Decision] = field(default_factory=dict)

    def named(self, fp32_path: Path) -> ir.Model:
        """Load the FP32 model at the opset that is converted, with the names that node_block_list is matched with."""
        from truehalf.ir.normalize import PREPARE
        from truehalf.ir.opset import ToOpset

        model = ToOpset(self.precision.opset)(load_model(fp32_path)).model
        PREPARE(model)
        return model

    def convert(self, fp32_path: Path, out_path: Path, nodes: Collection[str] = ()) -> tuple[Conversion, CastsReport]:
        """Write the file that the two stages would, with these nodes in FP32, too.

        Raises:
            StageError: as the stages.
        """
        from truehalf.conversion.casts_of_file import write_converted

        tried = dict.fromkeys(nodes, Decision(Verdict.fp32, MEASURED, "a search for pins tries it"))
        return write_converted(
            load_model(fp32_path),
            out_path,
            self.precision,
            self.ranges,
            input_shapes=self.input_shapes,
            pins={**self.pins, **tried},
        )
