"""Files and folders that a configuration names are looked for before anything runs."""

from pathlib import Path
from typing import Any

import pytest

from tests.conftest import ROOT
from tests.messages import expect
from truehalf.codes import codes_in
from truehalf.config.named_files import missing_files


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


@pytest.mark.parametrize("name", ["n" * 300, "ä" * 200, f"{'n' * 300}/w.pt"])
def test_a_name_that_is_too_long_is_not_there(name: str, tmp_path: Path) -> None:
    assert told(missing_files(values("npz", name, file=name), tmp_path)) == [
        ("model.checkpoint", "file-missing"),
        ("data.file", "file-missing"),
    ]
