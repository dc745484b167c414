"""Models that draw random numbers: no two runs are alike, so what differs fails no file."""

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from truehalf.codes import codes_in
from truehalf.verification.chain.compare import compare
from truehalf.verification.report import Report

HEAD = '<ir_version: 8, opset_import: ["" : 17, "f" : 1]>'
# What draws: n of s, [N,4] both.
DRAWS = {
    "normal like": "n = RandomNormalLike <scale: float = 2.0> (s)",
    "uniform": "n = RandomUniform <high: float = 9.0, shape: ints = [3, 4]> ()",
    "in a branch": """t = Constant <value: tensor = bool {1}> ()
        n = If (t) <then_branch = a () => (float[N,4] u) { u = RandomNormalLike (s) },
                    else_branch = b () => (float[N,4] v) { v = Identity (s) }>""",
    "in a function": "n = f.noise (s)",
}
NOISE = '<domain: "f", opset_import: ["" : 17]> noise (x) => (y) { y = RandomNormalLike (x) }'


def saved(path: Path, draws: str, scale: float = 1.0, more: str = "") -> Path:
    """A file; ONNX Runtime draws by a node's place, so that of another name than a.onnx has one node more."""
    first, last = "" if path.stem == "a" else "o = Identity (x)", more or "y = Add (s, m)"
    text = f"""{HEAD} g (float[N,4] x) => (float[N,4] y) <float k = {{{scale}}}>
        {{ {first} s = Mul (x, x) {draws} m = Mul (n, k) {last} }}"""
    model = onnx.parser.parse_model(text)
    if "f.noise" in draws:
        model.functions.append(onnx.parser.parse_function(NOISE))
    onnx.save(model, path)
    return path


def compared(folder: Path, reference: Path, candidate: Path) -> Report:
    x = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
    return compare(reference, candidate, {"x": x}, locate=True)


@pytest.mark.parametrize("draws", DRAWS.values(), ids=DRAWS)
def test_they_are_not_verified_and_no_node_is_blamed(draws: str, tmp_path: Path) -> None:
    report = compared(tmp_path, saved(tmp_path / "a.onnx", draws), saved(tmp_path / "b.onnx", draws))
    assert report.verdict == "not verified" and report.place is None
    assert codes_in(report.reasons[0]) == ["not-comparable"]


@pytest.mark.parametrize("draws", ["normal like", "uniform"])
def test_with_a_seed_they_are_compared_as_others_are(draws: str, tmp_path: Path) -> None:
    seeded = DRAWS[draws].replace("<", "<seed: float = 5.0, ", 1)
    same = compared(tmp_path, saved(tmp_path / "a.onnx", seeded), saved(tmp_path / "b.onnx", seeded))
    assert "not-comparable" not in codes_in("\n".join(same.reasons)) and same.verdict != "failed"
    other = saved(tmp_path / "c.onnx", seeded, scale=3.0)
    assert compared(tmp_path, tmp_path / "a.onnx", other).verdict == "failed"


def test_a_candidate_that_alone_draws_is_said_so_and_one_that_is_not_finite_fails(tmp_path: Path) -> None:
    reference = saved(tmp_path / "a.onnx", "n = Identity (s)")
    drawing = saved(tmp_path / "b.onnx", DRAWS["normal like"])
    assert codes_in(compared(tmp_path, reference, drawing).reasons[0]) == ["not-comparable"]
    broken = saved(tmp_path / "c.onnx", DRAWS["normal like"], more="z = Sub (m, m) y = Div (s, z)")
    assert compared(tmp_path, reference, broken).verdict == "failed"


@pytest.mark.parametrize("draws", ["normal like", "in a branch", "in a function"])
def test_what_draws_for_no_output_excuses_no_wrong_file(draws: str, tmp_path: Path) -> None:
    wrong = saved(tmp_path / "b.onnx", DRAWS[draws], more="t2 = Add (s, s) y = Add (t2, s)")
    right = saved(tmp_path / "a.onnx", DRAWS[draws], more="y = Identity (s)")
    assert compared(tmp_path, right, wrong).verdict == "failed"
