"""What nothing here runs must be the same in both files: else no file passes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from truehalf import Precision, compare, convert
from truehalf.codes import codes_in
from truehalf.errors import StageError

HEAD = """<ir_version: 8, opset_import: ["": 17]> g (float[N, 4] x) => (float[N, 4] y, float[N, 4] z)
    <float[4, 4] w = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7},
     float[4, 4] v = {1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3, 4, 5, 6, 7}, float k = {1000.0}, float[N, 4] b> """
TAIL = "b = A_TRT<keep = 3>(a, v)  y = Mul(b, k)  z = Relu(b)"
X = {"x": np.random.default_rng(0).standard_normal((6, 4)).astype(np.float32)}


def saved(path: Path, tail: str = TAIL, head: str = HEAD) -> Path:
    onnx.save(onnx.parser.parse_model(f"{head} {{ a = MatMul(x, w)  {tail} }}"), path)
    return path


@pytest.mark.parametrize(
    ("tail", "head"),
    [
        (TAIL.replace("3", "99"), HEAD),
        (TAIL.replace("A_TRT", "B_TRT"), HEAD),
        (TAIL.replace("Relu", "Abs"), HEAD),
        (TAIL.replace("(b, k)", "(b, b)"), HEAD),
        (TAIL.replace("(a, v)", "(v, a)"), HEAD),
        (TAIL, HEAD.replace("1000.0", "10.0")),
        (TAIL, HEAD.replace("v = {1,", "v = {2,")),
        ("y = Mul(a, k)  z = Relu(a)", HEAD),
    ],
    ids=["attribute", "plugin", "operator behind", "wiring", "order", "weight behind", "weight", "no plugin"],
)
def test_another_tail_does_not_pass(tmp_path: Path, tail: str, head: str) -> None:
    reference, candidate = saved(tmp_path / "m.onnx"), saved(tmp_path / "other.onnx", tail, head)
    try:
        report = compare(reference, candidate, X, locate=False)
    except StageError as error:
        assert error.code == "not-comparable"
        return
    assert report.verdict == "not verified" and "plugin-not-run" in codes_in(" ".join(report.reasons))


@pytest.mark.parametrize("change", [("float[N, 4] z)", "int64[N, 4] z)"), (", float[N, 4] z)", ")")])
def test_other_outputs_are_not_comparable(tmp_path: Path, change: tuple[str, str]) -> None:
    other = saved(tmp_path / "other.onnx", head=HEAD.replace(*change))
    with pytest.raises(StageError) as error:
        compare(saved(tmp_path / "m.onnx"), other, X)
    assert error.value.code == "not-comparable"


@pytest.mark.parametrize("samples", [X, None], ids=["with samples", "without"])
def test_a_tail_in_float16_does_not_pass(tmp_path: Path, samples: dict[str, np.ndarray] | None) -> None:
    source, out = saved(tmp_path / "m.onnx"), tmp_path / "out.onnx"
    convert(source, out, samples=samples, precision=Precision(placement="eager"))
    assert compare(source, source, X, locate=False).verdict == "passed"
    expected = "passed" if samples else "not verified"
    assert compare(source, out, X, locate=False).verdict == expected
