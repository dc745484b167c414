"""Errors of a candidate's tensors against those of the reference, by grafts (truehalf.verification.graft).

    local error   the candidate reads the reference's tensors everywhere: the error that a node makes by itself

With d = x - t over the elements of a tensor t of the reference:

    relative error = max(rms(d) / rms(t), max|d| / max|t|)      1 where t is 0 all over and d is not

Elements of t beyond 1e30, or not finite, are masks and do not count. Integers and booleans count as numbers. Where x is
not finite, the error is Inf; where it has another number of elements, 1. Of integers and booleans t is what the
reference decides of its own tensors as the candidate holds them: another side of a threshold, because its operand was
rounded, is a near tie and no error. Tensors are compared in chunks of _CHUNK bytes, which bounds the memory.

Effect of nodes: how far the reference's outputs move when only they are as the candidate has them. A local error by
itself would put a dead signal that rounds to nothing before a wrong weight: what nothing reads at that scale has no
effect. A network may hold hundreds of such signals, so many nodes are asked in parts, and the part with the largest
effect is parted again. Nodes that make NaN or Inf are asked for one by one: in a part, what is given behind such a node
would hide it.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from truehalf.ir.normalize import concrete_shapes, elements
from truehalf.verification.graft import Graft
from truehalf.verification.localize.both_files import BothFiles, Pair
from truehalf.verification.metrics.tensors import outputs_apart

WRONG = 0.05  # relative error that rounding does not explain
_MOST_KEPT = 200
_CHUNK = 1 << 28  # bytes of float32, of the reference
_MASK = 1e30
_ONE_BY_ONE = 12  # nodes whose effect is asked for alone
_PARTS = 8  # that more of them are asked in at first
Feeds = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class LocalError:
    """The error of a tensor that the candidate computes from the reference's tensors, the largest of all batches.

    Attributes:
        pair: names of the tensor in both files.
        batch: number of the batch.
        relative: see above.
        absmax: largest |t| of the reference, masks left out.
        nan, inf: numbers of elements that the candidate makes of finite ones.
        origin: the candidate's first tensor that is not finite on the way to this one; empty where it is finite.
        computed: what the candidate computes; None where the error is among the small ones.
    """

    pair: Pair
    batch: int
    relative: float
    absmax: float
    nan: int = 0
    inf: int = 0
    origin: str = ""
    computed: np.ndarray | None = None


def local_errors(files: BothFiles, batches: Sequence[Feeds], keep: int = _MOST_KEPT) -> list[LocalError]:
    """Local errors in the order of the reference.

    Args:
        keep: how many tensors to keep as the candidate computes them.

    Raises:
        StageError: when a model cannot be emulated or run.
    """
    largest: dict[Pair, LocalError] = {}
    for pairs, number, exact, given, made in _computed(files, batches):
        for pair in pairs:
            error = _error(pair, exact[pair.reference], made[pair.candidate], number)
            if pair not in largest or error.relative > largest[pair].relative:
                origin = _first_nonfinite(files, pair, given) if error.nan or error.inf else ""
                largest[pair] = replace(error, origin=origin, computed=files.narrow(pair, made[pair.candidate]))
        kept = set(heapq.nlargest(keep, largest, key=lambda pair: largest[pair].relative))
        largest |= {pair: replace(error, computed=None) for pair, error in largest.items() if pair not in kept}
    return [*largest.values()]


def _first_nonfinite(files: BothFiles, pair: Pair, given: Feeds) -> str:
    """Return the first tensor that is not finite of those that the candidate computes of the reference's."""
    inner = files.inner(pair)
    if len(inner) < 2:
        return pair.candidate
    cut = [operand.candidate for operand in files.operands(pair)]
    made = Graft(files.emulated, inner, cut, is_emulated=True).run(given)
    return next((name for name in inner if not np.isfinite(made[name]).all()), pair.candidate)


def _computed(files: BothFiles, batches: Sequence[Feeds]) -> Iterator[tuple[list[Pair], int, Feeds, Feeds, Feeds]]:
    """Yield by chunk of the pairs and by batch: the pairs, the number of the batch, the reference's tensors, feeds with
    these as the candidate holds them, and what the candidate computes of them.
    """
    for pairs in _chunks(files, batches[0]):
        known = dict.fromkeys([*pairs, *(operand for pair in pairs for operand in files.operands(pair))])
        reference = Graft(files.reference, [pair.reference for pair in known])
        decided = [pair.reference for pair in pairs if files.is_discrete(pair)]
        deciding = Graft(files.reference, decided, [pair.reference for pair in known]) if decided else None
        names = [pair.candidate for pair in pairs]
        candidate = Graft(files.emulated, names, [pair.candidate for pair in known], is_emulated=True)
        for number, feeds in enumerate(batches):
            exact = reference.run(feeds)
            arrays = {pair: files.as_held(pair, exact[pair.reference]) for pair in known}
            if deciding is not None:
                exact |= deciding.run({**feeds, **{pair.reference: array for pair, array in arrays.items()}})
            given = {**feeds, **{pair.candidate: array for pair, array in arrays.items()}}
            yield pairs, number, exact, given, candidate.run(given)


def _error(pair: Pair, exact: np.ndarray, made: np.ndarray, batch: int = 0) -> LocalError:
    """Compare what the candidate makes of a tensor with the reference's."""
    t = exact.ravel().astype(np.float64)
    counts = np.abs(t) < _MASK  # false of a NaN
    t = t if counts.all() else t[counts]
    absmax = float(np.abs(t).max(initial=0.0))
    if exact.size != made.size:
        return LocalError(pair, batch, 1.0, absmax, computed=made)
    x = made.ravel().astype(np.float64)
    x = x if counts.all() else x[counts]
    d = x - t
    if not np.isfinite(d).all():
        nan, inf = int(np.isnan(x).sum()), int(np.isinf(x).sum())
        return LocalError(pair, batch, math.inf, absmax, nan, inf, computed=made)
    largest, norm, size = (
        float(np.abs(d).max(initial=0.0)),
        math.sqrt(np.square(d).sum()),
        math.sqrt(np.square(t).sum()),
    )
    relative = 0.0 if not largest else max(norm / size, largest / absmax) if size and absmax else 1.0
    return LocalError(pair, batch, relative, absmax, computed=made)


def _chunks(files: BothFiles, feeds: Feeds) -> Iterator[list[Pair]]:
    """Yield the pairs in the order of the reference, as many at once as _CHUNK bytes hold."""
    shapes = concrete_shapes(files.reference, {name: array.shape for name, array in feeds.items()})
    sizes = {str(value.name): 4 * elements(shape) for value, shape in shapes.items()}
    chunk: list[Pair] = []
    size = 0
    for pair in files.pairs:
        size += sizes.get(pair.reference, 0)
        if chunk and size > _CHUNK:
            yield chunk
            chunk, size = [], sizes.get(pair.reference, 0)
        chunk.append(pair)
    if chunk:
        yield chunk


# --- effects ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Effect:
    """Relative RMS error of the worst output with some nodes as the candidate has them.

    Attributes:
        nodes: positions of the nodes.
        error: Inf where the outputs are not finite.
    """

    nodes: list[int]
    error: float


def effects_of(
    files: BothFiles,
    batches: Sequence[Feeds],
    queries: Collection[str],
    nodes: Sequence[Sequence[LocalError]],
    *,
    single: int,
    runs: int,
) -> list[Effect]:
    """Effects of nodes, and of parts in which no single node was asked for; together they have every node once.

    Args:
        queries: outputs whose rows may come in any order.
        nodes: the tensors that each node computes otherwise, in the order of the graph.
        single: how many single nodes, those with the largest effects, are asked for, beside those of NaN and Inf.
        runs: of the reference, at most.

    Raises:
        StageError: when a run fails.
    """
    names = [str(value.name) for value in files.reference.graph.outputs]
    exact: dict[int, dict[str, np.ndarray]] = {}
    waiting: list[tuple[float, int, list[int]]] = []
    found: list[Effect] = []
    asked = 0

    def outputs(batch: int, given: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        made = Graft(files.reference, names, given).run({**batches[batch], **given})
        made |= {name: given[name] for name in names if name in given}
        return {name: array.astype(np.float64) if array.dtype.kind in "iub" else array for name, array in made.items()}

    def ask(part: list[int]) -> None:
        nonlocal asked
        asked += 1
        errors, moved = [each for i in part for each in nodes[i]], 0.0
        for batch in dict.fromkeys(error.batch for error in errors):
            given = {e.pair.reference: e.computed for e in errors if e.batch == batch and e.computed is not None}
            if batch not in exact:
                exact[batch] = outputs(batch, {})
            moved = max(moved, outputs_apart(exact[batch], outputs(batch, given), queries))
        heapq.heappush(waiting, (-moved, part[0], part))

    broken = [i for i, errors in enumerate(nodes) if any(math.isinf(error.relative) for error in errors)][:_ONE_BY_ONE]
    others = [i for i in range(len(nodes)) if i not in broken]
    size = 1 if len(others) <= _ONE_BY_ONE else -(-len(others) // _PARTS)
    for part in [*([i] for i in broken), *(others[start : start + size] for start in range(0, len(others), size))]:
        ask(part)
    while waiting:
        error, _, part = heapq.heappop(waiting)
        if len(part) == 1 or single <= 0 or asked >= runs:
            found.append(Effect(part, -error))
            single -= len(part) == 1 and part[0] not in broken
        else:
            middle = len(part) // 2
            ask(part[:middle])
            ask(part[middle:])
    return found
