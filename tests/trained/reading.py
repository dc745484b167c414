"""Published post-processing: output arrays of a model as objects, text, classes, spans.

Written anew after the packages' own code; nothing of the library under test is imported. Detections are read down to
`LOW` below the threshold of their task, so that a judge can tell "gone" from "below the threshold".
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from tests.trained.judges import Objects, Span

LOW = 0.06


def softmax(array: np.ndarray, axis: int = -1) -> np.ndarray:
    shifted = np.exp(array - array.max(axis, keepdims=True))
    return np.asarray(shifted / shifted.sum(axis, keepdims=True))


def sigmoid(array: np.ndarray) -> np.ndarray:
    return np.asarray(1 / (1 + np.exp(-np.clip(array.astype(np.float64), -60, 60))))


# --- boxes ------------------------------------------------------------------------------------------------------------


def suppressed(boxes: np.ndarray, scores: np.ndarray, labels: np.ndarray, overlap: float) -> Objects:
    """Greedy non-maximum suppression across classes, best first."""
    order, kept = list(np.argsort(-scores, kind="stable")), []
    while order:
        best = order.pop(0)
        kept.append(best)
        if order:
            rest = boxes[order]
            sides = np.minimum(boxes[best, 2:], rest[:, 2:]) - np.maximum(boxes[best, :2], rest[:, :2])
            shared = np.clip(sides, 0, None).prod(1)
            area = (rest[:, 2:] - rest[:, :2]).prod(1) + (boxes[best, 2:] - boxes[best, :2]).prod() - shared
            order = [each for each, iou in zip(order, shared / np.maximum(area, 1e-9), strict=True) if iou < overlap]
    return Objects(boxes[kept], scores[kept], labels[kept])


def corners(centres_and_sizes: np.ndarray) -> np.ndarray:
    centre, half = centres_and_sizes[:, :2], centres_and_sizes[:, 2:4] / 2
    return np.concatenate([centre - half, centre + half], 1)


def yolov8(output: np.ndarray, threshold: float) -> Objects:
    """(1, 4 + classes, anchors): centre, size, scores; NMS at 0.45."""
    rows = output[0].T
    scores = rows[:, 4:].max(1)
    rows, scores = rows[scores >= threshold - LOW], scores[scores >= threshold - LOW]
    return suppressed(corners(rows[:, :4]), scores, rows[:, 4:].argmax(1), 0.45)


def yolox(output: np.ndarray, size: int, threshold: float) -> Objects:
    """(1, anchors, 5 + classes): offsets and log sizes on grids of strides 8, 16, 32; objectness; NMS at 0.45."""
    grids, strides = [], []
    for stride in (8, 16, 32):
        side = size // stride
        x, y = np.meshgrid(np.arange(side), np.arange(side))
        grids.append(np.stack([x, y], 2).reshape(-1, 2))
        strides.append(np.full((side * side, 1), stride))
    grid, stride_of = np.concatenate(grids), np.concatenate(strides)
    rows = output[0]
    boxes = np.concatenate([(rows[:, :2] + grid) * stride_of, np.exp(rows[:, 2:4]) * stride_of], 1)
    every = rows[:, 4:5] * rows[:, 5:]
    scores, labels = every.max(1), every.argmax(1)
    kept = scores >= threshold - LOW
    return suppressed(corners(boxes[kept]), scores[kept], labels[kept], 0.45)


def centerface(heat: np.ndarray, scale: np.ndarray, offset: np.ndarray, threshold: float) -> Objects:
    """Heat map at a quarter of the resolution, log sizes, offsets; NMS at 0.3."""
    y, x = np.nonzero(heat[0, 0] >= threshold - LOW)
    height, width = np.exp(scale[0, 0, y, x]) * 4, np.exp(scale[0, 1, y, x]) * 4
    centre_x, centre_y = (x + offset[0, 1, y, x] + 0.5) * 4, (y + offset[0, 0, y, x] + 0.5) * 4
    boxes = corners(np.stack([centre_x, centre_y, width, height], 1))
    return suppressed(boxes, heat[0, 0, y, x], np.zeros(len(x), int), 0.3)


def blazeface(
    scores: np.ndarray, regression: np.ndarray, size: int, strides: Sequence[int], threshold: float
) -> Objects:
    """Two anchors a cell for each stride listed; centre relative to the anchor, size; NMS at 0.3."""
    anchors = []
    for stride in sorted(set(strides)):
        side = size // stride
        y, x = np.meshgrid(np.arange(side) + 0.5, np.arange(side) + 0.5, indexing="ij")
        cells = np.stack([x, y], -1).reshape(-1, 2) * stride
        anchors.append(cells.repeat(2 * list(strides).count(stride), 0))
    rows, score = regression[0].reshape(len(scores[0]), -1), scores[0]
    boxes = np.concatenate([rows[:, :2] + np.concatenate(anchors), rows[:, 2:4]], 1)
    kept = score >= threshold - LOW
    return suppressed(corners(boxes[kept]), score[kept], np.zeros(int(kept.sum()), int), 0.3)


def picodet(
    scores: Sequence[np.ndarray], boxes: Sequence[np.ndarray], shape: tuple[int, int], threshold: float
) -> Objects:
    """Four levels of strides 8 to 64: scores by class, distances as distributions over 8 bins; NMS at 0.5 by class."""
    found = []
    for stride, score, distribution in zip((8, 16, 32, 64), scores, boxes, strict=True):
        rows, columns = -(-shape[0] // stride), -(-shape[1] // stride)
        x, y = np.meshgrid((np.arange(columns) + 0.5) * stride, (np.arange(rows) + 0.5) * stride)
        bins = distribution.shape[-1] // 4
        distance = (softmax(distribution[0].reshape(-1, 4, bins)) * np.arange(bins)).sum(-1) * stride
        centre = np.stack([x.ravel(), y.ravel()], 1)
        corner = np.concatenate([centre - distance[:, :2], centre + distance[:, 2:]], 1)
        found.append((corner, score[0].max(1), score[0].argmax(1)))
    box, score, label = (np.concatenate(each) for each in zip(*found, strict=True))
    kept = score >= threshold - LOW
    box, score, label = box[kept], score[kept], label[kept]
    parts = [suppressed(box[label == one], score[label == one], label[label == one], 0.5) for one in np.unique(label)]
    parts = parts or [Objects(box, score, label)]
    return Objects(*(np.concatenate([getattr(part, each) for part in parts]) for each in ("boxes", "scores", "labels")))


def text_regions(probability: np.ndarray, threshold: float, unclip: float = 1.6) -> Objects:
    """(1, 1, height, width) of differentiable binarization: connected pixels above 0.3, the mean inside as score, each
    box enlarged by area * unclip / circumference; upright boxes.
    """
    from scipy import ndimage

    image = probability[0, 0]
    marks, count = ndimage.label(np.nan_to_num(image) > 0.3, np.ones((3, 3)))
    places = ndimage.find_objects(marks)
    boxes, scores = [], []
    for i in range(count):
        rows, columns = places[i]
        height, width = rows.stop - rows.start, columns.stop - columns.start
        if min(height, width) < 3:
            continue
        score = float(image[rows, columns][marks[rows, columns] == i + 1].mean())
        if score >= threshold - LOW:
            grow = height * width * unclip / (2 * (height + width))
            boxes.append((columns.start - grow, rows.start - grow, columns.stop + grow, rows.stop + grow))
            scores.append(score)
    return Objects(np.array(boxes, np.float64).reshape(-1, 4), np.array(scores), np.zeros(len(scores), int))


# --- sequences --------------------------------------------------------------------------------------------------------


def ctc(best: np.ndarray, blank: int) -> list[int]:
    """Indices without repetitions and blanks."""
    indices = [int(each) for each in np.ravel(best)]
    return [one for i, one in enumerate(indices) if one != blank and (i == 0 or one != indices[i - 1])]


def viterbi(emissions: np.ndarray, transitions: np.ndarray) -> list[int]:
    """Best path of a conditional random field."""
    score, back = emissions[0].astype(np.float64), []
    for row in emissions[1:]:
        table = score[:, None] + transitions
        back.append(table.argmax(0))
        score = table.max(0) + row
    path = [int(score.argmax())]
    for pointers in reversed(back):
        path.append(int(pointers[path[-1]]))
    return path[::-1]


def runs(active: np.ndarray, least: int, label: object = 0, step: float = 1) -> list[Span]:
    """Spans in which a flag holds for at least so many entries."""
    edges = np.flatnonzero(np.diff(np.concatenate([[0], active.astype(int), [0]])))
    return [(a * step, b * step, label) for a, b in zip(edges[::2], edges[1::2], strict=True) if b - a >= least]


def speech_spans(probabilities: np.ndarray, step: float = 0.032) -> list[Span]:
    """Silero's rule: speech begins at 0.5 and ends where at least 0.1 s are below 0.35; at least 0.25 s long."""
    found: list[Span] = []
    begin, quiet = None, None
    for i, one in enumerate([*np.ravel(probabilities), *[0.0] * 8]):
        if one >= 0.5:
            begin, quiet = i if begin is None else begin, None
        elif one < 0.35 and begin is not None:
            quiet = i if quiet is None else quiet
            if (i - quiet) * step >= 0.1:
                if (quiet - begin) * step >= 0.25:
                    found.append((begin * step, quiet * step, "speech"))
                begin, quiet = None, None
    return found


def notes(note: np.ndarray) -> list[Span]:
    """(frames, pitches): spans of at least 11 frames above 0.3, labelled with the pitch in semitones."""
    return [span for pitch in range(note.shape[1]) for span in runs(note[:, pitch] > 0.3, 11, pitch)]


def spindles(detection: np.ndarray) -> list[Span]:
    """(30, 3): confidence, place in the second, length in two seconds, all before a sigmoid; NMS at 0.3."""
    confidence, place, length = sigmoid(detection).T
    chosen = np.flatnonzero(confidence >= 0.5)
    centre, half = chosen + place[chosen], length[chosen]
    found: list[Span] = []
    for i in np.argsort(-confidence[chosen], kind="stable"):
        begin, end = centre[i] - half[i], centre[i] + half[i]
        shared = [min(end, b) - max(begin, a) for a, b, _ in found]
        if all(s / (end - begin + b - a - s) < 0.3 for s, (a, b, _) in zip(shared, found, strict=True)):
            found.append((float(begin), float(end), "spindle"))
    return found


def atom_mapping(attention: np.ndarray, molecules: dict[str, np.ndarray]) -> list[int]:
    """For each atom of the products the kind of atom of the reactants that it comes from, -1 for none: largest
    attention first, neighbours of what is mapped preferred by a factor of 1.75. Atoms that symmetry makes alike are of
    one kind.
    """
    product, reactant = molecules["product"], molecules["reactant"]
    table = attention[np.ix_(product, reactant)] + attention[np.ix_(reactant, product)].T
    table = table * (molecules["element"][product][:, None] == molecules["element"][reactant])
    links = molecules["links"]
    mapping = np.full(len(product), -1)
    waiting = np.ones(len(product), bool)
    frontier = np.zeros(len(product), bool)
    while waiting.any():
        rows = np.flatnonzero(frontier & waiting) if (frontier & waiting).any() else np.flatnonzero(waiting)
        i, j = np.unravel_index(table[rows].argmax(), (len(rows), len(reactant)))
        i = rows[i]
        if table[i, j] < 1e-8:
            break
        mapping[i], waiting[i] = j, False
        beside = links[product[i]][product]
        table[np.ix_(beside, links[reactant[j]][reactant])] *= 1.75
        table[i], table[:, j] = 0, 0
        frontier |= beside
    return [int(molecules["alike"][reactant[each]]) if each >= 0 else -1 for each in mapping]
