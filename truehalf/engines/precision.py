"""The precision of the file that an engine is built from: what it is declared to be, and what its nodes are.

With F the float nodes of the file (Cast and Constant aside) and H those whose float outputs are all FP16,

    declared fp32: H = 0          declared fp16: H > 0

A mixed file is a lawful FP16 file: pins, ranges and placement keep nodes FP32, and how many is the converter's choice,
whose declared precision is what reports call the file's.
"""

from __future__ import annotations

import onnx_ir as ir

from truehalf.codes import coded
from truehalf.engines.engine_report import PrecisionFacts
from truehalf.ir.facts import model_facts
from truehalf.ir.model_forms import ModelFile


def precision_facts(model: ir.Model, declared: str) -> PrecisionFacts:
    """Declared precision of a typed model, and its FP16 nodes."""
    facts = model_facts(model)
    keys = ("float_nodes", "fp16_nodes", "fp16_fraction")
    nodes, fp16, fraction = (facts[key] for key in keys)  # type: ignore[literal-required]
    return {"declared": declared, "float_nodes": nodes, "fp16_nodes": fp16, "fp16_fraction": fraction}


def contradiction(file: ModelFile, facts: PrecisionFacts) -> str | None:
    """Error message about a file that is declared fp16 and has no FP16 float node, or fp32 and has some; else None."""
    declared = facts["declared"]
    if (declared == "fp16") == bool(facts["fp16_nodes"]):
        return None
    other = "fp32" if declared == "fp16" else "fp16"
    return coded(
        "wrong-file",
        f"{file.path}: precision={declared} is declared, and {facts['fp16_nodes']} of its {facts['float_nodes']} float "
        f"nodes are FP16. Set precision={other}, or make the file anew by `dvc repro cast_cleanup`; where the "
        "conversion kept all nodes FP32, reports/fp16.json names the rule of each: change the rule, or include the "
        "node (precision.node_include_list)",
    )
