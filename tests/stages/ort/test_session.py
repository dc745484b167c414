"""Sessions: what runs is recorded, what cannot run is said."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from stages.io import StageError
from stages.ort import session as module
from stages.ort.session import CPU, Session

TEXT = """<ir_version: 9, opset_import: ["" : 17]>
g (float[N,2] x) => (float[N,2] y, float[N,2] z) <float[2] w = {1.0, 2.0}> { y = Add(x, w)  z = Mul(x, w) }"""
X = np.ones((3, 2), np.float32)


def proto() -> onnx.ModelProto:
    return onnx.parser.parse_model(TEXT)


def test_file_bytes_and_model_give_the_same(tmp_path: Path) -> None:
    onnx.save(proto(), tmp_path / "model.onnx")
    for model in (tmp_path / "model.onnx", proto().SerializeToString(), ir.from_proto(proto())):
        session = Session(model)
        assert (session.provider, session.input_names, session.output_names) == (CPU, ["x"], ["y", "z"])
        result = session.run({"x": X})
        assert list(result) == ["y", "z"]
        np.testing.assert_array_equal(result["y"], [[2, 3]] * 3)
        assert list(session.run({"x": X}, ["z"])) == ["z"]


def test_a_large_model_in_memory_goes_through_a_file(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(module, "_EXTERNAL_DATA_FROM", 1)
    monkeypatch.setattr(module.tempfile, "tempdir", str(tmp_path))
    np.testing.assert_array_equal(Session(ir.from_proto(proto())).run({"x": X})["z"], [[1, 2]] * 3)
    assert list(tmp_path.iterdir()) == []


def test_a_missing_provider_is_never_replaced() -> None:
    with pytest.raises(StageError, match=r"has no NoSuchProvider here; it has .*CPUExecutionProvider"):
        Session(proto().SerializeToString(), provider="NoSuchProvider")


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "broken.onnx"
    path.write_bytes(proto().SerializeToString()[:-40])
    with pytest.raises(StageError, match=r"ONNX Runtime cannot load .*broken\.onnx"):
        Session(path)


def test_a_failing_run_says_why() -> None:
    session = Session(proto().SerializeToString())
    with pytest.raises(StageError, match=r"cannot run the model: .*"):
        session.run({"x": np.ones((3, 5), np.float32)})
