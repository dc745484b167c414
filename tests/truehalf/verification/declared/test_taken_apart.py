"""A file taken apart puts out what its whole output holds, at any opset, and stays the file that it is."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import helper

from tests.corpus.pairs import numbers, replayed, unbatched
from tests.corpus.pairs.detections import scene
from tests.corpus.pairs.rows import FORMS, spec_of
from tests.messages import raises
from truehalf.emulation.sessions import EmulatedSession
from truehalf.io_spec.columns import ROWS_OF_IMAGE, apart, in_parts
from truehalf.io_spec.in_file import SPEC_KEY, spec_text
from truehalf.io_spec.spec import IoSpec
from truehalf.ir.model_forms import ModelFile
from truehalf.runtime.ort.session import Session
from truehalf.verification.declared.taken_apart import taken_apart

OLD = 9  # Slice has its ranges as attributes


def set_opset(model: onnx.ModelProto, opset: int) -> None:
    if opset < 13:
        (squeeze,) = (node for node in model.graph.node if node.op_type == "Squeeze")
        del squeeze.input[1]
        squeeze.attribute.append(helper.make_attribute("axes", [1]))
    model.opset_import[0].version = opset


def written(form: str, path: Path, opset: int = 17) -> np.ndarray:
    rows = FORMS[form][0](scene())
    model = replayed({"output0": np.ascontiguousarray(rows)})
    set_opset(model, opset)
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
    assert taken_apart(parts, spec) is parts and parts.model.meta == file.model.meta


@pytest.mark.parametrize("opset", [11, 17])
@pytest.mark.parametrize("form", unbatched.FORMS)
def test_rows_of_an_image_get_an_axis_of_images(form: str, opset: int, tmp_path: Path) -> None:
    model = unbatched.FORMS[form][0](scene())
    set_opset(model, opset)
    onnx.save(model, tmp_path / "model.onnx")
    file, spec = ModelFile(tmp_path / "model.onnx"), apart(IoSpec.from_json(unbatched.spec(form)))
    parts, counts = taken_apart(file, spec), []
    assert (file.fixed_batch, parts.fixed_batch) == (None, 1)
    for number in range(3):
        feeds = {"x": np.float32([[number]])}
        whole = Session(file.runnable).run(feeds)
        expected = in_parts(whole, spec)
        assert {*expected} == {each.name for each in spec.outputs if each.kind}
        for session in (Session(parts.runnable), EmulatedSession(parts.model)):
            found = session.run(feeds)
            assert [*found] == [*expected]
            for name, values in expected.items():
                assert values.shape[:2] == (1, ROWS_OF_IMAGE) and values.dtype == found[name].dtype == np.float32
                np.testing.assert_array_equal(found[name], values)
        counts.append(len(next(iter(whole.values()))))
        (scores,) = (expected[each.name] for each in spec.outputs if each.kind == "scores")
        assert np.count_nonzero(scores) == counts[-1]
    assert len({*counts}) > 1


def test_a_file_of_several_images_is_not_of_one(tmp_path: Path) -> None:
    model = unbatched.yolov7(scene())
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    onnx.save(model, tmp_path / "model.onnx")
    file = taken_apart(ModelFile(tmp_path / "model.onnx"), apart(IoSpec.from_json(unbatched.spec("yolov7"))))
    with raises("in-conflict", str(tmp_path / "model.onnx"), 2):
        _ = file.fixed_batch


def test_others_are_the_file(tmp_path: Path) -> None:
    written("rows", tmp_path / "model.onnx")
    file = ModelFile(tmp_path / "model.onnx")
    assert taken_apart(file, IoSpec()) is file
