"""Operators that TensorRT does not have.

    unique, sequence-ops, resolve-conj   those with a separate remedy
    unsupported-op                       the others, by truehalf.linting.support; operators of other domains without a
                                         plugin; what truehalf.linting.rules.restrictions lists; opsets that it does not
                                         read

Bitwise operators are the rule bool-arithmetic. An operator that is a function of the file is built from its nodes, and
so it is inlined before (truehalf.linting.inlining).
"""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from truehalf.ir.ops import Trait, has
from truehalf.linting.base import REFUSED, Check, LocatedFinding, Rule, Subject
from truehalf.linting.rules.restrictions import refusals
from truehalf.linting.support import OPSET_MIN, builds, named, opset_max, since


class Unique(Rule):
    """unique, which TensorRT does not have

    TensorRT has no `Unique`.

    ```python
    distinct = torch.unique(labels).shape[0]
    ordered = labels.sort().values  # instead
    distinct = (ordered[1:] > ordered[:-1]).sum() + 1
    ```

    The values themselves, and not their number: "unique" of docs/how-to/trt-friendly.md.
    """

    id, severity = "unique", "error"
    source = "TensorRT's operator matrix (Unique)"
    compiled = REFUSED


class SequenceOps(Rule):
    """lists of tensors and optional tensors

    `SequenceConstruct`, `SplitToSequence`, `ConcatFromSequence`, `Optional` and the like: TensorRT has neither lists of
    tensors nor optional tensors. They come from lists in scripted code, and from splits of sizes that the exporter does
    not know.

    ```python
    parts = [f(level) for level in levels]  # scripted, over a tensor's first axis
    stacked = f(levels)  # instead: one tensor, with an axis for the elements
    ```
    """

    id, severity = "sequence-ops", "error"
    source = "TensorRT's operator matrix (Sequence*, Optional*)"
    compiled = REFUSED


class ResolveConj(Rule):
    """resolve_conj or resolve_neg left in the graph

    `aten::resolve_conj` or `aten::resolve_neg` left over from the exporter. On real tensors they do nothing. torch's
    exporter translates them since 2.0; with an older one:

    ```python
    torch.onnx.register_custom_op_symbolic("aten::resolve_conj", lambda g, x: x, 9)
    ```
    """

    id, severity = "resolve-conj", "error"
    source = "NVIDIA's guidance on exporting for TensorRT"
    compiled = REFUSED


class UnsupportedOp(Rule):
    """an operator, or a use of one, that TensorRT does not have

    An operator that TensorRT does not have, with the versions that lack it. A use of one that it refuses: `TopK` beyond
    3840, `Squeeze` without axes where a size varies (before 11.5), pooling with dilations, `ScatterND` with a
    reduction, a second output of `MaxPool` or `LayerNormalization`, axes that are no constant. An operator of another
    domain without a plugin. An opset below 9. Warning for an opset beyond the last that the version is documented to
    read.

    Write it with other operators, build with a version that has it, or bring a plugin: `engine.plugins`, here
    `--plugin-ops`.
    """

    id, severity = "unsupported-op", "error"
    source = "TensorRT's operator matrix and change log (truehalf/linting/support.py)"
    compiled = REFUSED


_CONJUGATES = frozenset({"resolve_conj", "resolve_neg"})
# Operators outside the default domain that ship with TensorRT: its plugin library, its parser.
_TENSORRT_SUFFIX, _TENSORRT_PREFIX = "_TRT", "TRT_"


def uniques(subject: Subject) -> Iterator[LocatedFinding]:
    for node in subject.of_type("Unique"):
        if "Unique" not in subject.plugin_ops:
            yield Unique.at(
                node,
                "TensorRT has no Unique.",
                "Sort, and keep what differs from its neighbour.",
            )


def sequences(subject: Subject) -> Iterator[LocatedFinding]:
    for node in subject.with_trait(Trait.SEQUENCE):
        if node.op_type not in subject.plugin_ops:
            yield SequenceOps.at(
                node,
                f"{node.op_type}: TensorRT has neither lists of tensors nor optional ones.",
                "Keep one tensor with an axis for the elements (torch.stack, split of fixed sizes), and no list in "
                "scripted code; pass a tensor that stands for None.",
            )


def conjugates(subject: Subject) -> Iterator[LocatedFinding]:
    for node in subject.nodes:
        if _aten_operator(node) in _CONJUGATES:
            yield ResolveConj.at(
                node,
                "The exporter had no translation for it; on real tensors it does nothing.",
                "Export with torch 2.0 or later, which drops it; or register a symbolic that returns its input.",
            )


def _aten_operator(node: ir.Node) -> str:
    """resolve_conj of aten::resolve_conj and of ATen(operator="resolve_conj")."""
    operator = node.attributes.get_string("operator", "") if node.op_type == "ATen" else node.op_type
    return (operator or "").split("::")[-1].removeprefix("aten_").removesuffix(".default")


def unsupported(subject: Subject) -> Iterator[LocatedFinding]:
    yield from _opsets(subject)
    functions = {(domain, name) for domain, name, *_ in subject.model.functions}
    for node in subject.nodes:
        if node.op_type in subject.plugin_ops or f"{node.domain}::{node.op_type}" in subject.plugin_ops:
            continue
        if (node.domain, node.op_type) in functions or _aten_operator(node) in _CONJUGATES:
            continue
        if node.op_type.endswith(_TENSORRT_SUFFIX) or node.op_type.startswith(_TENSORRT_PREFIX):
            continue
        if node.domain != "":
            yield UnsupportedOp.at(
                node,
                f"{node.domain}::{node.op_type} is no operator of ONNX: TensorRT builds it only with a plugin of that "
                "name.",
                "Name the plugin's library in engine.plugins (here: --plugin-ops), or export without it.",
            )
        elif not has(node, Trait.SEQUENCE | Trait.BITWISE) and node.op_type not in ("Unique", "Atan2"):
            missing = [version for version in subject.versions if not builds(node.op_type, version)]
            if missing:
                yield _missing(node, missing)
            else:
                yield from (UnsupportedOp.at(node, *refusal) for refusal in refusals(node, subject))


def not_inlined(reason: str) -> LocatedFinding:
    """The finding where the functions of a file could not be inlined."""
    return UnsupportedOp.of(
        "",
        f"The functions of the file were not looked into, because they cannot be inlined: {reason}",
        "Inline them with the tool that exported the file, and look at the result.",
        "warning",
    )


def _missing(node: ir.Node, versions: list[tuple[int, int]]) -> LocatedFinding:
    came = since(node.op_type)
    names = " and ".join(named(version) for version in versions)
    later = f"; {named(came)} has it" if came is not None else ""
    return UnsupportedOp.at(
        node,
        f"{names} {'has' if len(versions) == 1 else 'have'} no {node.op_type}{later}.",
        "Write it with other operators, build with a version that has it, or bring a plugin (engine.plugins).",
    )


def _opsets(subject: Subject) -> Iterator[LocatedFinding]:
    opset = subject.opset
    if 0 < opset < OPSET_MIN:
        yield UnsupportedOp.of(
            "", f"Opset {opset}: TensorRT reads opset {OPSET_MIN} and later.", "Export with opset 17 or later."
        )
    beyond = [version for version in subject.versions if opset > opset_max(version)]
    if beyond:
        yield UnsupportedOp.of(
            "",
            f"Opset {opset}: {named(beyond[0])} is documented up to {opset_max(beyond[0])}; operators that changed "
            "since may be refused or misinterpreted.",
            f"Export with opset {opset_max(beyond[0])} or earlier.",
            "warning",
        )


RULES: tuple[type[Rule], ...] = (Unique, SequenceOps, ResolveConj, UnsupportedOp)
CHECKS: tuple[Check, ...] = (uniques, sequences, conjugates, unsupported)
