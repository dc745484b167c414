"""A file that a parser or builder refuses: the nodes that it names, and whether TensorRT refuses them, too."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

import onnx_ir as ir

from truehalf.ir.facts import label_of
from truehalf.ir.selectors import scope_of
from truehalf.linting import Finding
from truehalf.runtime.tensorrt import BuildRefusal

_OPERATION = re.compile(r"\b([A-Z]\w+) operation was not supported")  # by which Myelin names an operator
_RTX_LACKS = frozenset({"NonZero", "Unique"})  # operators that TensorRT has, and TensorRT for RTX 1.7 has not


def is_shared(error: BuildRefusal, nodes: Mapping[str, ir.Node], plugin_ops: Collection[str]) -> bool:
    """True if TensorRT refuses a file as TensorRT for RTX does: for another operator than those that RTX alone lacks,
    or that a plugin brings; an error of the builder has to name a node.

    Args:
        nodes: of the file, by the names that the builder was told.
        plugin_ops: operators of plugins, as domain::Op or Op.
    """
    brought = _RTX_LACKS | {op.rpartition("::")[2] for op in plugin_ops}
    if error.errors:
        return any(refused["op_type"] not in brought for refused in error.errors)
    return bool(error.log) and bool(_nodes_in(error, nodes))


def explained(error: BuildRefusal, nodes: Mapping[str, ir.Node], findings: Sequence[Finding]) -> str:
    """The text of a refusal, with the module of each node that it names, and the lint findings on that node."""
    lines = [error.text]
    for name in _nodes_in(error, nodes):
        scope = scope_of(nodes[name])
        place = f"of the module {scope}" if scope else "of no module that its name shows"
        lines.append(f"  {label_of(nodes[name])}: {place}")
        lines += [
            f"    {finding.rule}: {finding.message} {finding.remedy} ({finding.link})"
            for finding in findings
            if finding.node == nodes[name].name
        ]
    return "\n".join(lines)


def _nodes_in(error: BuildRefusal, nodes: Mapping[str, ir.Node]) -> list[str]:
    """Names of the nodes that a refusal names, by themselves or by their operator."""
    text = "\n".join(error.log)
    named = [refused["node"] for refused in error.errors]
    named += [name for name in nodes if re.search(rf"(?<![\w/.]){re.escape(name)}(?![\w/])", text)]
    operators = {match[1] for match in _OPERATION.finditer(text)}
    named += [name for name, node in nodes.items() if node.op_type in operators]
    return [name for name in dict.fromkeys(named) if name in nodes]
