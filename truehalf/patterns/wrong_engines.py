"""Right files of which TensorRT builds wrong engines, as its users have reported, by version."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import onnx_ir as ir

from truehalf.ir.facts import is_op, producer_of
from truehalf.ir.patterns import Neighbours
from truehalf.patterns.frame import Match, Pattern, Subject, Version
from truehalf.patterns.origins import constant

_HALF = ir.DataType.FLOAT16


@dataclass(frozen=True)
class Report:
    """A report of wrong engines.

    Attributes:
        thread: where it is.
        first, last: versions of TensorRT that are known to build them; last None: no later one is known to be right.
        gpu: on which it was seen.
        what: the fault.
        remedy: a way round.
        nodes: finds the nodes of a model that it is about.
    """

    thread: str
    first: Version
    last: Version | None
    gpu: str
    what: str
    remedy: str
    nodes: Callable[[Subject], list[ir.Node]]


class KnownWrongEngine(Pattern):
    """a right file whose engine is known to be wrong

    Users of the named version of TensorRT report wrong engines of such files. Nothing is wrong with the file.

    Instead: Compare the engine with the FP32 model on the GPU that runs it (the stage engine does), and where it
    differs, go round it as the finding says.

    Looked for where `--tensorrt` names a version. `GridSample` has a rule of its own (`grid-sample`). Builds are not
    deterministic: the same file may give a right engine in one build and a wrong one in the next. Source: the threads
    that the findings name.
    """

    id, severity = "known-wrong-engine", "info"

    def find(self, subject: Subject) -> Iterator[Match]:
        for report in REPORTS if subject.is_stated else ():
            is_of_version = any(report.first <= version <= (report.last or version) for version in subject.versions)
            if is_of_version and (nodes := report.nodes(subject)):
                seen = f"{report.thread}: {report.what}, seen on {report.gpu}."
                yield Match(nodes[0], seen, report.remedy, count=len(nodes))


def _attentions(subject: Subject) -> list[ir.Node]:
    return [attention.softmax for attention in Neighbours(subject.model).attentions()]


def _half_attentions(subject: Subject) -> list[ir.Node]:
    attentions = Neighbours(subject.model).attentions()
    fused = [each.softmax for each in attentions if all(node.outputs[0].dtype == _HALF for node in each.products)]
    return fused + [node for node in subject.of_type("Attention") if node.outputs[0].dtype == _HALF]


def _twice_scaled(subject: Subject) -> list[ir.Node]:
    """Attentions whose Q and K are both scaled, as torch exports scaled_dot_product_attention."""
    softmaxes = []
    for attention in Neighbours(subject.model).attentions():
        scaled = [producer_of(value, "Mul") for value in attention.products[0].inputs]
        if all(node is not None and any(constant(value) is not None for value in node.inputs) for node in scaled):
            softmaxes.append(attention.softmax)
    return softmaxes


def _cumulated(subject: Subject) -> list[ir.Node]:
    """CumSum nodes of a model in which they differ in axis or direction."""
    nodes = list(subject.of_type("CumSum"))
    forms = {(str(subject.values.sizes(node.inputs[1])), node.attributes.get_int("reverse", 0)) for node in nodes}
    return nodes if len(forms) > 1 else []


def _shortcuts_of_views(subject: Subject) -> list[ir.Node]:
    """Adds of an activated convolution and a part of a tensor (Split, Slice) that a Concat reads, too (C2f of YOLO)."""
    additions = []
    for node in subject.of_type("Add"):
        views = [value for value in node.inputs if value is not None and is_op(value.producer(), "Split", "Slice")]
        activated = [value for value in node.inputs if value not in views]
        joins = any(is_op(reader, "Concat") for value in views for reader in value.consumers())
        if joins and node.outputs[0].dtype == _HALF and any(map(_is_of_conv, activated)):
            additions.append(node)
    return additions


def _is_of_conv(value: ir.Value | None) -> bool:
    """Return True for a convolution's result behind an activation of one node, or of Sigmoid and Mul."""
    node = None if value is None else value.producer()
    before = [] if node is None else [each.producer() for each in node.inputs if each is not None]
    return any(is_op(each, "Conv") for each in (node, *before))


REPORTS = (
    Report(
        "NVIDIA/TensorRT#4837",
        (10, 16),
        (10, 16),
        "GPUs of compute capability 12.0",
        "fused attention in FP16 puts out wrong values (a best score of 0.93 became 0.05)",
        "Keep one product of each attention FP32 (precision.op_block_list), which keeps it out of the fused kernel.",
        _half_attentions,
    ),
    Report(
        "NVIDIA/TensorRT#4723, #4742",
        (10, 3),
        (10, 4),
        "RTX A6000",
        "attention of DINOv3 is computed wrongly, in FP32, too",
        "Build with a later version.",
        _attentions,
    ),
    Report(
        "NVIDIA/TensorRT#4333, #4328",
        (10, 7),
        (10, 7),
        "L4",
        "attention whose Q and K are both scaled, as torch exports scaled_dot_product_attention, is computed wrongly",
        "Scale Q alone: (q * scale) @ k.transpose(-2, -1); or build with a later version.",
        _twice_scaled,
    ),
    Report(
        "onnx/onnx-tensorrt#1034, NVIDIA/TensorRT#4551, #4513",
        (10, 8),
        None,
        "A10",
        "several CumSum of different axes or directions are computed as the first one",
        "Multiply by a triangular matrix of ones in place of all CumSum but one.",
        _cumulated,
    ),
    Report(
        "NVIDIA/TensorRT#4854",
        (11, 2),
        None,
        "RTX PRO 6000 Blackwell",
        "convolution, activation and a shortcut from a part of a tensor that is also concatenated, fused in FP16, read "
        "wrong elements (YOLO26: mAP50 0.701 became 0.458)",
        "Compare the engine's detections; keep these additions FP32 where they differ.",
        _shortcuts_of_views,
    ),
)
PATTERNS = (KnownWrongEngine(),)
