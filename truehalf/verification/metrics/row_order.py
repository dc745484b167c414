"""Do two outputs hold the same rows in another order? A detector's queries may, and nothing is wrong then.

Outputs [N, rows] and [N, rows, values] of the same N and rows take part together, because a row is what stands at its
place in all of them: a box that no longer stands beside its class is no change of order. The rows are the same where,
in each sample, they can be paired one to one so that every value is within the tensor rule.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from truehalf.verification.metrics.output_errors import OutputErrors
from truehalf.verification.metrics.tensors import absolute_error
from truehalf.verification.runs import Run

MOST_ROWS = 2000  # of which all pairs are held in memory
_Pair = tuple[np.ndarray, np.ndarray, float]  # reference, candidate and limit


def in_another_order(outputs: Mapping[str, OutputErrors], runs: Sequence[Run]) -> list[str]:
    """The outputs that failed and hold the reference's rows, in another order.

    Args:
        outputs: all of them, measured by the tensor rule.
        runs: at least one.
    """
    groups: dict[tuple[tuple[int, int], ...], list[str]] = {}
    for name, errors in outputs.items():
        shapes = [run.reference[name].shape for run in runs]
        if errors.limit is not None and all(len(shape) in (2, 3) for shape in shapes):
            groups.setdefault(tuple((shape[0], shape[1]) for shape in shapes), []).append(name)
    found = []
    for counts, names in groups.items():
        failed = [name for name in names if outputs[name].passed is False]
        has_values = any(runs[0].reference[name].ndim == 3 for name in failed)
        if has_values and max(rows for _, rows in counts) <= MOST_ROWS and _same_rows(names, outputs, runs):
            found += failed
    return found


def _same_rows(names: Sequence[str], outputs: Mapping[str, OutputErrors], runs: Sequence[Run]) -> bool:
    for run in runs:
        pairs = [(run.reference[name], run.candidate[name], outputs[name].limit or 0.0) for name in names]
        samples = len(pairs[0][0])
        if not all(_same_rows_of_one([(a[i], b[i], limit) for a, b, limit in pairs]) for i in range(samples)):
            return False
    return True


def _same_rows_of_one(pairs: Sequence[_Pair]) -> bool:
    """Of one sample: [rows] or [rows, values]. Single values in order of size tell most others apart, and cheaply."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import maximum_bipartite_matching

    if not len(pairs[0][0]):
        return True
    columns = [
        (a.reshape(len(a), -1).astype(np.float64), b.reshape(len(b), -1).astype(np.float64), limit)
        for a, b, limit in pairs
    ]
    if not all((absolute_error(np.sort(a, axis=0), np.sort(b, axis=0)) <= limit).all() for a, b, limit in columns):
        return False
    rows = len(columns[0][0])
    first, second = (np.repeat(np.arange(rows), rows), np.tile(np.arange(rows), rows))
    for a, b, limit in columns:
        for column in range(a.shape[1]):  # the first ones leave few pairs to the others
            near = absolute_error(a[first, column], b[second, column]) <= limit
            first, second = first[near], second[near]
    same = csr_array((np.ones(len(first), bool), (first, second)), shape=(rows, rows))
    return bool((maximum_bipartite_matching(same, perm_type="column") >= 0).all())
