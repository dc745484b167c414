"""JSON files, folders that replace others, and outputs: regular files alone, whole or not at all, none an input."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import stat
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from tests.messages import raises
from truehalf.files import (
    check_outputs,
    is_of_file,
    read_json,
    read_yaml,
    swap_in,
    write_json,
    write_text,
    written_whole,
)


def _link_to_a_folder(path: Path) -> None:
    path.with_name("target").mkdir()
    path.symlink_to("target")


REFUSED: Mapping[str, Callable[[Path], object]] = {
    "folder": Path.mkdir,
    "fifo": os.mkfifo,
    "link to a folder": _link_to_a_folder,
}


def made(folder: Path, kind: str) -> tuple[Path, Callable[[], object]]:
    """A place of a kind, and a function for what it is, which must stay as it was."""
    place = folder / "place"
    REFUSED[kind](place)

    def facts() -> object:
        own = place.lstat()
        return stat.S_IFMT(own.st_mode), own.st_ino, sorted(path.name for path in folder.iterdir())

    return place, facts


def test_swap_in_replaces_a_folder(tmp_path: Path) -> None:
    for name in ("new", "place"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "file").write_text(name)
    swap_in(tmp_path / "new", tmp_path / "place")
    assert (tmp_path / "place/file").read_text() == "new"
    assert [path.name for path in tmp_path.iterdir()] == ["place"]


def test_json_keeps_non_finite_numbers_readable(tmp_path: Path) -> None:
    write_json(tmp_path / "x.json", {"a": float("nan"), "b": [float("inf"), 1.0]})
    assert json.loads((tmp_path / "x.json").read_text()) == {"a": "nan", "b": ["inf", 1.0]}


@pytest.mark.parametrize("read", [read_json, read_yaml])
def test_what_cannot_be_read_is_an_error_of_the_user(tmp_path: Path, read: Callable[[Path], object]) -> None:
    (tmp_path / "bytes").write_bytes(b"\xff\xfe")
    (tmp_path / "broken").write_text("[{")
    for name, code in (("absent", "file-missing"), ("bytes", "file-unreadable"), ("broken", "file-unreadable")):
        with raises(code, str(tmp_path / name)) as error:
            read(tmp_path / name)
    assert "line 1" in str(error.value)


def test_a_folder_is_no_yaml(tmp_path: Path) -> None:
    with raises("file-unreadable", str(tmp_path)):
        read_yaml(tmp_path)


# --- outputs ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_regular_file_is_refused_and_stays(tmp_path: Path, kind: str) -> None:
    place, facts = made(tmp_path, kind)
    before = facts()
    with pytest.raises(OSError):
        write_text(place, "new")
    with raises("file-unwritable", "--out", place):
        check_outputs({"--out": place}, {})
    with pytest.raises(OSError), written_whole(tmp_path / "pla") as building:
        building.write_text("new")
        building.with_name("place").write_text("weights")
    assert facts() == before


@pytest.mark.parametrize("place", ["-", "file/out.json", f"{'n' * 300}.json"])
def test_a_place_that_cannot_be_written_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file").touch()
    with raises("file-unwritable", "--out"):
        check_outputs({"--out": place}, {})
    check_outputs({"--out": Path("new/deep/out.json")}, {})
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


@pytest.mark.parametrize("there", [True, False])
def test_a_link_to_a_file_is_followed(tmp_path: Path, there: bool) -> None:
    (tmp_path / "elsewhere").mkdir()
    target = tmp_path / "elsewhere" / "file.json"
    if there:
        target.write_text("old")
    (tmp_path / "first").symlink_to(target)
    (tmp_path / "link").symlink_to("first")
    write_text(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink() and not target.is_symlink() and target.read_text() == "new"
    assert [file.name for file in target.parent.iterdir()] == ["file.json"]


def test_a_link_into_a_cache_is_replaced_and_the_cache_stays(tmp_path: Path) -> None:
    (tmp_path / "cached").write_text("kept")
    (tmp_path / "cached").chmod(0o444)
    (tmp_path / "out").symlink_to("cached")
    write_text(tmp_path / "out", "new")
    assert (tmp_path / "cached").read_text() == "kept"
    assert (tmp_path / "out").read_text() == "new" and not (tmp_path / "out").is_symlink()


def test_other_hard_links_keep_the_old_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    write_text(tmp_path / "a", "new")
    assert ((tmp_path / "a").read_text(), (tmp_path / "b").read_text()) == ("new", "old")


def test_a_file_appears_with_those_beside_it_and_the_rights_of_any_file(tmp_path: Path) -> None:
    (tmp_path / "b").write_text("")
    with written_whole(tmp_path / "a") as building:
        building.write_text("new")
        building.with_name("a.data").write_text("weights")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "a.data", "b"]


@pytest.mark.parametrize("mode", [0o600, 0o664, 0o755, 0o444])
def test_rights_stay(tmp_path: Path, mode: int) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "a").chmod(mode)
    write_text(tmp_path / "a", "new")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == mode and (tmp_path / "a").read_text() == "new"


@pytest.mark.parametrize("error", [KeyboardInterrupt, OSError, MemoryError])
def test_whatever_ends_a_writer_leaves_the_old_file(tmp_path: Path, error: type[BaseException]) -> None:
    (tmp_path / "a").write_text("old")
    with pytest.raises(error), written_whole(tmp_path / "a") as building:
        building.write_text("half")
        raise error
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_a_full_disk_leaves_the_old_file(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, before[1]))
    try:
        with pytest.raises(OSError):
            write_text(tmp_path / "a", "n" * 100_000)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)
    assert [path.read_text() for path in tmp_path.iterdir()] == ["old"]


def test_two_writers_of_one_file_leave_the_content_of_one(tmp_path: Path) -> None:
    with written_whole(tmp_path / "a") as first:
        first.write_text("first")
        write_text(tmp_path / "a", "second")
        assert (tmp_path / "a").read_text() == "second"
    assert (tmp_path / "a").read_text() == "first" and [path.name for path in tmp_path.iterdir()] == ["a"]


def _linked(path: Path, link: Callable[[Path, Path], None]) -> Path:
    other = Path(f"linked{path.suffix}").absolute()
    link(path, other)
    return other


WAYS: Mapping[str, Callable[[Path], Path]] = {
    "itself": lambda path: path,
    "a detour": lambda path: path.parent / ".." / path.parent.name / path.name,
    "from here": lambda path: Path(os.path.relpath(path)),
    "a link": lambda path: _linked(path, os.symlink),
    "a hard link": lambda path: _linked(path, os.link),
    "a linked folder": lambda path: _linked(path.parent, os.symlink) / path.name,
}


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("way", WAYS)
def test_two_names_of_one_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, way: str, there: bool) -> None:
    if way == "a hard link" and not there:
        return
    (tmp_path / "a").mkdir()
    monkeypatch.chdir(tmp_path)
    first, other = tmp_path / "a" / "out", tmp_path / "a" / "other"
    if there:
        first.write_text("there")
        other.write_text("there")
    second = WAYS[way](first)
    for outputs, inputs in (({"first": first, "second": second}, {}), ({"second": second}, {"first": first})):
        with raises("would-overwrite", "first", "second"):
            check_outputs(outputs, inputs)
    check_outputs({"first": first, "other": other}, {"input": tmp_path / "out"})


def test_no_output_is_an_input(tmp_path: Path) -> None:
    for name in ("model.onnx", "w.bin"):
        (tmp_path / name).touch()
    for place in ("model.onnx", "w.bin"):
        with raises("would-overwrite", "-o", place):
            inputs = {"model.onnx": tmp_path / "model.onnx", "--samples": tmp_path}
            check_outputs({"-o": tmp_path / place}, inputs, [tmp_path / "w.bin"])
    with raises("would-overwrite", "--json", "-o"):
        check_outputs({"-o": tmp_path / "new", "--json": tmp_path / "new"}, {})
    with raises("would-overwrite", "weights beside -o", "ranges"):
        check_outputs({"-o": tmp_path / "m.onnx"}, {"ranges": str(tmp_path / "m.onnx.data")})


def test_only_an_error_of_a_file_is_called_one() -> None:
    of_files = (FileNotFoundError(errno.ENOENT, "", "x"), OSError(errno.ENOSPC, ""))
    assert all(map(is_of_file, of_files))
    assert not any(map(is_of_file, (ConnectionResetError(errno.ECONNRESET, ""), OSError(errno.ENOMEM, ""))))
