"""Files and folders that a configuration names are looked for before anything runs."""

from pathlib import Path
from typing import Any

import onnx
import onnx.parser
import pytest

from tests.conftest import ROOT
from tests.messages import expect
from truehalf.codes import codes_in
from truehalf.config.named_files import missing_files, missing_functions


def values(source: str = "digits", checkpoint: Any = None, **data: Any) -> dict[str, Any]:
    places = {"folder": None, "annotations": None, "file": None} | data
    return {"model": {"checkpoint": checkpoint}, "data": {"source": source} | places}


def told(errors: list[str]) -> list[tuple[str, ...]]:
    """The key of each error, and its code."""
    return [(error.split(":")[0], *codes_in(error)) for error in errors]


@pytest.mark.parametrize(
    ("given", "keys"),
    [
        (values("images", "none.pt", folder="none"), ["model.checkpoint", "data.folder"]),
        (values("coco", folder="none", annotations="none.json"), ["data.folder", "data.annotations"]),
        (values("npz", file="none.npz"), ["data.file"]),
        (values("digits", folder="none", file="none.npz"), []),  # which this source does not read
        (values("images", checkpoint=7, folder=["none"]), []),  # whose types are at fault
        ({"model": None}, []),
    ],
)
def test_what_is_not_there_is_named(given: dict[str, Any], keys: list[str], tmp_path: Path) -> None:
    errors = missing_files(given, tmp_path)
    assert told(errors) == [(key, "file-missing") for key in keys]
    assert all(f"{tmp_path}/none" in error for error in errors)


def test_the_name_meant_is_found_beside_it(tmp_path: Path) -> None:
    for name in ("pictures", "Weights.pt", "other"):
        (tmp_path / name).mkdir()
    errors = missing_files(values("images", "weights.pt", folder="picture"), tmp_path)
    assert ["did you mean Weights.pt?" in errors[0], "did you mean pictures?" in errors[1]] == [True, True]
    (error,) = missing_files(values("images", folder="nowhere/pictures"), tmp_path)
    assert "did you mean" not in error


def test_what_is_there_is_found_in_the_workspace_or_by_its_whole_path(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    for name in ("w.pt", "instances.json", "samples.npz"):
        (tmp_path / name).touch()
    assert missing_files(values("coco", "w.pt", folder="pictures", annotations="instances.json"), tmp_path) == []
    assert missing_files(values("images", str(tmp_path / "w.pt"), folder=str(tmp_path / "pictures")), ROOT) == []
    for place in ("samples.npz", "pictures"):
        assert missing_files(values("npz", file=place), tmp_path) == []


def of_onnx(folder: Path, content: bytes) -> list[str]:
    (folder / "m.onnx").write_bytes(content)
    given = values(checkpoint="m.onnx")
    given["model"]["source"] = "onnx"
    return missing_files(given, folder)


OTHERS = {
    "picture": b"\x89PNG\r\n",
    "pointer of git-lfs": b"version https://git-lfs.github.com/spec/v1\n",
    "checkpoint": b"PK\x03\x04",
    "page": b"<!DOCTYPE html>",
    "code": b"import torch",
    "nothing": b"",
}


@pytest.mark.parametrize("content", OTHERS.values(), ids=OTHERS)
def test_a_checkpoint_that_is_no_onnx_file(content: bytes, tmp_path: Path) -> None:
    (error,) = of_onnx(tmp_path, content)
    assert told([error]) == [("model.checkpoint", "file-unreadable")]
    assert missing_files(values(checkpoint="m.onnx"), tmp_path) == [], "which other sources read"


@pytest.mark.parametrize("seed", range(8))
def test_an_onnx_file_in_any_order_of_its_fields(seed: int, tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 8, opset_import: ["": 17]> g (float[1] x) => (float[1] y) { y = Abs(x) }'
    )
    model.producer_name, model.producer_version, model.domain, model.doc_string = "a", "1", "b", "c"
    model.model_version = 3
    onnx.helper.set_model_props(model, {"key": "value"})
    model.functions.append(onnx.FunctionProto(name="f", domain="d"))
    fields = [descriptor.name for descriptor, _ in model.ListFields()]
    first = onnx.ModelProto()
    kept = fields[seed % len(fields)]
    for name in fields:
        if name != kept:
            model.ClearField(name)
    first.CopyFrom(model)
    assert of_onnx(tmp_path, first.SerializeToString()) == []


def test_a_folder_for_a_file_and_a_file_for_a_folder(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "file").touch()
    (error,) = missing_files(values(checkpoint="mine"), tmp_path)
    assert told([error]) == [("model.checkpoint", "wrong-file")] and "model.options.id" not in error
    expect(error, None, f"{tmp_path}/mine")
    (tmp_path / "mine/config.json").touch()
    (error,) = missing_files(values(checkpoint="mine"), tmp_path)
    expect(error, "wrong-file", f"model=huggingface model.options.id={tmp_path}/mine")
    errors = missing_files(values("coco", folder="file", annotations="mine"), tmp_path)
    assert told(errors) == [("data.folder", "wrong-file"), ("data.annotations", "wrong-file")]
    for error, name in zip(errors, ("file", "mine"), strict=True):
        expect(error, None, f"{tmp_path}/{name}")


CODE = "import numpy as np\nfrom os.path import join as joined\nSIZE = LIMIT = 3\nclass Model: ...\ndef build(): ...\n"


@pytest.mark.parametrize(
    ("key", "name", "code"),
    [
        ("model.options.factory", "mine:build", None),
        ("model.options.factory", "mine:Model.make", None),
        ("model.options.prepare", "mine:joined", None),
        ("model.options.factory", "json:loads", None),  # of what is installed
        ("model.options.factory", "package.deep:build", None),
        ("model.options.factory", "mine", None),  # whose syntax another check names
        ("model.options.factory", "mien:build", "file-missing"),
        ("model.options.prepare", "mine:biuld", "function-fails"),
        ("precision.custom_rule", "none_of_mine.rules:rule", "file-missing"),
        ("verify.metrics", "mine:iou >= 0.9", "function-fails"),
        ("verify.metrics", "mine:LIMIT>=0.9", None),
        ("data.function", "package.deep:biuld", "function-fails"),
    ],
)
def test_functions_that_are_not_there_are_named_and_nothing_is_imported(
    key: str, name: str, code: str | None, tmp_path: Path
) -> None:
    (tmp_path / "mine.py").write_text(CODE)
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "deep.py").write_text("raise SystemExit  # if anything imports it\ndef build(): ...\n")
    section, _, rest = key.partition(".")
    if key == "data.function":
        (tmp_path / "package" / "deep.py").write_text("def build(): ...\n")
    options = {rest.removeprefix("options."): name}
    given: dict[str, Any] = {
        "model": {section: options} | {"options": options},
        "verify": {"metrics": [name]},
        "precision": {"custom_rule": name},
        "data": {"source": "function", "function": name},
    }
    only = {section: given[section]}
    assert told(missing_functions(only, tmp_path)) == ([] if code is None else [(key, code)])


@pytest.mark.parametrize("line", ["from os.path import *", "globals()['build'] = len", "if True:\n    build = len"])
def test_names_that_code_may_bind_as_it_runs_are_left_to_the_import(line: str, tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(f"{line}\n")
    given = {"model": {"options": {"factory": "mine:build"}}}
    assert not missing_functions(given, tmp_path)


@pytest.mark.parametrize("name", ["n" * 300, "ä" * 200, f"{'n' * 300}/w.pt"])
def test_a_name_that_is_too_long_is_not_there(name: str, tmp_path: Path) -> None:
    assert told(missing_files(values("npz", name, file=name), tmp_path)) == [
        ("model.checkpoint", "file-missing"),
        ("data.file", "file-missing"),
    ]
    module = f"{'n' * 300}:build"
    (error,) = missing_functions(values() | {"precision": {"custom_rule": module}}, tmp_path)
    assert told([error]) == [("precision.custom_rule", "file-missing")]
