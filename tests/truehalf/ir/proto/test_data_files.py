"""Models that are reached through links, as caches of downloads and people's folders keep them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import pytest

from tests.messages import raises
from truehalf import compare, convert
from truehalf.errors import StageError
from truehalf.ir.model_file import load_model
from truehalf.ir.model_forms import ModelFile

GRAPH = """<ir_version: 8, opset_import: ["": 17]>
g (float[1,4] x) => (float[1,4] y) { y = MatMul (x, w) }"""


def stored(folder: Path) -> Path:
    folder.mkdir()
    model = onnx.parser.parse_model(GRAPH)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.arange(16, dtype=np.float32).reshape(4, 4), "w"))
    onnx.save(model, folder / "model.onnx", save_as_external_data=True, location="model.onnx_data", size_threshold=0)
    return folder / "model.onnx"


def linked(tmp_path: Path, layout: str) -> Path:
    """A model with a file of data: named by digests, beside each other (Hugging Face's hub) or in folders of two digits
    (DVC); or a link in another folder.
    """
    path = stored(tmp_path / "there")
    (tmp_path / "here").mkdir()
    if layout != "alone":
        for name, digest in (("model.onnx", "11"), ("model.onnx_data", "22")):
            digest = digest if layout == "hub" else f"{digest}/{digest * 15}"
            (tmp_path / "there" / digest).parent.mkdir(exist_ok=True)
            (tmp_path / "there" / name).rename(tmp_path / "there" / digest)
            (tmp_path / "here" / name).symlink_to(Path("../there", digest))
        return tmp_path / "here/model.onnx"
    (tmp_path / "here/other.onnx").symlink_to(path)
    return tmp_path / "here/other.onnx"


@pytest.mark.parametrize("layout", ["hub", "dvc", "alone"])
def test_a_link_to_a_model_with_data_is_converted_and_compared(tmp_path: Path, layout: str) -> None:
    path = linked(tmp_path, layout)
    samples = {"x": np.ones((1, 4), np.float32)}
    convert(path, tmp_path / "out.onnx", samples=samples)
    assert compare(path, tmp_path / "out.onnx", samples=samples).verdict != "failed"
    assert load_model(path).graph.initializers["w"].const_value.numpy().tolist()[0] == [0, 1, 2, 3]


@pytest.mark.parametrize("layout", ["hub", "dvc", "alone"])
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
