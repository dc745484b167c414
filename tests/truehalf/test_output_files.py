"""Outputs are regular files alone, whole or not at all, and no two of one name.

All nodes here are made in the test's own folder: an output must never be a path under /dev.
"""

from __future__ import annotations

import os
import random
import resource
import signal
import socket
import stat
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import IO

import pytest

from truehalf.output_files import NoPlace, same_place, write_text, written_whole


def _device(path: Path, kind: int) -> None:
    try:
        os.mknod(path, kind | 0o600, os.makedev(1, 3))
    except PermissionError:
        pytest.skip("only root makes devices")


def _socket(path: Path) -> None:
    before = Path.cwd()
    os.chdir(path.parent)  # names of sockets are short
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(before)


def _protected_link(path: Path) -> None:
    target = path.with_name("protected")
    target.write_text("kept")
    target.chmod(0o444)
    path.symlink_to(target)


def _link_to(make: Callable[[Path], object]) -> Callable[[Path], None]:
    def linked(path: Path) -> None:
        make(path.with_name("target"))
        path.symlink_to("target")

    return linked


REFUSED: dict[str, Callable[[Path], object]] = {
    "fifo": os.mkfifo,
    "folder": Path.mkdir,
    "socket": _socket,
    "character device": lambda path: _device(path, stat.S_IFCHR),
    "block device": lambda path: _device(path, stat.S_IFBLK),
    "link to a fifo": _link_to(os.mkfifo),
    "link to a folder": _link_to(Path.mkdir),
    "link to a socket": _link_to(_socket),
    "link to a device": _link_to(lambda path: _device(path, stat.S_IFCHR)),
    "loop of links": lambda path: path.symlink_to(path.name),
    "link into a cache": _protected_link,
    "link to an open file without a name": lambda path: _nameless(path),
}
_OPEN: list[IO[str]] = []


def _nameless(path: Path) -> None:
    opened = path.with_name("deleted").open("w+")
    _OPEN.append(opened)
    path.with_name("deleted").unlink()
    path.symlink_to(f"/proc/self/fd/{opened.fileno()}")


@pytest.fixture(autouse=True)
def _closed() -> Iterator[None]:
    yield
    while _OPEN:
        _OPEN.pop().close()


def made(folder: Path, kind: str) -> tuple[Path, Callable[[], object]]:
    """A place of a kind, and a function for what it is, which must stay as it was."""
    place = folder / "place"
    REFUSED[kind](place)

    def facts() -> object:
        own, link = place.lstat(), place.is_symlink() and place.readlink()
        return stat.S_IFMT(own.st_mode), own.st_ino, link, own.st_nlink, sorted(os.listdir(folder))  # noqa: PTH208

    return place, facts


@pytest.mark.parametrize("kind", REFUSED)
def test_what_is_no_regular_file_is_refused_and_stays(tmp_path: Path, kind: str) -> None:
    place, facts = made(tmp_path, kind)
    before = facts()
    with pytest.raises(OSError):
        write_text(place, "new")
    assert facts() == before


@pytest.mark.parametrize("kind", REFUSED)
def test_what_takes_the_place_meanwhile_is_refused_too(tmp_path: Path, kind: str) -> None:
    with pytest.raises(OSError), written_whole(tmp_path / "place") as building:
        building.write_text("new")
        _, facts = made(tmp_path, kind)
        before = facts()
    now = facts()
    assert now[:4] == before[:4] and "new" not in {p.read_text() for p in tmp_path.iterdir() if p.is_file()}  # type: ignore[index]


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize("links", [1, 3])
def test_a_link_to_a_file_is_followed(tmp_path: Path, there: bool, links: int) -> None:
    (tmp_path / "elsewhere").mkdir()
    target = tmp_path / "elsewhere" / "file.json"
    if there:
        target.write_text("old")
    link = target
    for i in range(links):
        (tmp_path / f"link{i}").symlink_to(link)
        link = tmp_path / f"link{i}"
    write_text(link, "new")
    assert link.is_symlink() and not target.is_symlink() and target.read_text() == "new"
    assert [file.name for file in target.parent.iterdir()] == ["file.json"]


def test_a_file_appears_whole_or_not_at_all_with_the_rights_of_any_file(tmp_path: Path) -> None:
    with pytest.raises(RuntimeError), written_whole(tmp_path / "deep" / "a") as building:
        building.write_text("half")
        raise RuntimeError
    assert not any(path.is_file() for path in tmp_path.rglob("*"))
    (tmp_path / "b").write_text("")
    with written_whole(tmp_path / "a") as building:
        building.write_text("new")
        building.with_name("a.data").write_text("weights")
    assert (tmp_path / "a").stat().st_mode == (tmp_path / "b").stat().st_mode
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "a.data", "b", "deep"]


def test_a_file_beside_is_checked_as_well(tmp_path: Path) -> None:
    (tmp_path / "other").write_text("kept")
    for make in (lambda path: path.symlink_to("other"), os.mkfifo, Path.mkdir):
        make(tmp_path / "a.data")
        with pytest.raises(NoPlace), written_whole(tmp_path / "a") as building:
            building.write_text("new")
            building.with_name("a.data").write_text("weights")
        assert not (tmp_path / "a").exists() and (tmp_path / "other").read_text() == "kept"
        path = tmp_path / "a.data"
        path.rmdir() if path.is_dir() else path.unlink()


def test_files_of_the_users_own_that_are_called_partial_stay(tmp_path: Path) -> None:
    for name in ("a.partial", ".b.partial"):
        (tmp_path / name).write_text("kept")
    for name in ("a", "b"):
        write_text(tmp_path / name, "new")
    assert {path.read_text() for path in tmp_path.glob("*.partial")} == {"kept"}


# --- one name ---------------------------------------------------------------------------------------------------------


def spelt(path: Path, folder: Path, draw: random.Random) -> Path:
    """Another way to write a path: a detour, links to its folder or to itself, a hard link, from the current folder."""
    match draw.choice(["detour", "folder", "link", "hard", "relative", "twice"]):
        case "detour":
            return folder / ".." / os.path.relpath(path, folder.parent)
        case "folder":
            link = folder / f"f{draw.randrange(10**9)}"
            link.symlink_to(path.parent.absolute())
            return link / path.name
        case "link":
            link = folder / f"l{draw.randrange(10**9)}"
            link.symlink_to(path.absolute())
            return link
        case "hard" if path.exists():
            link = folder / f"h{draw.randrange(10**9)}"
            os.link(path, link)
            return link
        case "relative":
            return Path(os.path.relpath(path))
    return Path(f"{path.parent}//{path.name}")


@pytest.mark.parametrize("seed", range(24))
def test_two_names_of_one_file(tmp_path: Path, seed: int) -> None:
    draw = random.Random(seed)
    for folder in ("a", "b"):
        (tmp_path / folder).mkdir()
    first, other = tmp_path / "a" / "out", tmp_path / "a" / "other"
    if draw.random() < 0.5:
        first.write_text("there")
        other.write_text("there")
    second = first
    for _ in range(draw.randint(1, 3)):
        second = spelt(second, tmp_path / "b", draw)
    assert same_place({"first": first, "second": second}, {}) == ("second", "first")
    assert same_place({"second": second}, {"input": first}) == ("second", "input")
    assert same_place({"first": first, "other": other}, {"input": tmp_path / "b" / "out"}) is None


def test_a_folder_of_the_users_named_like_ours_stays(tmp_path: Path) -> None:
    (tmp_path / ".a.json.partial").mkdir()
    (tmp_path / ".a.json.partial" / "mine").write_text("kept")
    write_text(tmp_path / "a.json", "new")
    assert (tmp_path / ".a.json.partial" / "mine").read_text() == "kept"


def test_two_writers_of_one_file_leave_the_content_of_one(tmp_path: Path) -> None:
    with written_whole(tmp_path / "a") as first:
        first.write_text("first")
        with written_whole(tmp_path / "a") as second:
            second.write_text("second")
        assert (tmp_path / "a").read_text() == "second"
    assert (tmp_path / "a").read_text() == "first" and [path.name for path in tmp_path.iterdir()] == ["a"]


@pytest.mark.parametrize("mask", [0o022, 0o077, 0o002])
def test_permissions_of_a_new_file_are_those_of_the_process(tmp_path: Path, mask: int) -> None:
    before = os.umask(mask)
    try:
        write_text(tmp_path / "a", "new")
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == 0o666 & ~mask


@pytest.mark.parametrize("name", ["n" * 255, "é" * 127, ".a.partial", "-"])
def test_any_name_that_the_system_takes(tmp_path: Path, name: str) -> None:
    write_text(tmp_path / name, "new")
    assert [path.name for path in tmp_path.iterdir()] == [name]


def test_other_hard_links_keep_the_old_content(tmp_path: Path) -> None:
    (tmp_path / "a").write_text("old")
    (tmp_path / "b").hardlink_to(tmp_path / "a")
    write_text(tmp_path / "a", "new")
    assert ((tmp_path / "a").read_text(), (tmp_path / "b").read_text()) == ("new", "old")


@pytest.mark.parametrize("make", [Path.mkdir, Path.touch, os.mkfifo, lambda path: path.symlink_to("nowhere")])
@pytest.mark.parametrize("name", ["a.partial", ".a.partial", ".a.tmp", "a.data"])
def test_what_is_called_as_a_temporary_file_may_be_stays(
    tmp_path: Path, name: str, make: Callable[[Path], None]
) -> None:
    make(tmp_path / name)
    before = (tmp_path / name).lstat()
    write_text(tmp_path / "a", "new")
    after = (tmp_path / name).lstat()
    assert (before.st_ino, before.st_mode) == (after.st_ino, after.st_mode)
    assert (tmp_path / "a").read_text() == "new" and len(list(tmp_path.iterdir())) == 2


def test_many_writers_of_one_file_leave_one_whole(tmp_path: Path) -> None:
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda i: write_text(tmp_path / "a", str(i) * 100_000), range(40)))
    assert len(set((tmp_path / "a").read_text())) <= 2 and len(list(tmp_path.iterdir())) == 1


@pytest.mark.parametrize("mode", [0o600, 0o640, 0o664, 0o755, 0o444])
@pytest.mark.parametrize("linked", [True, False])
def test_rights_stay(tmp_path: Path, mode: int, linked: bool) -> None:
    (tmp_path / "a").touch()
    (tmp_path / "a").chmod(mode)
    place = tmp_path / "a"
    if linked and mode != 0o444:
        place = tmp_path / "link"
        place.symlink_to("a")
    write_text(place, "new")
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == mode and (tmp_path / "a").read_text() == "new"


@pytest.mark.parametrize("error", [KeyboardInterrupt, SystemExit, OSError, MemoryError, GeneratorExit])
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
