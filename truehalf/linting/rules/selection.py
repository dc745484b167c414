"""Choosing between values, and arithmetic on booleans.

where-condition   Where whose condition is DATA or an input
bool-arithmetic   And, Or, Not, Xor on DATA; bitwise operators and BitShift; Mod of a boolean
atan2             Where(x < 0, Where(y > 0, Atan(y / x) + pi, Atan(y / x) - pi), Atan(y / x)), with or without
                  Where(IsNaN(..), 0, ..) after it
"""

from __future__ import annotations

import math
from collections.abc import Iterator

import onnx_ir as ir

from truehalf.ir.facts import is_op, producer_of
from truehalf.ir.ops import Trait
from truehalf.linting.base import Check, LocatedFinding, Rule, Subject, scalar, upstream
from truehalf.linting.values import Origin


class WhereCondition(Rule):
    """where on a computed condition, which may be built as an IffCondition

    `torch.where` on a computed condition may be built as an IffCondition, and engines have failed to build over it.
    Most build, so change it only where a build fails.

    ```python
    y = torch.where(c, a, b)
    y = c.float() * a + (1 - c.float()) * b  # provided that a and b are finite: 0 * inf is NaN
    ```
    """

    id, severity = "where-condition", "info"
    source = "NVIDIA's guidance on exporting for TensorRT"


class BoolArithmetic(Rule):
    """&, | and ~ on booleans; bitwise operators

    Info for `And`, `Or`, `Xor` and `Not` on computed booleans: most builds accept them, some refuse. Error for
    `BitwiseAnd`, `BitwiseOr`, `BitwiseXor`, `BitwiseNot` and `BitShift`, which TensorRT does not have. Warning for
    `Mod` of a boolean.

    ```python
    keep = inside & ~small
    keep = inside.int() * (1 - small.int())  # where a build fails
    ```
    """

    id, severity = "bool-arithmetic", "info"
    source = "NVIDIA's guidance on exporting for TensorRT; TensorRT's operator matrix (Bitwise*, BitShift)"


class Atan2(Rule):
    """atan2 spelt out by the exporter: NaN at the origin

    The exporter writes `atan2(y, x)` as `atan(y / x)` with the quadrant chosen by two `Where`. At x = y = 0 that is 0 /
    0: NaN, where torch gives 0. Info where 0 replaces NaN at the end, as the dynamo exporter writes it: right at the
    origin, but it hides an input that is NaN. Error for an operator that is called atan2: there is none.

    In torch: "atan2" of docs/how-to/trt-friendly.md, which is 0 there.
    """

    id = "atan2"
    source = "torch's exporter; NVIDIA's guidance on exporting for TensorRT"


def wheres(subject: Subject) -> Iterator[LocatedFinding]:
    quadrants = {where for atan in subject.of_type("Atan") for where in _quadrants(atan)}
    for node in subject.of_type("Where"):
        if node not in quadrants and subject.values.origin(node.inputs[0]) >= Origin.INPUT:
            yield WhereCondition.at(
                node,
                "TensorRT may build a where on a computed condition as an IffCondition, and has failed to build such "
                "engines. Most are built well.",
                "Only where a build fails: c * x + (1 - c) * y, provided that neither branch is Inf or NaN (0 * inf is "
                "NaN).",
            )


def booleans(subject: Subject) -> Iterator[LocatedFinding]:
    for node in subject.with_trait(Trait.BITWISE):
        yield BoolArithmetic.at(
            node,
            f"TensorRT has no {node.op_type}.",
            "Compute with booleans (&, |, ~ of bool tensors) or with * and +.",
            "error",
        )
    for node in subject.of_type("Mod"):
        if any(_was_boolean(value) for value in node.inputs):
            yield BoolArithmetic.at(node, "A remainder of a boolean.", "Compute with * and - on integers.", "warning")
    for node in subject.with_trait(Trait.LOGIC):
        if max(subject.values.origin(value) for value in node.inputs) >= Origin.INPUT:
            yield BoolArithmetic.at(
                node,
                f"TensorRT builds {node.op_type} of booleans in most places, and refuses it in some.",
                "Only where a build fails: a * b for a & b, min(a + b, 1) for a | b, 1 - a for ~a, over integers.",
            )


def _was_boolean(value: ir.Value | None) -> bool:
    cast = producer_of(value, "Cast")
    source = cast.inputs[0] if cast is not None else value
    return source is not None and source.dtype == ir.DataType.BOOL


def atan2s(subject: Subject) -> Iterator[LocatedFinding]:
    for node in subject.of_type("Atan"):
        quadrants = _quadrants(node)
        if any(_replaces_nan(where) for where in quadrants):
            yield Atan2.at(
                node,
                "atan2(y, x) was exported as atan(y / x) with quadrants chosen by sign, and 0 wherever that is NaN: "
                "right at x = y = 0, but 0 where an input is NaN, too.",
                "atan of the smaller of |y| and |x| over the larger, the quadrant chosen by signs: no division by 0.",
                "info",
            )
        elif quadrants:
            yield Atan2.at(
                node,
                "atan2(y, x) was exported as atan(y / x) with quadrants chosen by sign: at x = y = 0 it is 0 / 0, so "
                "NaN, where torch gives 0.",
                "atan of the smaller of |y| and |x| over the larger, the quadrant chosen by signs: it is 0 there.",
            )
    for node in subject.nodes:
        if node.op_type.lower() in ("atan2", "aten_atan2") and node.op_type not in subject.plugin_ops:
            remedy = "atan of the smaller of |y| and |x| over the larger, the quadrant chosen by signs."
            yield Atan2.at(node, "TensorRT has no atan2.", remedy, "error")


def _quadrants(atan: ir.Node) -> list[ir.Node]:
    """The Where nodes that choose the quadrant of an arc tangent of a quotient."""
    if not is_op(upstream(atan.inputs[0], {"Identity"}), "Div"):
        return []
    turned = [
        reader
        for reader in atan.outputs[0].consumers()
        if is_op(reader, "Add", "Sub") and any(_is_pi(value) for value in reader.inputs)
    ]
    inner = [where for reader in turned for where in reader.outputs[0].consumers() if is_op(where, "Where")]
    outer = [where for where in atan.outputs[0].consumers() if is_op(where, "Where")]
    guards = [where for each in outer for where in each.outputs[0].consumers() if _replaces_nan(where)]
    return list(dict.fromkeys([*inner, *outer, *guards])) if inner and outer else []


def _replaces_nan(where: ir.Node) -> bool:
    """Where(IsNaN(a), 0, a), as the dynamo exporter ends an arc tangent."""
    asked = producer_of(where.inputs[0], "IsNaN") if is_op(where, "Where") else None
    return asked is not None and asked.inputs[0] is where.inputs[2]


def _is_pi(value: ir.Value | None) -> bool:
    number = scalar(value)
    return number is not None and math.isclose(abs(number), math.pi, rel_tol=1e-3)


RULES: tuple[type[Rule], ...] = (WhereCondition, BoolArithmetic, Atan2)
CHECKS: tuple[Check, ...] = (wheres, booleans, atan2s)
