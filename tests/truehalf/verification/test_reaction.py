"""Whether outputs react to the input."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.messages import expect
from tests.truehalf.verification.two_models import model, options
from truehalf.verification.chain.compare import compare
from truehalf.verification.reaction import Observed, reactions

RNG = np.random.default_rng(0)
X = RNG.normal(0, 1, (6, 3)).astype(np.float32)
SAMPLES = ["a", "b", "c", "d", "e", "f"]


@pytest.mark.parametrize(
    ("end", "shape"),
    [
        ("y = Transpose <perm = [1, 0]> (u)", "3,N"),
        ("v = Unsqueeze (u, first) y = Expand (v, copies)", "2,N,3"),
        ("y = Reshape (u, pairs)", "M,1"),
    ],
    ids=["last", "second", "flattened"],
)
def test_samples_lie_along_another_axis(end: str, shape: str, tmp_path: Path) -> None:
    weights = {"first": np.array([0]), "copies": np.array([2, 1, 1]), "pairs": np.array([-1, 1])}
    weights |= {"w": RNG.normal(0, 5e-3, (3, 3)).astype(np.float32), "c": np.full(3, 5, np.float32)}
    text = f"(float[N,3] x) => (float[{shape}] y) {{ d = MatMul (x, w) r = BODY u = Add (r, c) {end} }}"
    weights["high"] = np.array(0.1, np.float32)
    alive, dead = "Identity (d)", "Clip (d, high)"
    files = [
        model(tmp_path / f"{i}.onnx", text.replace("BODY", body), **weights) for i, body in enumerate((alive, dead))
    ]
    weights["w"] = weights["w"].astype(np.float16).astype(np.float32)
    rounded = model(tmp_path / "rounded.onnx", text.replace("BODY", alive), **weights)
    assert compare(files[0], rounded, {"x": X}, locate=False).passed
    report = compare(*files, {"x": X}, locate=False, options=options(tolerance=1.0))
    assert report.verdict == "failed"
    expect(report.reasons[0], "input-ignored", "'y'")
    report = compare(files[0], files[0], {"x": np.repeat(X[:1], 6, axis=0)}, locate=False)
    assert report.passed and any("samples-alike" in said for said in report.not_verified)


# --- values -----------------------------------------------------------------------------------------------------------


def seen(reference: Any, candidate: Any, **more: Any) -> Observed:
    return Observed("y", [*np.array(reference)], [*np.array(candidate)], SAMPLES[: len(reference)], **more)


def failures(*outputs: Observed) -> list[str]:
    return [each.facts["output"] for each in reactions(outputs) if each.state == "failed"]


def unknown(*outputs: Observed) -> list[str]:
    return [each.facts["output"] for each in reactions(outputs) if each.state == "not verified" and each.decides]


def test_what_float16_swallows_is_not_verified() -> None:
    near = 100 + np.array([[0.0], [0.01]])
    assert (failures(seen(near, [[100.0], [100.0]])), unknown(seen(near, [[100.0], [100.0]]))) == ([], ["y"])
    far = 100 + np.array([[0.0], [0.5]])
    assert failures(seen(far, [[100.0], [100.0]])) == failures(seen(far, near)) == ["y"]
    assert reactions([seen(far, (far + near) / 2)]) == reactions([seen(far, far)])


@pytest.mark.parametrize("seed", range(3))
def test_what_moves_by_a_fraction_of_what_it_should_ignores_its_input(seed: int) -> None:
    """Traces of the input are no reaction; rounding, noise of its size and one value that stays are no fault."""
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(2, 9)), *rng.integers(2, 6, int(rng.integers(0, 3))).tolist())
    base = rng.normal(0, 4, shape[1:])
    moved = np.abs(base).max() * 0.02 * rng.normal(0, 1, shape)
    trace = (0.1, 0.01, 1e-5)[seed % 3] * np.roll(moved, seed % 2, axis=0)
    assert failures(seen(base + moved, base + trace)) == ["y"]
    rounded = (base + moved).astype(np.float16)
    for good in (rounded, base + moved + rng.normal(0, 0.02, shape), base + 0.5 * moved):
        assert not failures(seen(base + moved, good)) and not unknown(seen(base + moved, good))


def test_values_that_float16_swallows_beside_one_that_moves() -> None:
    """1000 + 0.1 i is the same in FP16; only what moves by more than FP16's steps has to."""
    small = 1000 + 0.1 * np.arange(6)[:, None] * np.ones(50)
    reference = np.concatenate([small, np.arange(6)[:, None]], axis=1)
    assert not failures(seen(reference, reference.astype(np.float16)))


@pytest.mark.parametrize("values", [[3, 3], [True, True], ["a", "a"]])
def test_a_count_that_is_always_the_same_does_not_count_alone(values: Any) -> None:
    same = Observed("n", [*np.array(values)], [*np.array(values)], SAMPLES[:2], always=False)
    moving = seen([[1.0], [2.0]], [[1.0], [2.0]])
    assert unknown(same) == ["n"] and unknown(same, moving) == []
    assert unknown(replace(same, always=True), moving) == ["n"]


def test_what_random_weights_choose_is_not_verified_beside_what_reacts() -> None:
    moving, still = [np.zeros(2), np.ones(2)], [np.ones(2)] * 2
    boxes = Observed("boxes", moving, still, SAMPLES[:2], always=False, arbitrary=True)
    logits = Observed("logits", moving, moving, SAMPLES[:2], always=False, arbitrary=True)
    assert (failures(logits, boxes), unknown(logits, boxes)) == ([], ["boxes"])
    assert failures(replace(logits, candidate=still), boxes) == ["logits", "boxes"], "none reacts"
    assert failures(logits, replace(boxes, arbitrary=False)) == ["boxes"], "trained weights"


def test_nan_and_shapes() -> None:
    nan = [np.array([np.nan, 1.0]), np.array([np.nan, 1.0])]
    assert unknown(Observed("y", nan, nan, SAMPLES[:2])) == ["y"]
    moving = [np.ones(2), np.ones(3)]
    assert failures(Observed("y", moving, [np.ones(2)] * 2, SAMPLES[:2])) == ["y"]
    mask = [np.array([-np.inf, 0]), np.array([0, -np.inf])]
    assert failures(Observed("y", mask, [np.zeros(2)] * 2, SAMPLES[:2])) == ["y"]


# --- files ------------------------------------------------------------------------------------------------------------
