"""Every node has a name, and no two nodes or values of a model share one.

    node without a name        ->  <scope>/<OpType>        of its outputs, or of the nodes around it
    second node of one name    ->  <name>_1, <name>_2, ...
    value of a name in use     ->  <name>_1, ...           sibling subgraphs may share names, which runtimes mix up

Inputs and outputs of the graph keep their names; so does the first of several.
"""

from __future__ import annotations

import onnx_ir as ir

from truehalf.ir.facts import all_nodes
from truehalf.ir.normalize import Names, apart, rename
from truehalf.ir.passes import Done, Pass


class DeduplicateNames(Pass):
    """Names the nodes and values of a model. onnx_ir's NameFixPass knows no scopes, and lets subgraphs share."""

    def edit(self, model: ir.Model, done: Done) -> None:
        names, seen = Names(model), set[str]()
        for node in all_nodes(model):
            if not node.name or node.name in seen:
                scope = _scope(node)
                node.name = names.fresh(node.name or (f"{scope}/{node.op_type}" if scope else node.op_type))
                done.counts["nodes"] += 1
            seen.add(node.name)
        repeated = apart(model)
        rename(model, repeated)
        done.counts["values"] += len(repeated)


def _scope(node: ir.Node) -> str:
    """Of the outputs' names, or of the nodes around; "" where they have none."""
    sources = [value.producer() for value in node.inputs if value is not None]
    readers = [reader for output in node.outputs for reader in output.consumers()]
    near = [output.name for output in node.outputs] + [each.name for each in (*sources, *readers) if each is not None]
    return next((scope for name in near if (scope := (name or "").rpartition("/")[0])), "")
