"""Lint a graph that is stated as ONNX text."""

from __future__ import annotations

from typing import Any

import onnx_ir as ir

from truehalf.ir.normalize import InferTypes
from truehalf.patterns import Finding, lint


def model_of(text: str, opset: int = 17, imports: str = "") -> ir.Model:
    model = ir.from_onnx_text(f'<ir_version: 10, opset_import: ["": {opset}{imports}]> g {text}')
    InferTypes()(model)
    return model


# What is true of most texts: nodes have no names, some inputs are not read, sizes vary.
OF_TEXTS = ("empty-node-name", "baked-item", "deployment-io")


def findings(text: str, opset: int = 17, imports: str = "", **options: Any) -> list[Finding]:
    """What lint says, `OF_TEXTS` left out unless `ignore` says otherwise."""
    return lint(model_of(text, opset, imports), **({"ignore": OF_TEXTS} | options))


def found(text: str, opset: int = 17, imports: str = "", **options: Any) -> list[tuple[str, str]]:
    """Severity and rule of each finding."""
    return [(finding.severity, finding.rule) for finding in findings(text, opset, imports, **options)]


def only(text: str, opset: int = 17, imports: str = "", **options: Any) -> Finding:
    (finding,) = findings(text, opset, imports, **options)
    return finding
