"""Files that a verification runs: what runs them, and how samples are brought to what they ask for."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest

from tests.messages import expect, raises
from tests.truehalf.verification import small_detector
from tests.truehalf.verification.two_models import OVERFLOW, PLAIN, SAME, X, model
from truehalf.config.verification import Evaluation, VerifyConfig
from truehalf.ir.model_forms import ModelFile
from truehalf.runtime.ort import Session
from truehalf.verification import open_file
from truehalf.verification.chain.compare import compare
from truehalf.verification.findings import FAILED, Finding, reasons_of
from truehalf.verification.open_file import FP32_CPU, OpenFile, evaluation_of, opened
from truehalf.verification.runs import Part


def part(x: np.ndarray) -> Part:
    return Part((), len(x), lambda: {"x": x})


def test_only_a_file_that_holds_fp16_is_emulated(tmp_path: Path) -> None:
    plain, half = (ModelFile(model(tmp_path / name, text)) for name, text in (("a", PLAIN), ("b", OVERFLOW)))
    assert evaluation_of(plain, "cuda") == FP32_CPU and evaluation_of(half, "emulated-fp16") == "emulated-fp16"
    feed = part(np.full((1, 3), 40, np.float32))
    assert np.isinf(opened(half, "emulated-fp16").run(feed)["y"]).all()
    assert np.isfinite(OpenFile(half, FP32_CPU).run(feed)["y"]).all()


@pytest.mark.parametrize("size", ["N", "1", "2", "3", "8"])
def test_a_file_is_fed_in_the_batch_that_it_is_fixed_to(size: str, tmp_path: Path) -> None:
    file = opened(ModelFile(model(tmp_path / "a.onnx", PLAIN.replace("N", size))), "emulated-fp16")
    assert np.array_equal(file.run(part(X[:3]))["y"], np.maximum(X[:3], 0))


def test_of_inputs_beyond_float16_the_largest_of_all_runs_is_known(tmp_path: Path) -> None:
    half = "(float16[N,3] x) => (float16[N,3] y) { y = Relu (x) }"
    file = opened(ModelFile(model(tmp_path / "a.onnx", half)), "emulated-fp16", runs=4)
    for value in (7e4, 9e4, 1, 8e4):
        file.run(part(np.full((1, 3), value, np.float32)))
    found = [*file.findings(), Finding("tensors", FAILED, "wrong")]
    expect(reasons_of(found)[0], None, "input 'x'", "|x|", "9e+04", 65504, "float16", "Inf")


def test_rows_of_a_fixed_batch_that_are_no_samples_are_not_cut_off(tmp_path: Path) -> None:
    """Of a group that was filled up, the first rows are those of its samples only where there is a row for each."""
    text = "(float[4,3] x) => (float[8,3] y) { z = Relu (x) y = Concat <axis = 0> (z, z) }"
    with raises("wrong-shape"):
        opened(ModelFile(model(tmp_path / "a.onnx", text)), "emulated-fp16").run(part(X[:3]))


def test_files_are_read_once_and_an_fp16_file_once_more_as_it_lies(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its types and ONNX Runtime are asked of the file on disk, without its external data.

    compare read its two files seven times, and a chain of four its files 39 times.
    """
    read: list[str] = []
    load = onnx.load

    def counted(path: Path, **options: Any) -> onnx.ModelProto:
        read.append(Path(path).parent.name)
        return load(path, **options)

    fp32, fp16 = model(tmp_path / "a" / "model.onnx", SAME), model(tmp_path / "b" / "model.onnx", OVERFLOW)
    final = small_detector.write(tmp_path / "final" / "model.onnx", small_detector.FP16)
    monkeypatch.setattr(onnx, "load", counted)
    report = compare(fp32, fp16, {"x": np.full((1, 3), 60000, np.float32)}, locate=True)
    assert report.verdict == "failed" and report.suspects and sorted(read) == ["a", "b", "b"]
    read.clear()
    assert small_detector.verified(tmp_path, final)["verdict"] == "passed"
    assert Counter(read) == {"final": 1 + 2, "slim": 2}, "trace is slim, and fp16 is final"


def test_a_backend_is_a_row_of_a_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What ran is said, nothing is emulated beside it, and it runs files without FP16, too, where two are compared."""
    ran: list[str] = []

    def other(file: ModelFile) -> Session:
        ran.append(file.path.name)
        return Session(file.runnable)

    monkeypatch.setitem(open_file.BACKENDS, "cuda", other)
    a, b = model(tmp_path / "a.onnx", PLAIN), model(tmp_path / "b.onnx", PLAIN)
    feed, options = {"x": np.ones((2, 3), np.float32)}, VerifyConfig(evaluation=Evaluation.cuda)
    report = compare(a, b, feed, options=options, locate=False)
    assert report.passed and report.evaluation == "cuda" and ran == ["b.onnx"]
    (found,) = [each for each in report.findings if each.check == "accumulation"]
    assert found.state == "verified" and "cuda" in found.reason


class _Backwards:
    """A session that gives its output, along the last axis, backwards; of bools none."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)

    def run(self, feeds: Any) -> Any:
        return {name: value[..., ::-1] * (value.dtype != bool) for name, value in self._session.run(feeds).items()}


@pytest.mark.parametrize(
    "made",
    [
        "v, y = MaxPool<kernel_shape = [2]>(m)",
        "y = QuantizeLinear(m, tenth, none)",
        "t = ReduceMax<axes = [2]>(m) y = Equal(m, t)",
    ],
)
def test_places_that_emulation_does_not_show_are_no_ties(
    made: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(open_file.BACKENDS, "cuda", lambda file: _Backwards(Session(file.runnable)))
    kind = {"v": "int64", "y": "int8", "t": "bool"}[made[0]]
    text = f"(float[1,3,N] x) => ({kind}[1,3,M] y) <float one = {{1}}, float tenth = {{0.1}}, int8 none = {{0}}> "
    text += f"{{ m = Add(x, one) {made} }}"
    a, b = model(tmp_path / "a.onnx", text), model(tmp_path / "b.onnx", text)
    options = VerifyConfig(evaluation=Evaluation.cuda)
    feed = {"x": np.random.default_rng(0).normal(0, 1, (1, 3, 8)).astype(np.float32)}
    assert compare(a, b, feed, options=options, locate=False).verdict == "failed"
