"""Whether outputs react to the input."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.messages import expect
from tests.truehalf.verification.two_models import model, options
from truehalf.verification.chain.compare import compare
from truehalf.verification.findings import Finding
from truehalf.verification.reaction import reactions
from truehalf.verification.runs import Run

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


def judged(together: str = "", is_arbitrary: bool = False, **outputs: Any) -> list[Finding]:
    """Findings on outputs, each (values of the reference by sample, of the candidate); one run for each sample."""
    count = len(next(iter(outputs.values()))[0])
    sides = [{name: pair[side] for name, pair in outputs.items()} for side in (0, 1)]
    rows = [[{name: np.asarray(side[name][i])[None] for name in side} for side in sides] for i in range(count)]
    runs = [Run([name], 1, *row, [name]) for name, row in zip(SAMPLES, rows, strict=False)]
    return reactions(runs, outputs, together.split(), is_arbitrary)


def named(found: list[Finding], state: str) -> list[str]:
    return [each.facts["output"] for each in found if each.state == state and each.decides]


def failures(reference: Any, candidate: Any) -> list[str]:
    return named(judged(y=(reference, candidate)), "failed")


def unknown(reference: Any, candidate: Any) -> list[str]:
    return named(judged(y=(reference, candidate)), "not verified")


def test_what_float16_swallows_is_not_verified() -> None:
    near, still = 100 + np.array([[0.0], [0.01]]), np.array([[100.0], [100.0]])
    assert (failures(near, still), unknown(near, still)) == ([], ["y"])
    far = 100 + np.array([[0.0], [0.5]])
    assert failures(far, still) == failures(far, near) == ["y"]
    assert judged(y=(far, (far + near) / 2)) == judged(y=(far, far))


@pytest.mark.parametrize("seed", range(3))
def test_what_moves_by_a_fraction_of_what_it_should_ignores_its_input(seed: int) -> None:
    """Traces of the input are no reaction; rounding, noise of its size and one value that stays are no fault."""
    rng = np.random.default_rng(seed)
    shape = (int(rng.integers(2, 9)), *rng.integers(2, 6, int(rng.integers(0, 3))).tolist())
    base = rng.normal(0, 4, shape[1:])
    moved = np.abs(base).max() * 0.02 * rng.normal(0, 1, shape)
    trace = (0.1, 0.01, 1e-5)[seed % 3] * np.roll(moved, seed % 2, axis=0)
    assert failures(base + moved, base + trace) == ["y"]
    rounded = (base + moved).astype(np.float16)
    for good in (rounded, base + moved + rng.normal(0, 0.02, shape), base + 0.5 * moved):
        assert not failures(base + moved, good) and not unknown(base + moved, good)


def test_values_that_float16_swallows_beside_one_that_moves() -> None:
    """1000 + 0.1 i is the same in FP16; only what moves by more than FP16's steps has to."""
    small = 1000 + 0.1 * np.arange(6)[:, None] * np.ones(50)
    reference = np.concatenate([small, np.arange(6)[:, None]], axis=1)
    assert not failures(reference, reference.astype(np.float16))


@pytest.mark.parametrize("values", [[3, 3], [True, True], ["a", "a"]])
def test_a_count_that_is_always_the_same_does_not_count_alone(values: Any) -> None:
    moving = [[1.0], [2.0]]
    assert named(judged(n=(values, values)), "not verified") == ["n"]
    assert named(judged(n=(values, values), y=(moving, moving)), "not verified") == []
    assert named(judged(n=(moving[:1] * 2,) * 2, y=(moving, moving)), "not verified") == ["n"], "floats count"


def test_what_random_weights_choose_is_not_verified_beside_what_reacts() -> None:
    moving, still = [np.zeros(2), np.ones(2)], [np.ones(2)] * 2
    both, boxes = (moving, moving), (moving, still)
    found = judged("logits boxes", True, logits=both, boxes=boxes)
    assert (named(found, "failed"), named(found, "not verified")) == ([], ["boxes"])
    assert named(judged("logits boxes", True, logits=boxes, boxes=boxes), "failed") == ["logits", "boxes"]
    assert named(judged("logits boxes", logits=both, boxes=boxes), "failed") == ["boxes"], "trained weights"


def test_nan_and_shapes() -> None:
    nan = [np.array([np.nan, 1.0])] * 2
    assert unknown(nan, nan) == ["y"]
    assert failures([np.ones(2), np.ones(3)], [np.ones(2)] * 2) == ["y"]
    mask = [np.array([-np.inf, 0]), np.array([0, -np.inf])]
    assert failures(mask, [np.zeros(2)] * 2) == ["y"]
