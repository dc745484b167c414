"""Tensor errors, and the pairing of queries, on outputs that are known to be good or bad."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from tests.messages import expect, raises
from truehalf.io_spec.outputs import MOST_QUERIES
from truehalf.io_spec.spec import IoSpec
from truehalf.verification.metrics.tensors import (
    check_runs,
    compare_runs,
    pair_queries,
    query_outputs,
)

QUERIES = ("logits", "boxes")


def detector_outputs(pictures: int = 2, queries: int = 12, classes: int = 4, seed: int = 0) -> dict[str, np.ndarray]:
    random = np.random.default_rng(seed)
    return {
        "logits": random.normal(-3, 2, (pictures, queries, classes)).astype(np.float32),
        "boxes": random.uniform(0, 1, (pictures, queries, 4)).astype(np.float32),
    }


def permuted(outputs: dict[str, np.ndarray], order: np.ndarray) -> dict[str, np.ndarray]:
    return {name: value[:, order] for name, value in outputs.items()}


def test_outputs_that_are_empty_on_all_samples_are_no_difference() -> None:
    nothing = {"kept": np.zeros((0, 4), np.float32), "scores": np.zeros(0, np.float32)}
    facts = check_runs([(nothing, nothing)] * 2, IoSpec(), atol=1e-3, rtol=1e-3)
    assert facts["status"] == "not verified"
    expect(facts["reason"], "nothing-compared")


def compare(reference: dict[str, np.ndarray], other: dict[str, np.ndarray]) -> dict:
    return compare_runs([(reference, other)], atol=1e-3, rtol=1e-3, queries=QUERIES)


def test_permuted_queries_agree() -> None:
    reference = detector_outputs()
    order = np.random.default_rng(1).permutation(12)
    result = compare(reference, permuted(reference, order))
    assert result.agree
    assert result.max_abs == {"logits": 0.0, "boxes": 0.0}


def test_of_many_rows_those_that_moved_are_paired() -> None:
    rng = np.random.default_rng(3)
    boxes = rng.uniform(0, 640, (2, MOST_QUERIES + 300, 4)).astype(np.float32)
    order = np.arange(boxes.shape[1])
    order[100:400] = rng.permutation(order[100:400])
    other = (boxes[:, order] + rng.normal(0, 0.2, boxes.shape)).astype(np.float32)
    other[1, 7] = np.nan
    rows = pair_queries({"boxes": boxes}, {"boxes": other}, ["boxes"])
    assert (order[rows] == np.arange(boxes.shape[1])).all()


@pytest.mark.parametrize(("axis", "names"), [(2, ["found"]), (1, [])])
def test_rows_of_one_tensor_are_queries_where_they_may_change_places(axis: int, names: list[str]) -> None:
    rows = {"name": "found", "kind": "rows", "columns": ["boxes", "score", "label"], "axis": axis}
    assert query_outputs(IoSpec.from_json({"outputs": [rows]})) == names


def test_boxes_that_changed_their_logits_do_not_agree() -> None:
    """Both outputs hold the same rows, but paired differently: matching each output alone would pass it."""
    reference = detector_outputs()
    other = dict(reference, boxes=reference["boxes"][:, ::-1])
    assert not compare(reference, other).agree


def test_one_different_query_leaves_the_others_matched() -> None:
    reference = detector_outputs(queries=50)
    other = permuted(reference, np.roll(np.arange(50), 7))
    other["logits"][0, 3] = 1e6
    result = compare(reference, other)
    assert not result.agree and result.share == 0.995, "its four logits"


def test_nan_output_does_not_agree_with_a_nan_output() -> None:
    reference = {name: np.full_like(value, np.nan) for name, value in detector_outputs().items()}
    result = compare(reference, reference)
    assert not result.agree
    assert result.share == 0.0
    assert result.nonfinite == (2 * 12 * 8,) * 2


def test_without_queries_rows_are_compared_in_place() -> None:
    reference = detector_outputs()
    assert compare_runs([(reference, reference)], atol=0, rtol=0).agree
    swapped = permuted(reference, np.arange(12)[::-1])
    assert not compare_runs([(reference, swapped)], atol=1e-3, rtol=1e-3).agree


def test_other_names_or_shapes_are_refused() -> None:
    reference = detector_outputs()
    with raises("not-comparable", "logits, boxes") as error:
        compare(reference, {"logits": reference["logits"]})
    assert str(error.value).count("boxes") == 1, "expected, and not there"
    with raises("not-comparable", "'boxes'", "[2, 12, 4]", "[2, 11, 4]"):
        compare(reference, dict(reference, boxes=reference["boxes"][:, 1:]))


SPEC = IoSpec.from_json({"outputs": [{"name": "logits", "kind": "logits"}, {"name": "boxes", "kind": "boxes"}]})


def judge(reference: dict[str, np.ndarray], other: dict[str, np.ndarray], trained: bool) -> dict:
    return check_runs(
        [(reference, other)], replace(SPEC, trained=trained), atol=1e-3, rtol=1e-3, sides=("torch", "file")
    )


def test_difference_of_trained_weights_is_an_error_and_of_untrained_ones_not_verified() -> None:
    reference, other = detector_outputs(seed=1), detector_outputs(seed=2)
    result = judge(reference, other, trained=False)
    facts = ["torch", "file", f"{result['share']:.2%}", "99.9%", "atol 0.001", "rtol 0.001"]
    facts += [f"{name} {error:.3g}" for name, error in result["max_abs"].items()]
    assert result["status"] == "not verified" and list(result["max_abs"]) == ["logits", "boxes"]
    expect(result["reason"], "weights-random", *facts)
    with raises("outputs-differ", *facts):
        judge(reference, other, trained=True)


@pytest.mark.parametrize("size", [1, 3, 40])
def test_a_large_output_does_not_hide_a_small_one(size: int) -> None:
    reference = {"map": np.ones((1, 50_000)), "count": np.ones((1, size))}
    options: dict[str, Any] = {"atol": 1e-3, "rtol": 1e-3}
    wrong = reference | {"count": np.full((1, size), 2.0)}
    with raises("outputs-differ", "'count'", "0.00%", "90%"):
        check_runs([(reference, wrong)], IoSpec(), **options)
    kink = reference["map"].copy()
    kink[0, :30] = 2
    assert check_runs([(reference, reference | {"map": kink})], IoSpec(), **options)["status"] == "verified"


@pytest.mark.parametrize("trained", [True, False])
def test_nan_is_an_error_even_of_untrained_weights(trained: bool) -> None:
    reference = detector_outputs()
    broken = dict(reference, boxes=np.where(reference["boxes"] > 0.99, np.nan, reference["boxes"]))
    count = int(np.isnan(broken["boxes"]).sum())
    assert count
    for side, other, runs in (("file", "torch", (reference, broken)), ("torch", "file", (broken, reference))):
        with raises("not-finite", count, "NaN", "Inf", side) as error:
            judge(*runs, trained)
        assert other not in str(error.value)
