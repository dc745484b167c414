"""Conversion of a file: FP32 ONNX -> mixed ONNX."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from truehalf.calibration.ranges_form import RangesJson
from truehalf.config.precision import Precision
from truehalf.conversion.report import Fp16Report
from truehalf.conversion.rules.base import Decision
from truehalf.errors import StageError
from truehalf.files import check_outputs, explain, write_json, written_whole
from truehalf.ir.model_file import load_model, model_size_mb, save_model, source_weights


def to_fp16(
    model_path: Path | str,
    out_path: Path | str,
    precision: Precision | None = None,
    *,
    calibration: Any = None,
    ranges: RangesJson | Path | str | None = None,
    input_shapes: Mapping[str, Sequence[int]] | None = None,
    pins: Mapping[str, Decision] | None = None,
    decisions_path: Path | str | None = None,
) -> Fp16Report:
    """Convert an FP32 ONNX file to FP16, leaving FP32 what must stay so.

    Args:
        model_path, out_path: ONNX files, any opset, not the same; large weights go to <out>.data. A file that has
            nothing to convert is passed on to the byte.
        precision: options; None: the defaults.
        calibration: samples to measure ranges on, see truehalf.data.model_samples.
        ranges: instead of `calibration`: content or path of a ranges.json.
        input_shapes, pins: as truehalf.conversion.convert.convert_model.
        decisions_path: where to write a JSON list with the decision for each node.

    Returns:
        truehalf.conversion.convert.Conversion.report, with the size of the file.

    Raises:
        StageError: as truehalf.conversion.convert.convert_model; a bad file, calibration or ranges, an output that
            is no regular file, an input or another output.
    """
    from truehalf.conversion.convert import convert_model

    if calibration is not None and ranges is not None:
        raise StageError(
            "in-conflict",
            "calibration and ranges: expected one of them, got both; ranges are what calibration measures",
        )
    model = load_model(model_path)
    check_outputs(
        {"out_path": out_path, "decisions_path": decisions_path},
        {"model_path": model_path, "calibration": calibration, "ranges": ranges},
        source_weights(model),
    )
    options = precision or Precision()
    made = convert_model(model, options, ranges, calibration=calibration, input_shapes=input_shapes, pins=pins)
    written = Path(out_path)
    try:
        if made.is_converted or source_weights(model):  # external data is named after its model
            save_model(made.model, written)
        else:
            with written_whole(written) as building:
                shutil.copyfile(model_path, building)
        if decisions_path is not None:
            written = Path(decisions_path)
            write_json(written, made.decisions)
    except OSError as error:
        raise StageError("file-unwritable", f"{written}: {explain(error)}") from error
    report = made.report()
    return replace(report, model={**report.model, "size_mb": model_size_mb(out_path)})
