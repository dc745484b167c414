"""Files of external data of a model that is reached through a link.

Caches of downloads (Hugging Face's hub) keep a model and its data as files named by their digests, and beside each
other links with the names that the model knows. onnx, onnx_ir and ONNX Runtime follow no link to data: it is named
anew here, as it is called in the folder of the model's own file.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    import onnx


def data_folder(path: Path) -> Path:
    """The folder that names of external data are relative to: the model's, or that of the file that a link leads to."""
    return path.resolve().parent if path.is_symlink() else path.parent


def external_files(proto: onnx.ModelProto) -> list[str]:
    """The files of external data that a model names, as it names them, sorted."""
    return sorted({entry.value for entry in _locations(proto)})


def follow_links(proto: onnx.ModelProto, path: Path) -> None:
    """Name external data beside a link to a model, in place, by where it lies seen from the model's own file."""
    if not path.is_symlink():
        return
    for entry in _locations(proto):
        beside = path.parent / entry.value
        if beside.exists():
            entry.value = os.path.relpath(beside.resolve(), data_folder(path))


def _locations(proto: onnx.ModelProto) -> Iterator[onnx.StringStringEntryProto]:
    from truehalf.ir.proto.names import proto_tensors

    for graph in (proto.graph, *proto.functions):
        for tensor in proto_tensors(graph):
            yield from (entry for entry in tensor.external_data if entry.key == "location")
