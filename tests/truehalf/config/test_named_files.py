"""Files and folders that a configuration names are looked for before anything runs."""

from pathlib import Path

import pytest

from tests.configurations import composed
from tests.conftest import ROOT
from tests.messages import expect
from truehalf.codes import codes_in
from truehalf.config.typed import ConfigErrors
from truehalf.config.validate import validate

NO_WEIGHTS = "model.checkpoint=null"
COCO = ("data=coco", "data.folder=pictures", "data.annotations=instances.json")


def errors_of(root: Path, *overrides: str) -> list[str]:
    try:
        validate(composed(NO_WEIGHTS, *overrides), root=root)
    except ConfigErrors as caught:
        return caught.errors
    return []


def told(errors: list[str]) -> list[tuple[str, ...]]:
    """The key of each error, and its code."""
    return [(error.split(":")[0], *codes_in(error)) for error in errors]


@pytest.mark.parametrize(
    ("overrides", "keys"),
    [
        (["data=images", "model.checkpoint=none.pt", "data.folder=none"], ["model.checkpoint", "data.folder"]),
        (["data=coco", "data.folder=none", "data.annotations=none.json"], ["data.folder", "data.annotations"]),
        (["data=npz", "data.file=none.npz"], ["data.file"]),
        (["data=digits", "data.folder=none", "data.file=none.npz"], []),  # which this source does not read
    ],
)
def test_what_is_not_there_is_named(overrides: list[str], keys: list[str], tmp_path: Path) -> None:
    errors = errors_of(tmp_path, *overrides)
    assert told(errors) == [(key, "file-missing") for key in keys]
    assert all(f"{tmp_path}/none" in error for error in errors)


def test_missing_files_are_named_beside_other_errors(tmp_path: Path) -> None:
    errors = errors_of(tmp_path, "data=images", "data.folder=none", "model.checkpoint=7", "verify.batch=0")
    expected = [("model.checkpoint", "wrong-type"), ("verify.batch", "out-of-range"), ("data.folder", "file-missing")]
    assert told(errors) == expected


def test_the_name_meant_is_found_beside_it(tmp_path: Path) -> None:
    for name in ("pictures", "Weights.pt", "other"):
        (tmp_path / name).mkdir()
    weights, folder = errors_of(tmp_path, "data=images", "model.checkpoint=weights.pt", "data.folder=picture")
    expect(weights, "file-missing", "did you mean Weights.pt?")
    expect(folder, "file-missing", "did you mean pictures?")
    (error,) = errors_of(tmp_path, "data=images", "data.folder=nowhere/pictures")
    assert "did you mean" not in error


def test_what_is_there_is_found_in_the_workspace_or_by_its_whole_path(tmp_path: Path) -> None:
    (tmp_path / "pictures").mkdir()
    for name in ("w.pt", "instances.json", "samples.npz"):
        (tmp_path / name).touch()
    assert errors_of(tmp_path, *COCO, "model.checkpoint=w.pt") == []
    assert errors_of(ROOT, "data=images", f"model.checkpoint={tmp_path}/w.pt", f"data.folder={tmp_path}/pictures") == []
    for place in ("samples.npz", "pictures"):
        assert errors_of(tmp_path, "data=npz", f"data.file={place}") == []


def test_a_folder_for_a_file_and_a_file_for_a_folder(tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "file").touch()
    (error,) = errors_of(tmp_path, "model.checkpoint=mine")
    assert told([error]) == [("model.checkpoint", "wrong-file")] and "model.options.id" not in error
    expect(error, None, f"{tmp_path}/mine")
    (tmp_path / "mine/config.json").touch()
    (error,) = errors_of(tmp_path, "model.checkpoint=mine")
    expect(error, "wrong-file", f"model=huggingface model.options.id={tmp_path}/mine")
    errors = errors_of(tmp_path, "data=coco", "data.folder=file", "data.annotations=mine")
    assert told(errors) == [("data.folder", "wrong-file"), ("data.annotations", "wrong-file")]
    for error, name in zip(errors, ("file", "mine"), strict=True):
        expect(error, None, f"{tmp_path}/{name}")


@pytest.mark.parametrize("name", ["n" * 300, "ä" * 200, f"{'n' * 300}/w.pt"])
def test_a_name_that_is_too_long_is_not_there(name: str, tmp_path: Path) -> None:
    assert told(errors_of(tmp_path, "data=npz", f"model.checkpoint={name}", f"data.file={name}")) == [
        ("model.checkpoint", "file-missing"),
        ("data.file", "file-missing"),
    ]
