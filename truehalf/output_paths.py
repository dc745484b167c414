"""Checks of output paths, before the work whose results go there."""

from __future__ import annotations

import contextlib
import mimetypes
import os
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path

from truehalf.errors import StageError
from truehalf.files import explain
from truehalf.output_files import NoPlace, destination, same_place

_WEIGHTS = "{}.data"  # where the weights of a large model go, beside it


def check_outputs(
    outputs: Mapping[str, Path | str | None], inputs: Mapping[str, object], weights: Iterable[Path | str] = ()
) -> None:
    """Refuse places that cannot be written, outputs of one name, and outputs in the place of an input.

    Args:
        outputs: by what messages call them; None is not written. With each its <name>.data, which a model may need.
        inputs: by what messages call them; a folder stands for its samples, what is no path is passed over.
        weights: files of external data of the models among `inputs`. <name>.data may be one of them: that is refused
            where it would be written (truehalf.ir.model_file.save_model).

    Raises:
        StageError: file-unwritable or would-overwrite.
    """
    written = {name: Path(path) for name, path in outputs.items() if path is not None}
    for name, path in written.items():
        _check_writable(name, path)
    read = {name: Path(given) for name, given in inputs.items() if isinstance(given, (str, os.PathLike))}
    beside = {f"the weights beside {name}": Path(_WEIGHTS.format(path)) for name, path in written.items()}
    parts = {f"weights of a model, {path}": Path(path) for path in weights}
    if clash := same_place(written | beside, read) or same_place(written, parts) or _sample_in(written, read):
        name, other = clash
        place, there = (written | beside)[name], (written | beside | read).get(other)
        raise StageError(
            "would-overwrite",
            f"{name} {place} is the place of {other}{f', {there}' if there else ''}, too; expected a separate file",
        )


def _sample_in(written: Mapping[str, Path], read: Mapping[str, Path]) -> tuple[str, str] | None:
    for name, path in written.items():
        is_image = (mimetypes.guess_type(path.name)[0] or "").startswith("image/")
        if path.exists() and (path.suffix == ".npz" or is_image):
            for other, folder in read.items():
                if folder.is_dir() and path.resolve().is_relative_to(folder.resolve()):
                    return name, other
    return None


def _check_writable(name: str, path: Path) -> None:
    missing: list[Path] = []
    try:
        if path == Path("-"):
            raise NoPlace(path, "no file is written to stdout")
        place = destination(path)
        missing = [folder for folder in place.parents if not folder.exists()]
        place.parent.mkdir(parents=True, exist_ok=True)
        destination(place)  # its name, too, now that its folder is there
        with tempfile.TemporaryFile(dir=place.parent):
            pass
    except NoPlace as error:
        raise StageError("file-unwritable", f"{name} {path}: {error.strerror}") from error
    except OSError as error:
        raise StageError("file-unwritable", f"{name} {path}: {explain(error)}") from error
    finally:  # a command that is refused later leaves none
        for folder in missing:
            with contextlib.suppress(OSError):
                folder.rmdir()
