"""ONNX files: read with every problem named, written whole or not at all.

External data is never read from outside the model's folder. Weights beyond 1 GB are written to <name>.data one after
the other, so that a model larger than memory passes through.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

from truehalf.errors import StageError, first_line
from truehalf.files import destination, explain, written_whole
from truehalf.ir.proto.data_files import data_file, data_folder, external_files, follow_links

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

_EXTERNAL_DATA_FROM = 1_000_000_000  # bytes of weights; protobuf messages end at 2 GiB and are built in memory
_GRAPH_ALONE = 32_000_000  # bytes; a larger file holds its weights itself, or in <name>.data
_INSIDE_BELOW = 256  # bytes; a weight that small stays in the model file
_ALIGN_FROM, _PAGE = 1 << 20, 4096  # bytes; larger weights start on a page, so that readers can map them
PRECISION_KEY = "truehalf.precision"  # of what made the file FP16, there
UNFUSED_KEY = "truehalf.unfused_attention"  # JSON: by name of a Softmax, what rules out its fused kernel
_SOURCE = "truehalf.source"  # keys of ir.Model.meta
_RESTATED = "truehalf.restated"


def load_model(path: Path | str) -> ir.Model:
    """Load an ONNX file; external data stays on disk until it is read.

    Raises:
        StageError: when the file is missing, truncated or no ONNX model, or when the external data of a tensor is
            missing, shorter than the tensor, or outside the model's folder (nothing outside it is read).
    """
    return adopt_proto(read_proto(path), path)


def read_proto(path: Path | str) -> onnx.ModelProto:
    """The content of an ONNX file without its external data, which it names as seen from the file or a link to it.

    Raises:
        StageError: when the file is missing, truncated or no ONNX model.
    """
    import onnx
    import onnx.parser
    from google.protobuf import json_format, text_format
    from google.protobuf.message import DecodeError

    path = Path(path)
    if not path.is_file():
        if path.exists():
            kind = "a folder" if path.is_dir() else "no regular file"
            raise StageError("wrong-file", f"{path}: {kind}; expected an ONNX model")
        raise StageError("file-missing", f"{path}: no such file; expected an ONNX model")
    try:
        return onnx.load(path, load_external_data=False)
    except OSError as error:
        raise StageError(
            "file-unreadable", f"{path}: {error.strerror or error}; expected an ONNX model that can be read"
        ) from error
    except (
        *(DecodeError, json_format.ParseError, text_format.ParseError, onnx.parser.ParseError),
        *(ValueError, TypeError, KeyError, AttributeError, RuntimeError),
    ) as error:
        raise _no_model(path, error) from error


def adopt_proto(proto: onnx.ModelProto, path: Path | str, image: str | None = None) -> ir.Model:
    """A proto as a model whose external data lies beside `path`; `image`: see truehalf.ir.proto.one_image.give_axis.

    Raises:
        StageError: as `load_model`.
    """
    import onnx_ir as ir

    from truehalf.ir.proto.forms import restate
    from truehalf.ir.proto.names import check_names
    from truehalf.ir.proto.one_image import give_axis
    from truehalf.ir.proto.plugins import BEHIND, take_out

    path = Path(path)
    if not proto.graph.node and not proto.graph.output:
        raise StageError(
            "file-unreadable", f"{path}: expected an ONNX model, got an empty one ({proto.ByteSize()} bytes)"
        )
    follow_links(proto, path)
    try:
        check_names(proto, path)
        restated = restate(proto, path)
        behind = take_out(proto)
        model, tail = ir.from_proto(proto), None if behind is None else ir.from_proto(behind)
    except (ValueError, TypeError, KeyError, AttributeError, RuntimeError) as error:
        raise _no_model(path, error) from error
    weights = _adopt(model, path)
    if tail is not None:
        weights |= _adopt(tail, path)
    is_linked = bool(weights) and path.is_symlink()
    model.meta[_SOURCE] = path.absolute(), weights
    model.meta[_RESTATED] = give_axis(model, image) or restated or tail is not None or is_linked
    model.meta[BEHIND] = tail
    return model


def _adopt(model: ir.Model, path: Path) -> frozenset[str]:
    """Sort the nodes of a model that was read, check its external data, hold its weights; the files of these."""
    import onnx_ir as ir

    from truehalf.ir.normalize import sort_nodes
    from truehalf.ir.proto.tensors import hold_as_arrays, tensors_of

    sort_nodes(model)
    if "ai.onnx" in model.graph.opset_imports:  # the long name of the domain "", which nodes are read with
        model.graph.opset_imports.setdefault("", model.graph.opset_imports.pop("ai.onnx"))
    files: dict[str, int] = {}
    path = path.absolute()
    for tensor in tensors_of(model):
        if isinstance(tensor, ir.ExternalTensor):
            tensor.base_dir = data_folder(path)
            _check_external(tensor, path, files)
        elif isinstance(tensor, ir.TensorProtoTensor):
            _check_size(tensor, path)
    hold_as_arrays(model)
    return frozenset(map(os.path.realpath, files))


def save_model(model: ir.Model, path: Path | str, *, checked: bool = True) -> None:
    """Write an ONNX file whole (truehalf.files), `checked` fully before it appears.

    Weights go to <name>.data beside it, one after the other, when they exceed 1 GB; otherwise all of them go into the
    file. Plugins that were taken out come back. The file that the model was loaded from may be written over.

    Raises:
        StageError: when the checker refuses the model, when the files cannot be written, or when <name>.data holds the
            weights of another model, the one that was loaded. The files that were there are then untouched.
    """
    from google.protobuf.message import EncodeError

    from truehalf.ir.proto.plugins import as_in_file
    from truehalf.ir.proto.refusals import REFUSED, check_written, refused

    path, model = Path(path), as_in_file(model)
    try:
        with written_whole(path) as building:
            _write_model(model, building)
            if checked:
                check_written(model, building)
            for file in building.parent.iterdir():
                _refuse_to_replace_source(model, path, destination(path).with_name(file.name))
    except REFUSED as error:
        source, _ = model.meta.get(_SOURCE, (None, None))
        raise refused(error, path, source) from error
    except EncodeError as error:
        raise StageError(
            "too-large", f"{path}: the model without its weights is larger than protobuf's 2 GiB limit"
        ) from error
    except OSError as error:
        raise StageError("file-unwritable", f"{path}: {explain(error)}") from error


def is_restated(model: ir.Model) -> bool:
    """Whether a loaded model has another form than its file, which runtimes do not take (truehalf.ir.proto.forms)."""
    return bool(model.meta.get(_RESTATED))


def source_weights(model: ir.Model) -> list[str]:
    """The paths of the files in which a loaded model keeps tensors, its main file aside; sorted."""
    _, files = model.meta.get(_SOURCE, (None, frozenset()))
    return sorted(files)


def model_size_mb(path: Path | str) -> float:
    """Size of a model file with its files of external data, in 10^6 bytes."""
    path = Path(path)
    size = path.stat().st_size
    if size < _GRAPH_ALONE or path.with_name(f"{path.name}.data").exists():
        data = [data_file(path, name) for name in external_files(read_proto(path))]
        size += sum(file.stat().st_size for file in data if file.is_file())
    return size / 1e6


def _no_model(path: Path, error: BaseException) -> StageError:
    while cause := error.__cause__ or error.__context__:
        error = cause
    reason, size = first_line(error), f" ({path.stat().st_size} bytes)" if path.exists() else ""
    return StageError(
        "file-unreadable",
        f"{path}: expected an ONNX model, got what cannot be read as one, perhaps truncated{size}: {reason}",
    )


def _check_size(tensor: ir.TensorProtoTensor, path: Path) -> None:
    if tensor.dtype == 0:
        raise StageError("file-unreadable", f"{path}: tensor {tensor.name!r}: expected an element type, got none")
    if not tensor.raw.HasField("raw_data"):
        return
    got, expected = len(tensor.raw.raw_data), math.ceil(tensor.dtype.itemsize * math.prod(tensor.raw.dims))
    if got != expected:
        raise StageError(
            "file-unreadable",
            f"{path}: tensor {tensor.name!r}: expected {expected} bytes, by type and shape, got {got}",
        )


def _check_external(tensor: ir.ExternalTensor, path: Path, files: dict[str, int]) -> None:
    """Refuse a tensor whose external data is not there; `files` holds the sizes of the files that were looked at."""
    named = f"{path}: external data file {str(tensor.location)!r} of tensor {tensor.name!r}"
    if tensor.path not in files:
        location, folder = Path(os.path.normpath(tensor.location)), data_folder(path).resolve()
        file = Path(tensor.path).resolve()
        if location.is_absolute() or ".." in location.parts or not file.is_relative_to(folder):
            raise StageError(
                "unsafe-data",
                f"{named} lies outside the model's folder: expected a file in {folder}. It was not read; "
                "if you trust it, copy it there and name it by its file name",
            )
        if not file.is_file():
            raise StageError("file-missing", f"{named} is missing; expected it beside the model: copy it there, too")
        if file.stat().st_nlink > 1:
            raise StageError(
                "unsafe-data", f"{named} has several hard links, which readers of ONNX refuse: replace it by a copy"
            )
        files[tensor.path] = file.stat().st_size
    start, stop = tensor.offset or 0, (tensor.offset or 0) + tensor.nbytes
    if tensor.length not in (None, 0, tensor.nbytes):
        raise StageError(
            "file-unreadable",
            f"{named}: expected {tensor.nbytes} bytes, by type and shape, got a length of {tensor.length}",
        )
    if not 0 <= start <= stop <= files[tensor.path]:
        raise StageError(
            "file-unreadable",
            f"{named} is too short: expected bytes {start} to {stop}, got {files[tensor.path]}; copy it again",
        )


def _refuse_to_replace_source(model: ir.Model, path: Path, file: Path) -> None:
    """The file that a model was loaded from is written over as a whole, or not at all."""
    source, weights = model.meta.get(_SOURCE, (None, frozenset()))
    if source is None or os.path.realpath(path) == os.path.realpath(source):
        return
    if os.path.realpath(file) in {*weights, os.path.realpath(source)}:
        raise StageError(
            "would-overwrite", f"{file} is {source} or holds its weights; choose another name than {path.name}"
        )


def _write_model(model: ir.Model, path: Path) -> None:
    """Write a model whose tensors may lie anywhere; the model stays as it is."""
    import onnx
    import onnx_ir as ir

    values = {value: value.const_value for graph in model.graphs() for value in graph.initializers.values()}
    tensors = {value: tensor for value, tensor in values.items() if tensor is not None}
    outside = sum(tensor.nbytes for tensor in tensors.values()) > _EXTERNAL_DATA_FROM
    try:
        if outside:
            with path.with_name(f"{path.name}.data").open("wb") as file:
                for value, tensor in tensors.items():
                    if tensor.dtype != ir.DataType.STRING and tensor.nbytes >= _INSIDE_BELOW:
                        value.const_value = _write_weight(value, tensor, file, f"{path.name}.data")
        for value, tensor in tensors.items():
            if value.const_value is tensor and isinstance(tensor, ir.ExternalTensor):
                value.const_value = _inside(tensor)
        with _attributes_inside(model):
            onnx.save(ir.to_proto(model), path)
    finally:
        for value, tensor in tensors.items():
            value.const_value = tensor


def _write_weight(value: ir.Value, tensor: ir.TensorProtocol, file: BinaryIO, location: str) -> ir.ExternalTensor:
    import onnx_ir as ir

    if tensor.nbytes >= _ALIGN_FROM:
        file.seek(-file.tell() % _PAGE, os.SEEK_CUR)
    offset = file.tell()
    if isinstance(tensor, (ir.ExternalTensor, ir.LazyTensor)):  # these write themselves in parts
        tensor.tofile(file)
    else:
        file.write(tensor.tobytes())
    assert file.tell() - offset == tensor.nbytes
    dtype, shape = tensor.dtype, ir.Shape(tensor.shape.numpy())
    return ir.ExternalTensor(location, offset, tensor.nbytes, dtype, shape=shape, name=value.name or "")


def _inside(tensor: ir.ExternalTensor) -> ir.LazyTensor:
    """The tensor as one that is stored in the model file."""
    import onnx_ir as ir

    return ir.LazyTensor(lambda: tensor, tensor.dtype, tensor.shape, name=tensor.name)


@contextlib.contextmanager
def _attributes_inside(model: ir.Model) -> Iterator[None]:
    """External data of attributes stored in the model file: only initializers go to <name>.data."""
    import onnx_ir as ir

    from truehalf.ir.facts import all_nodes
    from truehalf.ir.proto.tensors import attribute_tensors

    replaced: list[tuple[ir.Node, ir.Attr]] = []
    for node in all_nodes(model, functions=True):
        for attribute in list(node.attributes.values()):
            tensors = attribute_tensors(attribute)
            if any(isinstance(tensor, ir.ExternalTensor) for tensor in tensors):
                stored = [_inside(tensor) if isinstance(tensor, ir.ExternalTensor) else tensor for tensor in tensors]
                single = attribute.type == ir.AttributeType.TENSOR
                replaced.append((node, attribute))
                node.attributes[attribute.name] = (
                    ir.AttrTensor(attribute.name, stored[0]) if single else ir.AttrTensors(attribute.name, stored)
                )
    try:
        yield
    finally:
        for node, attribute in replaced:
            node.attributes[attribute.name] = attribute
