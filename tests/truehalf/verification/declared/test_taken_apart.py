"""A file taken apart puts out what its whole output holds, at any opset, and stays the file that it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.corpus.pairs import numbers, replayed
from tests.corpus.pairs.detections import scene
from tests.corpus.pairs.rows import FORMS, spec_of
from truehalf.emulation.sessions import EmulatedSession
from truehalf.io_spec.columns import apart, in_parts
from truehalf.io_spec.in_file import SPEC_KEY, spec_text
from truehalf.io_spec.spec import IoSpec
from truehalf.ir.model_forms import ModelFile
from truehalf.runtime.ort.session import Session
from truehalf.verification.declared.taken_apart import taken_apart

OLD = 9  # Slice has its ranges as attributes


def written(form: str, path: Path, opset: int = 17) -> np.ndarray:
    rows = FORMS[form][0](scene())
    model = replayed({"output0": np.ascontiguousarray(rows)})
    if opset < 13:
        (squeeze,) = (node for node in model.graph.node if node.op_type == "Squeeze")
        del squeeze.input[1]
        squeeze.attribute.append(helper.make_attribute("axes", [1]))
    model.opset_import[0].version = opset
    model.metadata_props.add(key=SPEC_KEY, value=spec_text(IoSpec.from_json(spec_of(form))))
    onnx.save(model, path)
    return rows


@pytest.mark.parametrize("opset", [OLD, 17])
@pytest.mark.parametrize("form", FORMS)
def test_it_puts_out_the_same(form: str, opset: int, tmp_path: Path) -> None:
    rows, spec = written(form, tmp_path / "model.onnx", opset), apart(IoSpec.from_json(spec_of(form)))
    file = ModelFile(tmp_path / "model.onnx")
    parts = taken_apart(file, spec)
    feeds, expected = {"x": numbers(len(rows))}, in_parts({"output0": rows}, spec)
    for session in (Session(parts.runnable), EmulatedSession(parts.model)):
        found = session.run(feeds)
        assert [*found] == [*expected]
        for name, values in expected.items():
            np.testing.assert_array_equal(found[name], values)
    assert (parts.path, parts.digest, parts.fixed_batch) == (file.path, file.digest, file.fixed_batch)
    assert [value.name for value in file.model.graph.outputs] == ["output0"], "the file's own model is as it was"
    assert taken_apart(parts, spec) is parts


def test_others_are_the_file(tmp_path: Path) -> None:
    written("rows", tmp_path / "model.onnx")
    file = ModelFile(tmp_path / "model.onnx")
    assert taken_apart(file, IoSpec()) is file
