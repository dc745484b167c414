"""Errors of a candidate's tensors against those of the reference, by grafts (truehalf.verification.graft).

    local error   the candidate reads the reference's tensors everywhere: the error that a node makes by itself
    run error     the candidate's own run: what a node makes and what it inherits

With d = x - t over the elements of a tensor t of the reference:

    relative error = max(rms(d) / rms(t), max|d| / max|t|)      1 where t is 0 all over and d is not

Elements of t beyond 1e30, or not finite, are masks and do not count. Integers and booleans count as numbers. Where x is
not finite, the error is Inf; where it has another number of elements, 1. Tensors are compared in chunks of _CHUNK
bytes, which bounds the memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from truehalf.ir.facts import is_op
from truehalf.ir.normalize import concrete_shapes, elements
from truehalf.verification.graft import Graft
from truehalf.verification.localize.both_files import BothFiles, Pair

WRONG = 0.05  # relative error that rounding does not explain
_LARGEST_ERRORS = 12  # tensors, at least, that are kept as the candidate computes them
_MOST_KEPT = 200
_CHUNK = 1 << 28  # bytes of float32, of the reference
_MASK = 1e30
Feeds = Mapping[str, np.ndarray]


@dataclass(frozen=True)
class LocalError:
    """The error of a tensor that the candidate computes from the reference's tensors, the largest of all batches.

    Attributes:
        pair: names of the tensor in both files.
        relative: see above.
        absmax: largest |t| of the reference, masks left out.
        nan, inf: numbers of elements that the candidate makes of finite ones.
        origin: the candidate's tensor that is not finite first on the way to this one; its own name where it is finite.
        is_choice: the tensor holds integers or booleans, and the reference makes the same error where what it reads is
            rounded to float16: a near tie.
        same_shape: the candidate computes a tensor of the reference's shape.
        batch: number of the batch.
        computed: what the candidate computes; None where the error is among the small ones.
    """

    pair: Pair
    relative: float
    absmax: float
    nan: int
    inf: int
    origin: str
    is_choice: bool
    same_shape: bool
    batch: int
    computed: np.ndarray | None


def local_errors(files: BothFiles, batches: Sequence[Feeds]) -> list[LocalError]:
    """Local errors in the order of the reference.

    Raises:
        StageError: when a model cannot be emulated or run.
    """
    found: list[LocalError] = []
    for chunk in _chunks(files, batches[0]):
        read = {name for pair in chunk for name in files.read_by(pair)}
        beside = [files.pair_of(name) for name in read if name not in {pair.candidate for pair in chunk}]
        known = [*chunk, *beside]
        reference = Graft(files.reference, [pair.reference for pair in known])
        own = [pair.candidate for pair in chunk]
        cut = [pair.candidate for pair in known]
        candidate = Graft(files.candidate, own, cut, pessimistic=files.pessimistic)
        largest: dict[Pair, LocalError] = {}
        for number, feeds in enumerate(batches):
            exact = reference.run(feeds)
            given = {pair.candidate: exact[pair.reference] for pair in known}
            made = candidate.run(feeds, given)
            for pair in chunk:
                error = _local_error(pair, exact[pair.reference], made[pair.candidate], number)
                if pair not in largest or error.relative > largest[pair].relative:
                    origin = _first_nonfinite(files, pair, feeds, given) if error.nan or error.inf else pair.candidate
                    largest[pair] = replace(error, origin=origin)
        choices = _near_ties(files, batches, known, [error for error in largest.values() if error.relative >= WRONG])
        found += [replace(error, is_choice=error.pair in choices) for error in largest.values()]
        found = _without_small_ones(found)
    return found


def run_errors(files: BothFiles, feeds: Feeds) -> dict[str, float]:
    """Relative error by reference tensor in the candidate's run; behind a TopK of the queries that the reference
    chooses.

    Raises:
        StageError: when a model cannot be emulated or run.
    """
    chosen = [pair for pair in files.pairs if is_op(files.values[pair.candidate].producer(), "TopK")]
    chosen = [pair for pair in chosen if files.values[pair.candidate].dtype == ir.DataType.INT64]
    found: dict[str, float] = {}
    for chunk in _chunks(files, feeds):
        exact = Graft(files.reference, [pair.reference for pair in [*chunk, *chosen]]).run(feeds)
        given = {pair.candidate: exact[pair.reference] for pair in chosen}
        shown = [pair.candidate for pair in chunk]
        made = Graft(files.candidate, shown, given, pessimistic=files.pessimistic).run(feeds, given)
        found |= {pair.reference: relative_error(exact[pair.reference], made[pair.candidate]) for pair in chunk}
    return found


def relative_error(exact: np.ndarray, made: np.ndarray) -> float:
    """Relative error of a tensor, see above."""
    if exact.size != made.size:
        return 1.0
    t, x = (each.ravel().astype(np.float64) for each in (exact, made))
    counts = np.abs(t) < _MASK  # false of a NaN
    if not counts.all():
        t, x = t[counts], x[counts]
    if not np.isfinite(x).all():
        return float("inf")
    d = x - t
    if not d.any():
        return 0.0
    norms = np.linalg.norm(d), np.linalg.norm(t)
    extremes = np.abs(d).max(), np.abs(t).max()
    return float(max(1.0 if of == 0 else part / of for part, of in (norms, extremes)))


def _local_error(pair: Pair, exact: np.ndarray, made: np.ndarray, number: int) -> LocalError:
    error = relative_error(exact, made)
    counts = np.abs(exact) < _MASK if exact.dtype.kind == "f" else np.ones(exact.shape, bool)
    absmax = float(np.abs(exact[counts].astype(np.float64)).max(initial=0.0))
    nan = inf = 0
    if made.dtype.kind == "f" and not np.isfinite(error):
        nan, inf = (int(is_bad(made[counts]).sum()) for is_bad in (np.isnan, np.isinf))
    return LocalError(pair, error, absmax, nan, inf, pair.candidate, False, exact.shape == made.shape, number, made)


def _first_nonfinite(files: BothFiles, pair: Pair, feeds: Feeds, given: Feeds) -> str:
    """The first tensor that is not finite among those that the candidate computes of what it is given."""
    inner = files.inner(pair)
    if len(inner) < 2:
        return pair.candidate
    made = Graft(files.candidate, inner, given, pessimistic=files.pessimistic).run(feeds, given)
    return next((name for name in inner if not np.isfinite(made[name]).all()), pair.candidate)


def _near_ties(
    files: BothFiles, batches: Sequence[Feeds], known: Sequence[Pair], errors: Sequence[LocalError]
) -> set[Pair]:
    """Pairs of integers and booleans whose error the reference makes, too, of operands that float16 holds."""
    discrete = [error for error in errors if error.computed is not None and error.computed.dtype.kind in "ib"]
    if not discrete:
        return set()
    names = [pair.reference for pair in known]
    exact = Graft(files.reference, names)
    rounded = Graft(files.reference, [error.pair.reference for error in discrete], names)
    found = set()
    for error in discrete:
        feeds = batches[error.batch]
        given = {name: _through_float16(array) for name, array in exact.run(feeds).items()}
        made = rounded.run(feeds, given)[error.pair.reference]
        if error.computed is not None and np.array_equal(made, error.computed):
            found.add(error.pair)
    return found


def _through_float16(array: np.ndarray) -> np.ndarray:
    if array.dtype != np.float32:
        return array
    with np.errstate(over="ignore"):
        return array.astype(np.float16).astype(np.float32)


def _without_small_ones(errors: list[LocalError]) -> list[LocalError]:
    """The same errors, without the tensors of those that are neither wrong nor among the largest."""
    order = sorted(errors, key=lambda error: -error.relative)
    kept = {id(error) for i, error in enumerate(order[:_MOST_KEPT]) if i < _LARGEST_ERRORS or error.relative >= WRONG}
    return [error if id(error) in kept else replace(error, computed=None) for error in errors]


def _chunks(files: BothFiles, feeds: Feeds) -> Iterator[list[Pair]]:
    """The pairs in the order of the reference, as many at once as _CHUNK bytes hold."""
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
