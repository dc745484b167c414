"""The conversion once more, in memory, with further pins: what fp16 and cast_cleanup would make of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from truehalf.calibration.ranges_form import RangesJson
from truehalf.config.engine import EngineConfig
from truehalf.config.precision import Precision
from truehalf.io_spec.profiles import completed
from truehalf.io_spec.spec import IoSpec
from truehalf.ir.model_file import load_model

if TYPE_CHECKING:
    import onnx_ir as ir

    from truehalf.conversion.convert import Conversion


@dataclass(frozen=True)
class Reconversion:
    """What the stages fp16 and cast_cleanup go by.

    Attributes:
        precision: with the pins of model and decoder in its lists.
        ranges: content of ranges.json.
        input_shapes: by graph input, the shape at which costs of casts are compared.
    """

    precision: Precision
    ranges: RangesJson | None
    input_shapes: Mapping[str, Sequence[int]] | None

    @classmethod
    def of(cls, precision: Precision, engine: EngineConfig, spec: IoSpec, ranges: RangesJson | None) -> Reconversion:
        """That of a run; `spec` is the I/O spec of its model."""
        first, *_ = completed(engine.profiles, spec.inputs)
        return cls(precision, ranges, {name: shapes["opt"] for name, shapes in first.items()})

    def with_pins(self, nodes: Sequence[str]) -> Reconversion:
        """The same with these entries of node_block_list besides."""
        listed = (*self.precision.node_block_list, *nodes)
        return replace(self, precision=replace(self.precision, node_block_list=listed))

    def named(self, fp32_path: Path) -> ir.Model:
        """The FP32 model at the opset that is converted, with the names that node_block_list is matched with."""
        from truehalf.ir.normalize import PREPARE
        from truehalf.ir.opset import ToOpset

        model = ToOpset(self.precision.opset)(load_model(fp32_path)).model
        PREPARE(model)
        return model

    def convert(self, fp32_path: Path, out_path: Path, nodes: Sequence[str]) -> Conversion:
        """Write what the two stages would, with these entries of node_block_list besides.

        Raises:
            StageError: as the stages.
        """
        from truehalf.conversion.casts_of_file import write_converted

        precision = self.with_pins(nodes).precision
        model, shapes = load_model(fp32_path), self.input_shapes
        return write_converted(model, out_path, precision, self.ranges, input_shapes=shapes)[0]
