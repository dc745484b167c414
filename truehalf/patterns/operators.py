"""Operators that TensorRT does not have, and uses of an operator that it refuses (support, restrictions)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import onnx_ir as ir

from truehalf.ir.facts import all_nodes
from truehalf.ir.ops import Trait, has
from truehalf.patterns.frame import Match, Pattern, Subject
from truehalf.patterns.restrictions import refusals
from truehalf.patterns.support import OPSET_MIN, builds, named, opset_max, since

_RESIZES = ("Resize", "Upsample")
ASSUMED = (
    "which operators engine.plugins bring along is not known, so lint takes every operator of a domain that ONNX "
    "does not have for theirs; engine.plugin_ops names them"
)
_ONNX_DOMAINS = ("", "ai.onnx", "ai.onnx.ml")
_SHIPPED_SUFFIX, _SHIPPED_PREFIX = "_TRT", "TRT_"  # of operators in TensorRT's own plugin library and parser


class UnsupportedOp(Pattern):
    """an operator, or a use of one, that TensorRT does not have

    An operator that TensorRT does not have, with the versions that lack it. A use of one that it refuses: `TopK` beyond
    3840, `Squeeze` without axes where a size varies (before 11.5), pooling with dilations, `ScatterND` with a
    reduction, a second output of `MaxPool` or `LayerNormalization`, axes that are no constant, `Attention` in FP32, a
    `Loop` that stacks results without a trip limit, a size that is cast from an input of floats. An operator of another
    domain without a plugin. An opset below 9. Warning for an opset beyond the last that the version is documented to
    read.

    Instead: Write it with other operators, build with a version that has it, or bring a plugin (engine.plugins).

    Write it with other operators, build with a version that has it, or bring a plugin: `engine.plugins`, here
    `--plugin-ops`. Source: TensorRT's operator matrix and change log (truehalf/patterns/support.py).
    """

    id, severity = "unsupported-op", "error"

    def find(self, subject: Subject) -> Iterator[Match]:
        yield from _opsets(subject)
        for node in subject.nodes:
            if _of_plugin(node, subject):
                continue
            if node.domain != "":
                yield Match(
                    node,
                    f"{node.domain}::{node.op_type} is no operator of ONNX: TensorRT builds it only with a plugin of "
                    "that name.",
                    "Name the plugin's library in engine.plugins (here: --plugin-ops), or export without it.",
                )
            elif not has(node, Trait.SEQUENCE | Trait.BITWISE) and node.op_type not in ("Unique", *_RESIZES):
                missing = [version for version in subject.versions if not builds(node.op_type, version)]
                if missing:
                    came, names = since(node.op_type), " and ".join(named(version) for version in missing)
                    later = f"; {named(came)} has it" if came is not None else ""
                    yield Match(node, f"{names} {'has' if len(missing) == 1 else 'have'} no {node.op_type}{later}.")
                else:
                    yield from (Match(node, *refusal) for refusal in refusals(node, subject))


def _of_plugin(node: ir.Node, subject: Subject) -> bool:
    if {node.op_type, f"{node.domain}::{node.op_type}"} & set(subject.plugin_ops):
        return True
    return node.op_type.endswith(_SHIPPED_SUFFIX) or node.op_type.startswith(_SHIPPED_PREFIX)


def _opsets(subject: Subject) -> Iterator[Match]:
    opset = subject.model.graph.opset_imports.get("", 0)
    if 0 < opset < OPSET_MIN:
        yield Match(
            None, f"Opset {opset}: TensorRT reads opset {OPSET_MIN} and later.", "Export with opset 17 or later."
        )
    beyond = [version for version in subject.versions if opset > opset_max(version)]
    if beyond:
        yield Match(
            None,
            f"Opset {opset}: {named(beyond[0])} is documented up to {opset_max(beyond[0])}; operators that changed "
            "since may be refused or misinterpreted.",
            f"Export with opset {opset_max(beyond[0])} or earlier.",
            "warning",
        )


class Unique(Pattern):
    """unique, which TensorRT does not have

    TensorRT has no Unique.

    Instead: Sort, and keep what differs from its neighbour.

    ```python
    distinct = torch.unique(labels).shape[0]
    ordered = labels.sort().values  # instead
    distinct = (ordered[1:] > ordered[:-1]).sum() + 1
    ```

    The values themselves, and not their number: "unique" of docs/how-to/trt-friendly.md. Source: TensorRT's operator
    matrix (Unique).
    """

    id, severity, op_types = "unique", "error", ("Unique",)

    def holds(self, node: ir.Node, subject: Subject) -> bool:
        return not _of_plugin(node, subject)


class SequenceOps(Pattern):
    """lists of tensors and optional tensors

    `SequenceConstruct`, `SplitToSequence`, `ConcatFromSequence`, `Optional` and the like: TensorRT has neither lists of
    tensors nor optional tensors.

    Instead: Keep one tensor with an axis for the elements (torch.stack, split of fixed sizes), and no list in scripted
    code; pass a tensor that stands for None.

    They come from lists in scripted code, and from splits of sizes that the exporter does not know.

    ```python
    parts = [f(level) for level in levels]  # scripted, over a tensor's first axis
    stacked = f(levels)  # instead: one tensor, with an axis for the elements
    ```

    Source: TensorRT's operator matrix (Sequence*, Optional*).
    """

    id, severity = "sequence-ops", "error"

    def find(self, subject: Subject) -> Iterator[Match]:
        return (Match(node) for node in subject.with_trait(Trait.SEQUENCE) if not _of_plugin(node, subject))


def ops_of_plugins(model: ir.Model, plugins: Sequence[str], named_ops: Sequence[str]) -> tuple[list[str], bool]:
    """List the operators of a graph that plugins supply, sorted, and return True if they are assumed.

    Where plugins are given and none is named, every operator of a domain that ONNX does not have is taken for theirs.

    Args:
        plugins: engine.plugins.
        named_ops: engine.plugin_ops.
    """
    if not plugins or named_ops:
        return sorted(named_ops), False
    theirs = {f"{node.domain}::{node.op_type}" for node in all_nodes(model) if node.domain not in _ONNX_DOMAINS}
    return sorted(theirs), True


class ResizeMode(Pattern):
    """a way of resizing that TensorRT refuses

    What TensorRT's `Resize` refuses: `tf_crop_and_resize` and other coordinate transformations than half_pixel,
    pytorch_half_pixel, asymmetric, align_corners and tf_half_pixel_for_nn (this one with round_prefer_floor only);
    antialiasing; an aspect ratio policy; sizes that are computed on the device.

    ```python
    y = interpolate(x, size, mode="bilinear", antialias=True)  # instead: antialias=False, or before the engine
    ```

    Source: TensorRT's operator matrix (Resize) and the static checks of its ONNX parser.
    """

    id, severity = "resize-mode", "error"

    def find(self, subject: Subject) -> Iterator[Match]:
        for node in subject.of_type(*_RESIZES):
            yield from (Match(node, *refusal) for refusal in refusals(node, subject))


PATTERNS = (Unique(), SequenceOps(), ResizeMode(), UnsupportedOp())
