"""Branches of If: the one that all samples take is measured as if it stood in the graph."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import numpy as np
import onnx_ir as ir

from truehalf.calibration.instrument import Instrumented
from truehalf.ir.facts import is_op
from truehalf.ir.inlining import inline_branch


def with_branches(model: ir.Model, samples: Iterable[Mapping[str, np.ndarray]]) -> ir.Model:
    """The model with, in place of each If, the branch that all samples take; an If whose samples differ stays."""
    model, left = model.clone() if any(is_op(node, "If") for node in model.graph) else model, set[str | None]()
    while ifs := [node for node in model.graph if is_op(node, "If") and node.name not in left]:
        conditions = [str(node.inputs[0].name) for node in ifs if node.inputs[0] is not None]
        session = Instrumented(model).open(conditions)
        runs = [session.run(feeds)[0] for feeds in samples]
        for node, condition in zip(ifs, conditions, strict=True):
            taken = {bool(run[condition].item()) for run in runs}
            if len(taken) > 1 or not inline_branch(node, taken.pop()):
                left.add(node.name)
    return model
