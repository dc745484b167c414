"""Files of external data of a model that is reached through a link.

Caches of downloads (Hugging Face's hub) and of DVC (cache.type symlink) keep a model and its data under their digests,
and beside each other links with the names that the model knows. onnx, onnx_ir and ONNX Runtime follow no link to data:
it is named anew here, by where it lies seen from the model's own file.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

_IN_CACHE = re.compile("[0-9a-f]{2}/[0-9a-f]{30}")  # of DVC, by MD5

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx


def data_folder(path: Path) -> Path:
    """The folder that names of external data are relative to, and that holds it: the model's; where that is a link, the
    folder of the file it leads to, or DVC's cache, whose folders are the first two digits of digests.
    """
    if not path.is_symlink():
        return path.parent
    file = path.resolve()
    return file.parents[1] if _IN_CACHE.fullmatch("/".join(file.parts[-2:])) else file.parent


def data_file(path: Path, name: str) -> Path:
    """A file of external data by the name that a model has for it: beside the model; where that is a link and has none
    beside it, beside the file it leads to.
    """
    beside = path.parent / name
    return beside if beside.exists() or not path.is_symlink() else path.resolve().parent / name


def external_files(proto: onnx.ModelProto) -> list[str]:
    """The files of external data that a model names, as it names them, sorted."""
    return sorted({entry.value for entry in _locations(proto)})


def follow_links(proto: onnx.ModelProto, path: Path) -> None:
    """Name external data beside a link to a model, in place, by where it lies seen from the model's own file."""
    if not path.is_symlink():
        return
    for entry in _locations(proto):
        if Path(entry.value).is_absolute() or ".." in Path(entry.value).parts:
            continue  # refused where it is read
        at = os.path.relpath(data_file(path, entry.value).resolve(), data_folder(path))
        if data_folder(path) == path.resolve().parent or _IN_CACHE.fullmatch(at):
            entry.value = at  # else it is not there, and nothing else is read


def _locations(proto: onnx.ModelProto) -> Iterator[onnx.StringStringEntryProto]:
    from truehalf.ir.proto.forms import proto_tensors

    for tensor in proto_tensors(proto.graph):
        yield from (entry for entry in tensor.external_data if entry.key == "location")
