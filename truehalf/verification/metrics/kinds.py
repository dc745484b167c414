"""Outputs judged as what they are: the decisions that an application takes from them.

    classes     [N, classes], behind a Softmax       the best class of each sample
    sequence    [N, steps, values], as of CTC        the best value of each step
    embedding   [N, values]                          the nearest neighbour of each sample, by cosine
    map         [N, channels, height, width], 0..1   connected regions above 0.3 and above the score threshold: as many,
                                                     paired one to one by overlap

A decision that half a step of the input turns, too, is a near tie; up to CHANGED of all may turn beside those. The kind
comes from the I/O spec, or from the operator that makes the output.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypedDict

import numpy as np
import onnx_ir as ir

from truehalf.io_spec.outputs import detecting
from truehalf.io_spec.spec import IoSpec
from truehalf.ir.facts import is_op
from truehalf.ir.ops import Trait, has
from truehalf.verification.metrics.yardstick import FLOOR, SLACK, Arrays, Draws, spread_of

CLASSES, SEQUENCE, EMBEDDING, MAP = "classes", "sequence", "embedding", "map"
CHANGED = 0.005  # of all decisions
Pairs = Sequence[tuple[np.ndarray, np.ndarray]]
LOW = 0.3  # threshold of regions beside the score threshold
OVERLAP = 0.5  # of a region with its pair, intersection over union
_AXES = {CLASSES: 2, EMBEDDING: 2, SEQUENCE: 3, MAP: 4}


@dataclass(frozen=True)
class Decided:
    """Compared decisions: a sentence on them, and True if they are the same."""

    sentence: str
    passed: bool


def kinds_of(spec: IoSpec, model: ir.Model | None) -> dict[str, str]:
    """Map outputs to a kind that decisions are taken from.

    Args:
        model: whose operators say the kind of an output that the spec gives none; None: not known.
    """
    declared = {each.name: "classes" if each.kind == "probabilities" else each.kind for each in spec.outputs}
    found = {name: kind for name, kind in declared.items() if kind in _AXES}
    for value in model.graph.outputs if model is not None else ():
        kind = _made_as(value) if declared.get(str(value.name)) is None else None
        if kind is not None:
            found[str(value.name)] = kind
    return {name: str(kind) for name, kind in found.items() if name not in detecting(spec)}


def _made_as(value: ir.Value) -> str | None:
    """Kind of an output by the operator behind views and Casts that makes it."""
    axes = None if value.shape is None else len(value.shape)
    node = value.producer()
    while node is not None and node.inputs and (has(node, Trait.VIEW) or is_op(node, "Cast", "Transpose")):
        before = node.inputs[0]
        node = None if before is None else before.producer()
    if node is None or axes is None:
        return None
    if is_op(node, "Sigmoid") and axes == _AXES[MAP]:
        return MAP
    if is_op(node, "LpNormalization") and axes == _AXES[EMBEDDING]:
        return EMBEDDING
    last = is_op(node, "Softmax", "LogSoftmax") and node.attributes.get_int("axis", -1) in (-1, axes - 1)
    return {2: CLASSES, 3: SEQUENCE}.get(axes) if last else None


def without_turned(kind: str | None, pairs: Pairs) -> Pairs:
    """Replace rows with another best value by the reference's: they are judged by their number (`decided`). PP-OCR's
    softmax over 6625 characters is off by 80 % in a step of blurred letters that turns.

    Args:
        kind: of the output; others than classes and sequences stay as they are.
        pairs: (reference, candidate) arrays by run; nothing is left out where a shape is another.
    """
    alike = all(reference.shape == candidate.shape for reference, candidate in pairs)
    if kind not in (CLASSES, SEQUENCE) or not alike or _not_of(kind, [reference for reference, _ in pairs]):
        return pairs
    turned = [reference.argmax(axis=-1) != candidate.argmax(axis=-1) for reference, candidate in pairs]
    return [(r, np.where(rows[..., None], r, c)) for (r, c), rows in zip(pairs, turned, strict=True)]


def _not_of(kind: str, references: Arrays) -> bool:
    """True if arrays have not the axes of the kind, or nothing to choose from."""
    wrong = any(each.ndim != _AXES[kind] or not each.size for each in references)
    return wrong or (kind != MAP and (len({each.shape[-1] for each in references}) > 1 or references[0].shape[-1] < 2))


def _rows(arrays: Arrays) -> np.ndarray:
    """float64 [rows, values] of all runs."""
    return np.concatenate([each.reshape(-1, each.shape[-1]) for each in arrays]).astype(np.float64)


def decided(
    kind: str, references: Arrays, candidates: Arrays, threshold: float, draws: Callable[[], Draws]
) -> Decided | None:
    """Compare the decisions that an output is for; None where its values are not of the kind.

    Args:
        references, candidates: finite float arrays of one shape by run.
        threshold: of scores.
        draws: gives the reference's arrays on moved inputs, by draw and run.
    """
    if _not_of(kind, references):
        return None
    if kind == MAP:
        return _regions(references, candidates, threshold, draws)

    def table(arrays: Arrays) -> np.ndarray:
        return _likeness(_rows(arrays)) if kind == EMBEDDING else _rows(arrays)

    ours, theirs = table(references), table(candidates)
    if kind == EMBEDDING and len(ours) < 3:
        return None
    other = ours.argmax(axis=1) != theirs.argmax(axis=1)
    near = other & near_choices(ours, theirs, lambda: [table(draw) for draw in draws()]) if other.any() else other
    said = {
        CLASSES: "the best class of {} of {} samples is the same",
        SEQUENCE: "the best value of {} of {} steps is the same",
        EMBEDDING: "the nearest neighbour of {} of {} samples is the same",
    }[kind]
    return _judged(said.format(int((~other).sum()), len(ours)), int((other & ~near).sum()), int(near.sum()), len(ours))


def _judged(sentence: str, changed: int, near: int, count: int) -> Decided:
    if near:
        sentence += f", {near} turn with half a step of the input, too"
    return Decided(sentence, changed <= CHANGED * count)


def _likeness(rows: np.ndarray) -> np.ndarray:
    """Cosine of each vector with every other one; -1 with itself."""
    lengths = np.linalg.norm(rows, axis=1, keepdims=True)
    unit = rows / np.where(lengths, lengths, 1)
    found = unit @ unit.T
    np.fill_diagonal(found, -1.0)
    return np.asarray(found)


# --- maps -------------------------------------------------------------------------------------------------------------


def _regions(references: Arrays, candidates: Arrays, threshold: float, draws: Callable[[], Draws]) -> Decided | None:
    if any(each.min() < 0 or each.max() > 1 for each in references):
        return None
    regions, changed, near, count = [], 0, 0, 0
    for limit in sorted({LOW, threshold}):
        pairs, alone = _paired(references, candidates, limit)
        turned = [_paired(references, draw, limit)[1] for draw in draws()] if alone else []
        excused = min(alone, int(SLACK * max(turned, default=0)))
        regions.append(f"{pairs} of {pairs + alone} regions above {limit:g}")
        changed, near, count = changed + alone - excused, near + excused, count + pairs + alone
    return _judged(f"{' and '.join(regions)} are found again", changed, near, count)


def _paired(references: Arrays, others: Arrays, limit: float) -> tuple[int, int]:
    """Count regions that are paired, and those on either side that are not."""
    pairs = alone = 0
    for reference, other in zip(references, others, strict=True):
        for ours, theirs in zip(_planes(reference), _planes(other), strict=True):
            matched, counts = _matched(ours > limit, theirs > limit)
            pairs, alone = pairs + matched, alone + sum(counts) - 2 * matched
    return pairs, alone


def _planes(array: np.ndarray) -> Iterator[np.ndarray]:
    yield from array.reshape(-1, *array.shape[-2:])


def _matched(ours: np.ndarray, theirs: np.ndarray) -> tuple[int, tuple[int, int]]:
    """Count regions of two masks that overlap one to one by OVERLAP, and the regions of each."""
    from scipy import ndimage

    around = np.ones((3, 3))
    (first, count), (second, others) = ndimage.label(ours, around), ndimage.label(theirs, around)
    both = np.bincount(first.ravel() * (others + 1) + second.ravel(), minlength=(count + 1) * (others + 1))
    shared = both.reshape(count + 1, others + 1)
    union = shared.sum(axis=1, keepdims=True) + shared.sum(axis=0, keepdims=True) - shared
    # Above one half of the union at most one region of the other mask overlaps a region, so pairs are one to one.
    return int((shared[1:, 1:] > OVERLAP * union[1:, 1:]).sum()), (count, others)


# --- best classes -----------------------------------------------------------------------------------------------------


class ClassAgreement(TypedDict):
    """Agreement of class logits (see `classification_metrics`).

    Attributes:
        samples: how many.
        top1_agreement: share of samples with the same best class; None without samples.
        label_flips: samples with another best class, near ties left out.
        near_ties: samples whose two best classes half a step of the input moves past each other.
    """

    samples: int
    top1_agreement: float | None
    label_flips: int
    near_ties: int


def classification_metrics(
    reference: np.ndarray, other: np.ndarray, draws: Callable[[], Sequence[np.ndarray]] = tuple
) -> ClassAgreement:
    """Compare the class logits of two files; a sample with a NaN or +Inf on either side, or nothing above -Inf, agrees
    in nothing.

    Args:
        reference, other: [samples, classes], of one shape, before the softmax.
        draws: gives the reference on inputs moved by half a step, as often as it was drawn; asked where a best class is
            another, see near_choices.
    """
    reference, other = (np.asarray(each, np.float64) for each in (reference, other))
    if not len(reference):
        return {"samples": 0, "top1_agreement": None, "label_flips": 0, "near_ties": 0}
    usable = _usable(reference) & _usable(other)
    same = usable & (other.argmax(axis=1) == reference.argmax(axis=1))  # the first of equal ones
    with np.errstate(invalid="ignore"):
        near = usable & ~same & near_choices(reference, other, draws)
    return {
        "samples": len(reference),
        "top1_agreement": float(same.mean()),
        "label_flips": int((~same & ~near).sum()),
        "near_ties": int(near.sum()),
    }


def near_choices(reference: np.ndarray, other: np.ndarray, draws: Callable[[], Sequence[np.ndarray]]) -> np.ndarray:
    """bool [rows]: the other's best column is nearly as good as the best one in the reference.

    That is so within FLOOR of the spread of all values, or within SLACK times what half a step of the input moves
    the one beside the other.

    Args:
        reference, other: [rows, columns].
        draws: see classification_metrics.
    """
    rows = np.arange(len(reference))
    best, chosen = reference.argmax(axis=1), other.argmax(axis=1)
    gap = reference[rows, best] - reference[rows, chosen]
    reach = np.full(len(rows), FLOOR * spread_of(reference))
    if (gap > reach).any():
        for draw in draws():
            moved_gap = draw[rows, best] - draw[rows, chosen]
            reach = np.maximum(reach, np.nan_to_num(SLACK * np.abs(moved_gap - gap), nan=0.0, posinf=0.0))
    return np.asarray(gap <= reach)


def _usable(logits: np.ndarray) -> np.ndarray:
    """bool [samples]: there is a distribution; -Inf is a class that cannot be."""
    wrong = np.isnan(logits) | np.isposinf(logits)
    return np.asarray(~wrong.any(axis=1) & np.isfinite(logits).any(axis=1))
