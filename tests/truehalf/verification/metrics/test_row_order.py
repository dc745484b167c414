"""The same rows in another order, told from rows that are wrong."""

from __future__ import annotations

import numpy as np

from truehalf.verification.metrics.output_errors import output_errors
from truehalf.verification.metrics.row_order import MOST_ROWS, in_another_order
from truehalf.verification.open_file import Arrays
from truehalf.verification.runs import Run

RNG = np.random.default_rng(0)
BOXES = RNG.uniform(0, 1, (2, 50, 4)).astype(np.float32)
SCORES = RNG.normal(0, 3, (2, 50, 6)).astype(np.float32)
ORDER = RNG.permutation(50)


def moved(reference: Arrays, candidate: Arrays) -> list[str]:
    run = Run(["feed"], 0, reference, candidate)
    errors = {name: output_errors(name, [(a, candidate[name])], 0.01, ["feed"]) for name, a in reference.items()}
    return in_another_order(errors, [run])


def test_rows_in_another_order_with_rounding() -> None:
    noise = RNG.uniform(-0.004, 0.004, BOXES.shape).astype(np.float32)
    assert moved({"b": BOXES}, {"b": BOXES[:, ORDER] + noise}) == ["b"]
    assert moved({"b": BOXES}, {"b": np.stack([BOXES[0], BOXES[1, ORDER]])}) == ["b"]


def test_samples_without_rows_say_nothing() -> None:
    kept = {"b": BOXES[:1], "s": SCORES[:1]}
    nothing = {name: array[:, :0] for name, array in kept.items()}
    for order, expected in ((ORDER, ["b", "s"]), (slice(None), [])):
        wrong = kept["b"][:, order] + (0.0 if expected else 0.1)
        runs = [Run(["a"], 0, nothing, nothing), Run(["b"], 0, kept, {"b": wrong, "s": kept["s"][:, order]})]
        errors = {
            name: output_errors(name, [(run.reference[name], run.candidate[name]) for run in runs], 0.01, ["a", "b"])
            for name in kept
        }
        assert in_another_order(errors, runs) == expected


def test_rows_that_are_wrong_are_not_moved() -> None:
    wrong = BOXES[:, ORDER].copy()
    wrong[1, 3, 2] += 0.05
    assert moved({"b": BOXES}, {"b": wrong}) == []
    assert moved({"b": BOXES}, {"b": np.stack([np.sort(BOXES[0], axis=0), BOXES[1]])}) == [], "columns apart"


def test_a_row_used_twice_is_not_moved() -> None:
    twice = BOXES[:, ORDER].copy()
    twice[:, 0] = twice[:, 1]
    assert moved({"b": BOXES}, {"b": twice}) == []


def test_a_row_is_what_stands_at_its_place_in_all_outputs() -> None:
    labels = np.arange(100).reshape(2, 50)
    reference = {"b": BOXES, "s": SCORES, "l": labels, "features": BOXES[:, :7]}
    candidate = {name: value[:, ORDER] for name, value in reference.items() if name != "features"}
    assert moved(reference, {**candidate, "features": BOXES[:, :7]}) == ["b", "s", "l"]
    assert moved(reference, {**candidate, "s": SCORES, "features": BOXES[:, :7]}) == [], "boxes without their scores"


def test_what_is_equal_or_has_no_rows_is_not_looked_at() -> None:
    assert moved({"b": BOXES}, {"b": BOXES}) == []
    assert moved({"y": BOXES[0]}, {"y": BOXES[0, ORDER]}) == []
    large = np.arange(2.0 * MOST_ROWS + 2, dtype=np.float32).reshape(1, -1, 2)
    assert moved({"b": large}, {"b": large[:, ::-1]}) == []


def test_masks_of_infinities_move_with_their_rows() -> None:
    masked = BOXES.copy()
    masked[:, ::3, 0] = -np.inf
    assert moved({"b": masked}, {"b": masked[:, ORDER]}) == ["b"]
