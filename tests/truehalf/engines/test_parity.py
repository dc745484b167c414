"""Engines that answer as they are told: what a wrong, crashing, misshapen or incomparable one is said to be."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tests.messages import expect
from tests.truehalf.verification.held import COUNT, Answering, Rows, evidence, model, outputs_of
from truehalf.data.samples import stacked
from truehalf.engines.parity import Point, batch_of, feeds_of, measure_engine, points_of
from truehalf.errors import StageError

PROFILES = [{"x": {"min": [1, 1], "opt": [2, 1], "max": [4, 1]}}]
POINTS = points_of(PROFILES)


def held(answer: Callable[[np.ndarray], Rows] = outputs_of, **options: Any) -> dict[str, Any]:
    return measure_engine(Answering(answer), model(), POINTS, evidence(**options))


def test_each_point_is_there_once_in_the_order_of_the_profiles() -> None:
    profiles = [
        {"x": {"min": [1, 3], "opt": [1, 3], "max": [8, 3]}},
        {"x": {"min": [2, 3], "opt": [2, 3], "max": [2, 3]}, "size": {"min": [4], "opt": [6], "max": [8]}},
    ]
    first, second, third, fourth, fifth = points_of(profiles, {"size"})
    assert (first.label, second.label) == ("profile 0, min and opt", "profile 0, max")
    assert [(p.profile, p.names, p.values["size"]) for p in (third, fourth, fifth)] == [
        (1, ("min",), [4]),
        (1, ("opt",), [6]),
        (1, ("max",), [8]),
    ]
    assert third.shapes == {"x": [2, 3]} and third.facts["shapes"] == {"x": [2, 3], "size": [4]}


def test_an_engine_that_finds_the_same_is_verified_on_all_samples_at_every_point() -> None:
    run = Answering()
    parity = measure_engine(run, model(), POINTS, evidence())
    assert parity["state"] == "verified" and parity["reason"] == "", parity
    assert [(row["points"], row["batch"], row["state"]) for row in parity["points"]] == [
        (["min"], 1, "verified"),
        (["opt"], 2, "verified"),
        (["max"], 4, "verified"),
    ]
    assert parity["samples"] == COUNT and parity["matched_fraction"] == 1.0 and parity["batch"] == 2, "opt stands first"
    assert {gate["gate"] for gate in parity["gates"]} >= {"matched_fraction_min", "nonfinite_max"}
    full_runs = [(1, 0)] * 5 + [(2, 0)] * 3 + [(4, 0)] * 2
    assert run.runs == [*full_runs, (2, 0)], "the last run of a point is filled up, and the adversarial ones run at opt"
    assert parity["adversarial"]["state"] == "verified"


def test_each_profile_runs_by_its_number() -> None:
    run = Answering()
    points = points_of([*PROFILES, {"x": {"min": [1, 1], "opt": [1, 1], "max": [1, 1]}}])
    assert [row["profile"] for row in measure_engine(run, model(), points, evidence())["points"]] == [0, 0, 0, 1]
    assert {profile for _, profile in run.runs} == {0, 1}


def test_one_wrong_point_fails_the_engine_and_is_named() -> None:
    def wrong_at_four(x: np.ndarray) -> Rows:
        outputs = outputs_of(x)
        if len(x) == 4:
            outputs["logits"] = outputs["logits"][:, :, ::-1].copy()  # each class for the other
        return outputs

    parity = held(wrong_at_four)
    assert parity["state"] == "failed" and parity["reason"].startswith("profile 0, max:")
    assert [row["state"] for row in parity["points"]] == ["verified", "verified", "failed"]
    expect(parity["points"][2]["reason"], None, "matched_fraction", 0, 0.99)
    assert parity["matched_fraction"] == 1.0, "the headline is that of opt"


def test_an_engine_that_ignores_its_input_is_said_to() -> None:
    parity = held(lambda x: outputs_of(np.ones_like(x)))
    assert parity["state"] == "failed"
    expect(parity["points"][0]["reason"], "input-ignored", "'boxes'", "'logits'")


def test_nan_fails_wherever_it_is() -> None:
    def broken(x: np.ndarray) -> Rows:
        outputs = outputs_of(x)
        outputs["boxes"][-1, 1, 3] = np.nan
        return outputs

    parity = held(broken)
    assert parity["state"] == "failed" and parity["nan"] > 0
    assert parity["adversarial"]["state"] == "failed"
    expect(parity["reason"], None, "nonfinite", parity["nan"])


@pytest.mark.parametrize(
    ("answer", "facts"),
    [
        (lambda x: {"logits": outputs_of(x)["logits"]}, ["output 'boxes'", "logits"]),
        (
            lambda x: {name: value[:1] for name, value in outputs_of(x).items()},
            ["output 'logits'", "[5, 2, 2]", "[2, 2, 2]"],
        ),
        (
            lambda x: {n: v[:, :1] for n, v in outputs_of(x).items()},
            ["output 'logits'", "[5, 2, 2]", "[5, 1, 2]"],
        ),
    ],
)
def test_outputs_of_other_names_and_shapes_fail(answer: Callable[[np.ndarray], Rows], facts: list[str]) -> None:
    parity = held(answer)
    assert parity["state"] == "failed"
    expect(parity["points"][2]["reason"], None, *facts)
    expect(parity["reason"], None, *facts)


@pytest.mark.parametrize(
    ("error", "code", "facts"),
    [
        (StageError("too-large", "no memory on the GPU"), "too-large", ["no memory on the GPU"]),
        (RuntimeError("x\ny"), None, ["RuntimeError", "x"]),
    ],
)
def test_an_engine_that_stops_is_failed_and_not_lost(error: Exception, code: str | None, facts: list[str]) -> None:
    def stops(x: np.ndarray) -> Rows:
        if len(x) == 4:
            raise error
        return outputs_of(x)

    parity = held(stops)
    assert parity["state"] == "failed"
    expect(parity["points"][2]["reason"], code, *facts)
    assert "y" not in parity["points"][2]["reason"].splitlines()
    assert parity["points"][0]["state"] == "verified"


def test_what_cannot_be_compared_is_said_and_not_passed() -> None:
    assert held(labels=False)["state"] == "verified", "by the detections of the reference"
    parity = held(adversarial=False)
    assert parity["state"] == "not verified"
    expect(parity["reason"], None, "adversarial", "FP32 fails there")
    assert "profile" not in parity["reason"]
    assert {row["state"] for row in parity["points"]} == {"verified"}


def test_a_point_that_no_sample_fits_is_not_verified_with_the_reason() -> None:
    points = [Point(0, ("opt",), {"x": [1, 1]}), Point(1, ("opt",), {"x": [1, 2]})]
    parity = measure_engine(Answering(), model("float[N,M] x"), points, evidence())
    assert parity["state"] == "not verified" and parity["points"][0]["state"] == "verified"
    expect(parity["reason"], None, "profile 1, opt:", "'x'", "[1]", "[2]")
    assert "profile 0" not in parity["reason"]
    parity = measure_engine(Answering(), model("float[N,1] x, float[N,1] mask"), points[:1], evidence())
    expect(parity["reason"], None, "profile 0, opt:", "input 'mask'")


def test_a_point_without_samples_is_not_verified_and_no_fault_of_the_engine() -> None:
    points = points_of([{"x": {"min": [0, 1], "opt": [2, 1], "max": [4, 1]}}])
    parity = measure_engine(Answering(), model(), points, evidence())
    assert [row["state"] for row in parity["points"]] == ["not verified", "verified", "verified"]
    assert parity["state"] == "not verified"
    expect(parity["reason"], "nothing-compared", "profile 0, min:", 0)
    assert "opt" not in parity["reason"]


@pytest.mark.parametrize(
    ("inputs", "shapes", "values", "expected"),
    [
        ("float[N,1] x", {"x": [4, 1]}, {}, 4),
        ("float[N,1] x", {"x": [0, 1]}, {}, 0),
        ("int64[2] size, float[N,1] x", {"x": [8, 1]}, {"size": [7, 9]}, 8),  # a shape tensor stands first
        ("int64[2] size, float[N,1] x", {"x": [8, 1]}, {}, 8),  # two numbers that are no samples
        ("float[2,1] x, float[2,3] other", {}, {}, 2),
        ("float[2,1] x, float[3,1] other", {}, {}, 1),
        ("float x", {}, {}, 1),
    ],
)
def test_the_batch_of_a_point_is_that_of_the_inputs_that_vary(
    inputs: str, shapes: dict[str, list[int]], values: dict[str, list[int]], expected: int
) -> None:
    assert batch_of(model(inputs), Point(0, ("opt",), shapes, values)) == expected


def test_feeds_are_of_the_inputs_types_and_shapes() -> None:
    graph = model("float16[N,1] x, int64[2] size, float[N,3] other, int32[N] kind")
    point = Point(0, ("opt",), {"x": [2, 1], "other": [2, 3], "kind": [2]}, {"size": [7, 9]})
    samples = evidence().reference.samples[:2]
    feeds = feeds_of(graph, point, stacked(samples))
    assert feeds["x"].dtype == np.float16 and feeds["x"].ravel().tolist() == [0, 1]
    assert feeds["size"].tolist() == [7, 9] and feeds["kind"].tolist() == [0, 0]
    assert feeds["other"].shape == (2, 3) and 0 <= feeds["other"].min() < feeds["other"].max() <= 1
    drawn = feeds_of(graph, point, {})
    assert drawn["x"].shape == (2, 1) and np.array_equal(feeds_of(graph, point, {})["x"], drawn["x"])
