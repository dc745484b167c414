"""Tensors from which a second run can go on, so that it need not begin at the inputs.

A boundary between two nodes is crossed by the tensors that are written before it and read after it. The graph is parted
into pieces of like activation size; around each place the boundary that the fewest bytes cross is taken.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence

import onnx_ir as ir

from truehalf.ir.facts import values_read

_PIECES = (24, 8)  # the more, the less runs again, and the more is kept
_NODES_MIN = 64  # a smaller graph runs as fast from its inputs
_BYTES_MAX = 16_000_000  # that cross one boundary
_UNKNOWN = 1 << 60  # more than any size; an integer, so that sums stay exact


def checkpoints(model: ir.Model, bytes_max: float) -> list[str]:
    """Names of inner tensors, in graph order; empty where sizes or types are not known or it would not pay.

    A leading axis without a number counts as 1.

    Args:
        bytes_max: what all of them may hold, as long as fewer can do with less.
    """
    nodes = list(model.graph)
    if len(nodes) < _NODES_MIN:
        return []
    sizes = {value: _bytes(value) for node in nodes for value in node.outputs}
    written = {value: index for index, node in enumerate(nodes) if node.op_type != "Constant" for value in node.outputs}
    last_read = {value: index for index, node in enumerate(nodes) for value in values_read(node) if value in written}
    change = [0] * (len(nodes) + 1)  # of the crossing bytes; boundary i stands before node i
    for value, last in last_read.items():
        change[written[value] + 1] += sizes[value]
        change[last + 1] -= sizes[value]
    crossing = list(itertools.accumulate(change))
    work = list(itertools.accumulate(sum(sizes[v] for v in node.outputs if sizes[v] < _UNKNOWN) + 1 for node in nodes))
    chosen: set[ir.Value] = set()
    for pieces in _PIECES:
        boundaries = (_boundary(crossing, work, piece / pieces, 0.5 / pieces) for piece in range(1, pieces))
        chosen = {
            value
            for place in boundaries
            if place and crossing[place] <= _BYTES_MAX
            for value, last in last_read.items()
            if written[value] < place <= last
        }
        if sum(map(sizes.__getitem__, chosen)) <= bytes_max:
            break
    return [str(value.name) for value in written if value in chosen]


def _boundary(crossing: Sequence[int], work: Sequence[int], share: float, half: float) -> int:
    """Of the boundaries within `half` around a share of the work, the one that the fewest bytes cross; 0: none."""
    low, high = (max(0.0, share - half) * work[-1], (share + half) * work[-1])
    window = [index for index in range(1, len(work)) if low <= work[index - 1] < high]
    return min(window, key=crossing.__getitem__, default=0)


def _bytes(value: ir.Value) -> int:
    if not isinstance(value.type, ir.TensorType) or value.type.dtype == ir.DataType.STRING or value.shape is None:
        return _UNKNOWN
    dims = list(value.shape)
    if any(not isinstance(dim, int) for dim in dims[1:]):
        return _UNKNOWN
    elements = math.prod(dim if isinstance(dim, int) else 1 for dim in dims)
    return math.ceil(elements * value.type.dtype.itemsize)
