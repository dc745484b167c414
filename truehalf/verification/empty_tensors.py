"""Tensors inside a model of which samples show nothing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from truehalf.codes import coded
from truehalf.patterns.origins import Values
from truehalf.runtime.ort import Session

_EMPTY = "empty on all samples that ran, which show nothing of what follows it; give samples that fill it"


def empty_tensors(model: ir.Model, feeds: Sequence[Mapping[str, np.ndarray]]) -> list[str]:
    """List a sentence for each node whose outputs are empty on every feed, the first of each chain: nothing behind them
    was seen.

    Args:
        model: with its types; only tensors whose size depends on data are looked at.
    """
    values = Values(model.graph)
    sized = [value for node in model.graph for value in node.outputs if value.name and values.sized_by_data(value)]
    if not sized or not feeds:
        return []
    looking = model.clone()
    named = ir.convenience.create_value_mapping(looking.graph)
    known = {value.name for value in looking.graph.outputs}
    looking.graph.outputs.extend(named[str(value.name)] for value in sized if value.name not in known)
    session, names = Session(looking), [str(value.name) for value in sized]
    runs = [session.run(feed, names) for feed in feeds]
    empty = {name for name in names if all(np.asarray(run[name]).size == 0 for run in runs)}
    producers = [value.producer() for value in sized if value.name in empty]
    return [
        coded("nothing-compared", f"{node.name}: {_EMPTY}")
        for node in producers
        if node is not None and not any(value is not None and value.name in empty for value in node.inputs)
    ]
