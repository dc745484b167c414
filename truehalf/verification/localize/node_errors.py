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

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from truehalf.ir.facts import is_op
from truehalf.ir.normalize import concrete_shapes, elements
from truehalf.verification.graft import Graft
from truehalf.verification.localize.both_files import BothFiles, Pair

WRONG = 0.05  # relative error that rounding does not explain
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
        batch: number of the batch.
        same_shape: the candidate computes a tensor of the reference's shape.
        computed: what the candidate computes; None where the error is among the small ones.
    """

    pair: Pair
    relative: float
    absmax: float
    nan: int
    inf: int
    origin: str
    is_choice: bool
    batch: int
    same_shape: bool
    computed: np.ndarray | None


def local_errors(files: BothFiles, batches: Sequence[Feeds], keep: int = _MOST_KEPT) -> list[LocalError]:
    """Local errors in the order of the reference.

    Args:
        keep: how many tensors to keep as the candidate computes them.

    Raises:
        StageError: when a model cannot be emulated or run.
    """
    found: list[LocalError] = []
    for chunk in _chunks(files, batches[0]):
        known = _known(files, chunk)
        names = [pair.reference for pair in known]
        reference = Graft(files.reference, names)
        candidate = _candidate(files, [pair.candidate for pair in chunk], known)
        largest: dict[Pair, LocalError] = {}
        for number, feeds in enumerate(batches):
            exact = reference.run(feeds)
            given = _given(files, known, exact)
            made = candidate.run(feeds, given)
            for pair in chunk:
                error = _local_error(pair, exact[pair.reference], made[pair.candidate], number)
                if pair not in largest or error.relative > largest[pair].relative:
                    origin = _first_nonfinite(files, pair, feeds, given) if error.nan or error.inf else pair.candidate
                    largest[pair] = replace(error, origin=origin)
        choices = [error for error in largest.values() if error.relative >= WRONG and _is_discrete(error)]
        if choices:
            rounded = Graft(files.reference, [error.pair.reference for error in choices], names)
            exacts = {batch: reference.run(batches[batch]) for batch in {error.batch for error in choices}}
            for error in choices:
                operands = {name: _through_float16(array) for name, array in exacts[error.batch].items()}
                again = rounded.run(batches[error.batch], operands)[error.pair.reference]
                is_tie = error.computed is not None and np.array_equal(again, error.computed)
                largest[error.pair] = replace(error, is_choice=is_tie)
        found = _without_small_ones([*found, *largest.values()], keep)
    return found


def errors_in_run(files: BothFiles, feeds: Feeds) -> Iterator[tuple[Pair, float, float]]:
    """Yield each pair with its local error and its error in the candidate's run, in the order of the reference; in the
    run, behind a TopK, of the queries that the reference chooses.

    Raises:
        StageError: when a model cannot be emulated or run.
    """
    top = [pair for pair in files.pairs if is_op(files.values[pair.candidate].producer(), "TopK")]
    top = [pair for pair in top if files.values[pair.candidate].dtype == ir.DataType.INT64]
    for chunk in _chunks(files, feeds):
        known = _known(files, chunk)
        exact = Graft(files.reference, [pair.reference for pair in [*known, *top]]).run(feeds)
        given = _given(files, [*known, *top], exact)
        shown = [pair.candidate for pair in chunk]
        alone = _candidate(files, shown, known).run(feeds, given)
        in_run = _candidate(files, shown, top).run(feeds, given)
        for pair in chunk:
            t, x, accumulated = exact[pair.reference], alone[pair.candidate], in_run[pair.candidate]
            yield pair, _relative_error(t, x)[0], _relative_error(t, accumulated)[0]


def _known(files: BothFiles, chunk: Sequence[Pair]) -> list[Pair]:
    """The pairs of a chunk, and those that the candidate computes them from."""
    read = {name for pair in chunk for name in files.read_by(pair)}
    return [*chunk, *(files.pair_of(name) for name in sorted(read - {pair.candidate for pair in chunk}))]


def _candidate(files: BothFiles, shown: Sequence[str], cut: Sequence[Pair]) -> Graft:
    return Graft(files.emulated, shown, [pair.candidate for pair in cut], is_emulated=True)


def _given(files: BothFiles, pairs: Sequence[Pair], exact: Feeds) -> dict[str, np.ndarray]:
    """The reference's tensors as the candidate holds them; an overflow is the error of the node that writes it."""
    return {pair.candidate: files.as_held(pair.candidate, exact[pair.reference]) for pair in pairs}


def _relative_error(exact: np.ndarray, made: np.ndarray) -> tuple[float, float, int, int]:
    """Relative error of a tensor, see above; largest |t|; numbers of NaN and of Inf."""
    t = exact.ravel().astype(np.float64)
    counts = np.abs(t) < _MASK  # false of a NaN
    is_whole = bool(counts.all())
    t = t if is_whole else t[counts]
    absmax = float(np.abs(t).max(initial=0.0))
    if exact.size != made.size:
        return 1.0, absmax, 0, 0
    x = made.ravel().astype(np.float64)
    d = (x if is_whole else x[counts]) - t
    if not np.isfinite(d).all():
        x = x if is_whole else x[counts]
        return math.inf, absmax, int(np.isnan(x).sum()), int(np.isinf(x).sum())
    largest = float(np.abs(d).max(initial=0.0))
    if not largest:
        return 0.0, absmax, 0, 0
    size = math.sqrt(np.square(t).sum())
    norm = math.sqrt(np.square(d).sum())
    return (max(norm / size, largest / absmax) if size and absmax else 1.0), absmax, 0, 0


def _local_error(pair: Pair, exact: np.ndarray, made: np.ndarray, number: int) -> LocalError:
    relative, absmax, nan, inf = _relative_error(exact, made)
    same_shape = exact.shape == made.shape
    return LocalError(pair, relative, absmax, nan, inf, pair.candidate, False, number, same_shape, made)


def _first_nonfinite(files: BothFiles, pair: Pair, feeds: Feeds, given: Feeds) -> str:
    """The first tensor that is not finite among those that the candidate computes of what it is given."""
    inner = files.inner(pair)
    if len(inner) < 2:
        return pair.candidate
    made = Graft(files.emulated, inner, given, is_emulated=True).run(feeds, given)
    return next((name for name in inner if not np.isfinite(made[name]).all()), pair.candidate)


def _is_discrete(error: LocalError) -> bool:
    return error.computed is not None and error.computed.dtype.kind in "ib"


def _through_float16(array: np.ndarray) -> np.ndarray:
    if array.dtype != np.float32:
        return array
    with np.errstate(over="ignore"):
        return array.astype(np.float16).astype(np.float32)


def _without_small_ones(errors: list[LocalError], keep: int) -> list[LocalError]:
    """The same errors, without the tensors of those that are not among the largest."""
    kept = {id(error) for error in sorted(errors, key=lambda error: -error.relative)[:keep]}
    return [replace(error, computed=_narrow(error.computed) if id(error) in kept else None) for error in errors]


def _narrow(array: np.ndarray | None) -> np.ndarray | None:
    """The same numbers in half the memory, where float16 holds them."""
    if array is None or array.dtype != np.float32:
        return array
    with np.errstate(over="ignore"):
        narrow = array.astype(np.float16)
    return narrow if np.array_equal(narrow, array, equal_nan=True) else array


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
