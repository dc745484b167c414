"""Graphs from ONNX's text format."""

from __future__ import annotations

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir

HUGE = float(np.finfo(np.float32).max)


def parsed(text: str, opset: int = 17) -> ir.Model:
    proto = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : {opset}]>\n{text}')
    onnx.checker.check_model(proto, full_check=True)
    return ir.from_proto(proto)
