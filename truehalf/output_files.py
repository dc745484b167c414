"""Files written for the user: only regular files, whole or not at all, and no two outputs of one name.

A device, FIFO, socket or folder in an output's place is refused: moving a file there would destroy it for the whole
machine. A symlink is followed, so that it stays, and its target is what is written.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

PARTIAL = ".partial"  # how names end of what is being built
_WRITE_BITS = 0o222
_KINDS = {
    stat.S_IFDIR: "a folder",
    stat.S_IFIFO: "a FIFO",
    stat.S_IFCHR: "a character device",
    stat.S_IFBLK: "a block device",
    stat.S_IFSOCK: "a socket",
}


class NoPlace(OSError):
    """Where nothing is written: `strerror` says what is there and what is expected, `filename` where."""

    def __init__(self, path: Path, there: str, expected: str = "the name of a regular file to write") -> None:
        super().__init__(errno.EINVAL, f"{there}; expected {expected}", str(path))


def destination(path: Path) -> Path:
    """The regular file, there or not yet, that is written by writing to `path`: the target of a symlink.

    Raises:
        NoPlace: where anything else lies there, or a link to a write-protected file, which DVC's cache holds.
        OSError: where the system cannot say (a loop of links, a file among the folders).
    """
    try:
        found = path.stat()
    except FileNotFoundError:  # nothing, or a link to nothing
        return Path(os.path.realpath(path)) if path.is_symlink() else path
    if not stat.S_ISREG(found.st_mode):
        raise NoPlace(path, _KINDS.get(stat.S_IFMT(found.st_mode), "something else"))
    if not path.is_symlink():
        return path
    if is_protected(path):
        raise NoPlace(path, "a link to a write-protected file")
    target = Path(os.path.realpath(path))
    if not target.exists() or not target.samefile(path):  # a file that was deleted, and is open still
        raise NoPlace(path, "a link to a file without a name")
    return target


def is_protected(path: Path) -> bool:
    """Whether no user may write a file, root aside, as DVC makes those of its cache, where links may lead to."""
    return not path.stat().st_mode & _WRITE_BITS


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """The path to build a file at, in an empty folder beside its place; files that begin with its name may join it.

    They are moved into place, that file last, when the block ends well; otherwise nothing changes. A file that is
    replaced leaves its permissions to the new one; of several hard links to it, the others keep the old content.
    A process that is killed leaves the temporary folder.

    Raises:
        OSError: as `destination`, before and after the block, and where the system refuses.
    """
    place = destination(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".truehalf-", suffix=PARTIAL, dir=place.parent))  # no other writer's
    try:
        building = folder / place.name
        yield building
        if destination(path) != place:
            raise NoPlace(path, "another link than before")
        files = {file: place.with_name(file.name) for file in sorted(folder.iterdir(), reverse=True)}
        for target in files.values():
            if target != place and target.is_symlink():  # readers of the model refuse links
                raise NoPlace(target, "a link")
            destination(target)
        for file, target in files.items():
            with contextlib.suppress(FileNotFoundError):
                shutil.copymode(target, file)
            file.replace(target)
    except OSError as error:
        error.filename = error.filename or str(path)  # a full disk names none
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Write a text file whole.

    Raises:
        OSError: as `written_whole`.
    """
    with written_whole(path) as building:
        building.write_text(text)


def same_place(outputs: Mapping[str, Path], others: Mapping[str, Path]) -> tuple[str, str] | None:
    """The first output that is one of `others`, or another output, with that one's name: by links, hard links and
    whatever spelling.
    """
    taken = [(name, _places(path)) for name, path in others.items()]
    for name, path in outputs.items():
        written = _places(path)
        for other, places in taken:
            if written & places:
                return name, other
        taken.append((name, written))
    return None


def _places(path: Path) -> set[tuple[int | str, ...]]:
    """What names a file, whether it is there or not: its inode, and its folder's with its name."""
    real = Path(os.path.realpath(path))
    found: set[tuple[int | str, ...]] = {(str(real),)}
    with contextlib.suppress(OSError):
        folder = real.parent.stat()
        found.add((folder.st_dev, folder.st_ino, real.name))
    with contextlib.suppress(OSError):
        file = path.stat()
        found.add((file.st_dev, file.st_ino))
    return found
