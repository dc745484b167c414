"""Choosing between values, and arithmetic on booleans."""

from __future__ import annotations

import math
from collections.abc import Iterator

import onnx_ir as ir

from truehalf.ir.facts import is_op, producer_of
from truehalf.ir.ops import Trait
from truehalf.patterns.frame import Match, Pattern, Subject, scalar
from truehalf.patterns.origins import Origin


class WhereCondition(Pattern):
    """where on a computed condition, which may be built as an IffCondition

    TensorRT may build a where on a computed condition as an IffCondition, and has failed to build such engines. Most
    are built well.

    Instead: Only where a build fails: c * x + (1 - c) * y, provided that neither branch is Inf or NaN (0 * inf is NaN).

    ```python
    y = torch.where(c, a, b)
    y = c.float() * a + (1 - c.float()) * b  # provided that a and b are finite: 0 * inf is NaN
    ```

    Source: NVIDIA's guidance on exporting for TensorRT.
    """

    id, severity = "where-condition", "info"

    def find(self, subject: Subject) -> Iterator[Match]:
        quadrants = {where for atan in subject.of_type("Atan") for where in _quadrants(atan)}
        for node in subject.of_type("Where"):
            if node not in quadrants and subject.values.origin(node.inputs[0]) >= Origin.INPUT:
                yield Match(node)


class BoolArithmetic(Pattern):
    """&, | and ~ on booleans; bitwise operators

    Info for `And`, `Or`, `Xor` and `Not` on computed booleans: most builds accept them, some refuse. Error for
    `BitwiseAnd`, `BitwiseOr`, `BitwiseXor`, `BitwiseNot` and `BitShift`, which TensorRT does not have.

    Instead: Only where a build fails: a * b for a & b, min(a + b, 1) for a | b, 1 - a for ~a, over integers.

    ```python
    keep = inside & ~small
    keep = inside.int() * (1 - small.int())  # where a build fails
    ```

    Source: NVIDIA's guidance on exporting for TensorRT; TensorRT's operator matrix (Bitwise*, BitShift).
    """

    id, severity = "bool-arithmetic", "info"

    def find(self, subject: Subject) -> Iterator[Match]:
        for node in subject.with_trait(Trait.BITWISE):
            remedy = "Compute with booleans (&, |, ~ of bool tensors) or with * and +."
            yield Match(node, f"TensorRT has no {node.op_type}.", remedy, "error")
        for node in subject.with_trait(Trait.LOGIC):
            if max(subject.values.origin(value) for value in node.inputs) >= Origin.INPUT:
                yield Match(node, f"TensorRT builds {node.op_type} of booleans in most places, and refuses it in some.")


class Atan2(Pattern):
    """atan2 spelt out by the exporter: NaN at the origin

    atan2(y, x) was exported as atan(y / x) with quadrants chosen by sign: at x = y = 0 it is 0 / 0, so NaN, where torch
    gives 0.

    Instead: atan of the smaller of |y| and |x| over the larger, the quadrant chosen by signs: no division by 0.

    Info where 0 replaces NaN at the end, as the dynamo exporter writes it: right at the origin, but it hides an input
    that is NaN.

    In torch: "atan2" of docs/how-to/trt-friendly.md, which is 0 there. Source: torch's exporter; NVIDIA's guidance on
    exporting for TensorRT.
    """

    id = "atan2"

    def find(self, subject: Subject) -> Iterator[Match]:
        for node in subject.of_type("Atan"):
            quadrants = _quadrants(node)
            if any(_replaces_nan(where) for where in quadrants):
                yield Match(
                    node,
                    "atan2(y, x) was exported as atan(y / x) with quadrants chosen by sign, and 0 where that is NaN: "
                    "right at x = y = 0, but 0 where an input is NaN, too.",
                    severity="info",
                )
            elif quadrants:
                yield Match(node)


def _quadrants(atan: ir.Node) -> list[ir.Node]:
    """Find the Where nodes that choose the quadrant of an arc tangent of a quotient.

    Where(x < 0, Where(y > 0, Atan(y / x) + pi, Atan(y / x) - pi), Atan(y / x)), with or without Where(IsNaN(a), 0, a)
    after it.
    """
    if producer_of(atan.inputs[0], "Div") is None:
        return []
    turned = [each for each in _readers(atan, "Add", "Sub") if any(_is_pi(value) for value in each.inputs)]
    inner = [where for each in turned for where in _readers(each, "Where")]
    outer = _readers(atan, "Where")
    guards = [where for each in outer for where in _readers(each, "Where") if _replaces_nan(where)]
    return [*inner, *outer, *guards] if inner and outer else []


def _readers(node: ir.Node, *op_types: str) -> list[ir.Node]:
    return [reader for reader in node.outputs[0].consumers() if is_op(reader, *op_types)]


def _replaces_nan(where: ir.Node) -> bool:
    """Return True for Where(IsNaN(a), 0, a), as the dynamo exporter ends an arc tangent."""
    asked = producer_of(where.inputs[0], "IsNaN")
    return asked is not None and asked.inputs[0] is where.inputs[2]


def _is_pi(value: ir.Value | None) -> bool:
    number = scalar(value)
    return number is not None and math.isclose(abs(number), math.pi, rel_tol=1e-3)


PATTERNS = (WhereCondition(), BoolArithmetic(), Atan2())
