"""Extra cost of each node in FP32 over FP16, by the cost model of truehalf.conversion.partition, casts left
aside.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import onnx_ir as ir

from truehalf.conversion.partition import problem
from truehalf.conversion.ports import ports
from truehalf.conversion.rules.base import Decision, Verdict
from truehalf.ir.facts import all_nodes
from truehalf.ir.normalize import PREPARE, concrete_shapes

_FREE = Decision(Verdict.free, "none", "")


def fp32_costs(model: ir.Model, input_shapes: Mapping[str, Sequence[int]] | None = None) -> dict[str, int]:
    """Bytes by name of node.

    Args:
        model: normalized (names, types known); it is left as it is.
        input_shapes: by graph input, the shape at which costs are compared.
    """
    ready = model.clone()
    PREPARE(ready)
    found = ports(ready, list(all_nodes(ready)))
    free = dict.fromkeys(found.owners.values(), _FREE)
    costs = problem(found, free, concrete_shapes(ready, input_shapes)).fp32
    return {str(owner.name): bytes_ for owner, bytes_ in costs.items() if isinstance(owner, ir.Node)}
