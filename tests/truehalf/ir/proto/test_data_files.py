"""Models that are reached through links, as caches of downloads and people's folders keep them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.messages import raises
from tests.truehalf.linked_models import LAYOUTS, linked, stored
from truehalf import compare, convert
from truehalf.errors import StageError
from truehalf.ir.model_file import load_model
from truehalf.ir.model_forms import ModelFile


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_link_to_a_model_with_data_is_converted_and_compared(tmp_path: Path, layout: str) -> None:
    path = linked(tmp_path, layout)
    samples = {"x": np.ones((1, 4), np.float32)}
    convert(path, tmp_path / "out.onnx", samples=samples)
    assert compare(path, tmp_path / "out.onnx", samples=samples).verdict != "failed"
    assert load_model(path).graph.initializers["w"].const_value.numpy().tolist()[0] == [0, 1, 2, 3]


@pytest.mark.parametrize("layout", LAYOUTS)
def test_content_does_not_depend_on_the_link(tmp_path: Path, layout: str) -> None:
    path = linked(tmp_path, layout)
    file, plain = ModelFile(path), ModelFile(stored(tmp_path / "plain"))
    assert file.digest == plain.digest
    assert file.size_mb == plain.size_mb


def test_data_that_a_link_leads_to_elsewhere_are_refused(tmp_path: Path) -> None:
    path = linked(tmp_path, "hub")
    secret = tmp_path / "secret"
    (tmp_path / "there/22").rename(secret)
    (tmp_path / "here/model.onnx_data").unlink()
    (tmp_path / "here/model.onnx_data").symlink_to(secret)
    with raises("unsafe-data", "'../secret'", "'w'"):
        load_model(path)


@pytest.mark.parametrize("name", ["model.onnx", "22" * 15])
def test_a_folder_of_two_digits_opens_nothing_beside_it(tmp_path: Path, name: str) -> None:
    folder = stored(tmp_path / "ab").parent
    (folder / "model.onnx").rename(folder / name)
    (tmp_path / "secret").mkdir()
    (folder / "model.onnx_data").rename(tmp_path / "secret/id")
    (folder / "model.onnx_data").symlink_to("../secret/id")
    (folder / "m.onnx").symlink_to(name)
    with pytest.raises(StageError) as error:
        load_model(folder / "m.onnx")
    assert error.value.code in ("unsafe-data", "file-missing")


def test_missing_data_of_a_link_are_named(tmp_path: Path) -> None:
    path = linked(tmp_path, "alone")
    (tmp_path / "there/model.onnx_data").unlink()
    with raises("file-missing", "'model.onnx_data'", "'w'"):
        load_model(path)
