"""Files: JSON and YAML, checks of output paths, and writing whole or not at all: a temporary file and a rename.

What is no regular file is never replaced. A link is followed, so that it stays, and its target is replaced.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from truehalf.codes import coded
from truehalf.errors import StageError

MODEL_FILE = "model.onnx"
PARTIAL = ".partial"  # suffix of a file or folder that is being built
_REPLACED = ".replaced"
_WRITE_BITS = 0o222
_WEIGHTS = "{}.data"  # where the weights of a large model go, beside it
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_DENIED = (errno.EACCES, errno.EPERM, errno.EROFS)


def is_of_file(error: OSError) -> bool:
    """True if an error of the system is about a file; ConnectionError and a lack of memory are OSError, too."""
    return error.filename is not None or error.errno in _FULL


def explain(error: OSError) -> str:
    """An error of the system in one line: what failed, on which file, and what to do."""
    where = f": {error.filename}" if error.filename else ""
    remedy = "; free some space" if error.errno in _FULL else ""
    remedy = "; check its permissions" if error.errno in _DENIED else remedy
    return f"{error.strerror or error}{where}; nothing was replaced{remedy}"


# --- writing ----------------------------------------------------------------------------------------------------------


def destination(path: Path) -> Path:
    """Return the file that writing to `path` replaces: the target of a link, else `path` itself.

    A link to a write-protected file, as DVC makes links into its cache, is replaced itself.

    Raises:
        OSError: a folder, device or FIFO lies there.
    """
    is_protected = False
    if path.exists():
        if not path.is_file():
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        is_protected = not path.stat().st_mode & _WRITE_BITS
    return Path(os.path.realpath(path)) if path.is_symlink() and not is_protected else path


@contextlib.contextmanager
def written_whole(path: Path) -> Iterator[Path]:
    """Yield the path to build a file at, in an empty folder beside its place; files that begin with its name may join.

    They are moved into place, that file last, when the block ends well; otherwise nothing changes. A replaced file
    leaves its permissions to the new one. A process that is killed leaves the temporary folder.

    Raises:
        OSError: as `destination`, and where the system refuses.
    """
    place = destination(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    folder = Path(tempfile.mkdtemp(prefix=".truehalf-", suffix=PARTIAL, dir=place.parent))
    try:
        building = folder / place.name
        yield building
        for file in sorted(folder.iterdir(), reverse=True):
            target = destination(place.with_name(file.name))
            if target.exists():
                shutil.copymode(target, file)
            file.replace(target)
    except OSError as error:
        error.filename = error.filename or str(path)  # a full disk names none
        raise
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def write_text(path: Path, text: str) -> None:
    """Write a UTF-8 text file whole.

    Raises:
        OSError: as `written_whole`.
    """
    with written_whole(path) as building:
        building.write_text(text, encoding="utf-8")


def write_json(path: Path, content: Any) -> None:
    """Write JSON whole; NaN and Inf as text, so that every reader copes."""
    write_text(path, json.dumps(plain(content), indent=2, allow_nan=False) + "\n")


def swap_in(folder: Path, place: Path) -> None:
    """Put a finished folder where an older one may lie. Between the two renames the place is empty, never half full."""
    if place.is_symlink() or (place.exists() and not place.is_dir()):
        raise OSError(errno.ENOTDIR, "not a folder of a stage", str(place))
    replaced = place.with_name(place.name + _REPLACED)
    remove(replaced)
    if place.exists():
        place.rename(replaced)
    folder.rename(place)
    remove(replaced)


def remove(path: Path) -> None:
    """Remove a file, a link or a folder with all that is in it; nothing happens where there is none."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


@contextlib.contextmanager
def locked(path: Path, waiting: str) -> Iterator[int]:
    """Hold an exclusive lock on a file; while another process has it, print `waiting` once and wait.

    Yields the lock's file descriptor. A child that inherits it keeps the lock when this process is killed, so that a
    second run cannot start beside an orphaned DVC; that is why this is flock itself and not a lock library.
    """
    import fcntl  # which Windows has not

    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    try:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(coded("waits-for-another", waiting), file=sys.stderr, flush=True)
            fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


# --- checks before the work -------------------------------------------------------------------------------------------


def check_outputs(
    outputs: Mapping[str, Path | str | None], inputs: Mapping[str, object], weights: Iterable[Path | str] = ()
) -> None:
    """Refuse places that cannot be written, outputs of one name, and outputs in the place of an input.

    Args:
        outputs: by what messages call them; None is not written. With each its <name>.data, which a model may need.
        inputs: by what messages call them; what is no path is passed over.
        weights: files of external data of the models among `inputs`. <name>.data may be one of them: that is refused
            where it would be written (truehalf.ir.model_file.save_model).

    Raises:
        StageError: file-unwritable or would-overwrite.
    """
    written = {name: Path(path) for name, path in outputs.items() if path is not None}
    for name, path in written.items():
        _check_writable(name, path)
    beside = {f"the weights beside {name}": Path(_WEIGHTS.format(path)) for name, path in written.items()}
    taken = {f"{name}, {path}": Path(path) for name, path in inputs.items() if isinstance(path, (str, os.PathLike))}
    parts = {f"weights of a model, {path}": Path(path) for path in weights}
    for name, path in (written | beside).items():
        others = taken | parts if name in written else taken
        for other, there in others.items():
            if _is_same(path, there):
                what = f"{name} {path} is the place of {other}, too; expected a separate file"
                raise StageError("would-overwrite", what)
        taken[f"{name}, {path}"] = path


def _is_same(path: Path, other: Path) -> bool:
    try:
        return path.samefile(other)
    except OSError:  # one of them is not there yet
        return os.path.realpath(path) == os.path.realpath(other)


def _check_writable(name: str, path: Path) -> None:
    try:
        if path == Path("-"):
            raise OSError(errno.EINVAL, "no file is written to stdout")
        folder = next(folder for folder in destination(path).absolute().parents if folder.exists())
        if not folder.is_dir():
            raise NotADirectoryError(errno.ENOTDIR, "a part of the path is a file", str(folder))
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))
    except OSError as error:
        raise StageError("file-unwritable", f"{name} {path}: {explain(error)}") from error


# --- reading ----------------------------------------------------------------------------------------------------------


def read_json(path: Path, named: str | None = None, expected: str = "JSON that truehalf wrote") -> Any:
    """Read a JSON file.

    Args:
        named: what messages call it; None: by its path.
        expected: what it is to hold, in messages.

    Raises:
        StageError: file-missing; file-unreadable where it is broken.
        OSError: where the system does not let it be read.
    """
    return _parsed(path, named, expected, json.loads, (ValueError, RecursionError))


def read_yaml(path: Path, named: str | None = None, expected: str = "a mapping in JSON or YAML") -> Any:
    """Read a YAML or JSON file; arguments as those of `read_json`.

    Raises:
        StageError: file-missing; file-unreadable where it is broken, or the system does not let it be read.
    """
    import yaml

    def parse(text: str) -> Any:
        try:  # the same in C, ten times faster, where PyYAML has it
            return yaml.load(text, getattr(yaml, "CSafeLoader", yaml.SafeLoader))
        except yaml.YAMLError:
            return yaml.safe_load(text)  # whose errors say where

    return _parsed(path, named, expected, parse, (OSError, ValueError, yaml.YAMLError))


def _parsed(
    path: Path, named: str | None, expected: str, parse: Callable[[str], Any], broken: tuple[type[Exception], ...]
) -> Any:
    try:
        return parse(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise StageError("file-missing", f"{named or path}: no such file; expected {expected}") from error
    except broken as error:
        problem = error.strerror if isinstance(error, OSError) else " ".join(str(error).split())
        raise StageError("file-unreadable", f"{named or path}: expected {expected}, but {problem}") from error


def file_sha256(path: Path) -> str:
    """SHA-256 of a file, as `sha256sum` prints it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def plain(value: Any) -> Any:
    """For JSON: numpy scalars and arrays as Python's; non-finite floats as "nan", "inf", "-inf"."""
    if isinstance(value, Mapping):
        return {str(key): plain(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if hasattr(value, "tolist"):  # numpy
        return plain(value.tolist())
    if isinstance(value, float) and not -float("inf") < value < float("inf"):
        return str(value)
    return value
