"""A file whose outputs are declared to hold detections runs as any, and puts out their parts."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.corpus.pairs import numbers, replayed, unbatched
from tests.corpus.pairs.detections import scene
from tests.corpus.pairs.rows import FORMS, spec_of
from tests.messages import raises
from truehalf.io_spec.columns import ROWS_OF_IMAGE, apart, in_parts
from truehalf.io_spec.decode import decode
from truehalf.io_spec.spec import IoSpec
from truehalf.ir.model_forms import ModelFile
from truehalf.runtime.ort import Session
from truehalf.verification.declared_file import declared_file
from truehalf.verification.open_file import FP32_CPU, OpenFile
from truehalf.verification.runs import Part


@pytest.mark.parametrize("form", FORMS)
def test_outputs_of_a_run_are_taken_apart(form: str, tmp_path: Path) -> None:
    rows, spec = FORMS[form][0](scene()), IoSpec.from_json(spec_of(form))
    onnx.save(replayed({"output0": np.ascontiguousarray(rows)}), tmp_path / "model.onnx")
    file = ModelFile(tmp_path / "model.onnx")
    declared = declared_file(file, apart(spec))
    found = OpenFile(declared, FP32_CPU).run(Part({"x": numbers(len(rows))}, len(rows)))
    expected = in_parts({"output0": rows}, apart(spec))
    assert [*found] == [*expected]
    for name, values in expected.items():
        np.testing.assert_array_equal(found[name], values)
    assert (declared.path, declared.digest, declared.fixed_batch) == (file.path, file.digest, file.fixed_batch)
    assert declared_file(declared, apart(spec)) is declared
    whole, parts = decode({"output0": rows}, spec), decode(found, apart(spec))
    assert all(
        np.array_equal(a.boxes, b.boxes) and np.array_equal(a.scores, b.scores)
        for a, b in zip(whole, parts, strict=True)
    )


@pytest.mark.parametrize("form", unbatched.FORMS)
def test_rows_of_an_image_get_an_axis_of_images(form: str, tmp_path: Path) -> None:
    onnx.save(unbatched.FORMS[form][0](scene()), tmp_path / "model.onnx")
    file, spec = ModelFile(tmp_path / "model.onnx"), IoSpec.from_json(unbatched.spec(form))
    declared, counts = declared_file(file, apart(spec)), []
    assert (file.fixed_batch, declared.fixed_batch) == (None, 1)
    opened = OpenFile(declared, FP32_CPU)
    for number in range(3):
        feed = {"x": np.float32([[number]])}
        whole, found = Session(file.runnable).run(feed), opened.run(Part(feed, 1))
        assert {*found} == {each.name for each in apart(spec).outputs if each.kind}
        assert all(values.shape[:2] == (1, ROWS_OF_IMAGE) and values.dtype == np.float32 for values in found.values())
        (detections,) = decode(whole, spec)
        counts.append(len(next(iter(whole.values()))))
        assert len(detections.scores) == counts[-1] and detections.scores.all(), "no padding"
    assert len({*counts}) > 1
    three = opened.run(Part({"x": np.float32([[0], [1], [2]])}, 3))
    assert all(len(values) == 3 for values in three.values())


def test_a_file_of_several_images_is_not_of_one(tmp_path: Path) -> None:
    model = unbatched.yolov7(scene())
    model.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 2
    onnx.save(model, tmp_path / "model.onnx")
    file = declared_file(ModelFile(tmp_path / "model.onnx"), apart(IoSpec.from_json(unbatched.spec("yolov7"))))
    with raises("in-conflict", str(tmp_path / "model.onnx"), 2):
        _ = file.fixed_batch


def test_others_are_the_file(tmp_path: Path) -> None:
    file = ModelFile(tmp_path / "model.onnx")
    assert declared_file(file, IoSpec()) is file
