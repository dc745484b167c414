"""The precision of the file that an engine is built from: what it is declared to be, and what its nodes are.

With F the float nodes of the file (Cast and Constant aside) and H those whose float outputs are all FP16,

    declared fp32: refused unless H = 0          declared fp16: refused if H = 0

A mixed file is a lawful FP16 file: pins, ranges and placement keep nodes FP32, and how many is the converter's choice,
whose declared precision is what reports call the file's.
"""

from __future__ import annotations

import onnx_ir as ir

from truehalf.codes import coded
from truehalf.engines.engine_report import PrecisionFacts
from truehalf.errors import StageError
from truehalf.ir.facts import all_nodes, model_facts
from truehalf.ir.model_forms import ModelFile
from truehalf.ir.ops import Trait, has
from truehalf.runtime.tensorrt.versions import Graph


def float_facts(model: ir.Model) -> Graph:
    """float_nodes and fp16_nodes of a typed model, |F| and |H|; a plan carries them as `graph`."""
    facts = model_facts(model)
    return {"float_nodes": facts["float_nodes"], "fp16_nodes": facts["fp16_nodes"]}


def fp16_node_names(file: ModelFile) -> list[str]:
    """Names that a file itself gives to those of its nodes that compute and output FLOAT16 and no other float type, in
    graph order. Casts, constants and what only moves values are left out: an engine need not have them.
    """
    named = {node.name for node in all_nodes(file.written) if node.name}
    names: dict[str, None] = {}
    for node in all_nodes(file.typed):
        types = {output.dtype for output in node.outputs if output.name}
        floats = {dtype for dtype in types if dtype is not None and dtype.is_floating_point()}
        moves = has(node, Trait.NO_ARITHMETIC)
        if None not in types and {dtype.name for dtype in floats} == {"FLOAT16"} and not moves and node.name in named:
            names[str(node.name)] = None
    return list(names)


def nothing_in_fp16(file: ModelFile, declared: str) -> str | None:
    """Why a file that is declared FP16 is none: no float node of it is; None where one is."""
    graph = float_facts(file.typed)
    if declared != "fp16" or graph["fp16_nodes"]:
        return None
    return coded(
        "wrong-file",
        f"{file.path}: precision=fp16 is declared and none of its {graph['float_nodes']} float nodes is FP16; where "
        "it was converted so, reports/fp16.json names the rule of each: change the rule or include the "
        "node (precision.node_include_list), or declare precision=fp32; a file of an earlier run is made anew by "
        "`dvc repro cast_cleanup`",
    )


def check_precision(file: ModelFile, declared: str) -> None:
    """Refuse a file that cannot give the declared engine.

    Raises:
        StageError: when "fp16" is declared and no node is FP16, or "fp32" and some node is.
    """
    if nothing := nothing_in_fp16(file, declared):
        raise StageError("wrong-file", nothing)
    graph = float_facts(file.typed)
    if declared == "fp32" and graph["fp16_nodes"]:
        raise StageError(
            "wrong-file",
            f"{file.path}: precision=fp32 is declared and {graph['fp16_nodes']} of its {graph['float_nodes']} float "
            "nodes are FP16; run `dvc repro cast_cleanup`, or declare precision=fp16",
        )


def precision_facts(graph: Graph, declared: str) -> PrecisionFacts:
    """`precision` of a report: the file's declared precision, and how many of its nodes are FP16."""
    nodes, fp16 = graph["float_nodes"], graph["fp16_nodes"]
    return {
        "declared": declared,
        "float_nodes": nodes,
        "fp16_nodes": fp16,
        "fp16_fraction": fp16 / nodes if nodes else None,
    }
