"""ONNX files: read with every problem named, written whole or not at all.

External data is never read from outside the model's folder. Weights beyond 1 GB are written to <name>.data one after
the other, so that a model larger than memory passes through.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from truehalf.errors import StageError, first_line
from truehalf.files import destination, explain, written_whole
from truehalf.ir.proto.data_files import data_file, data_folder, external_files, follow_links

if TYPE_CHECKING:
    import onnx
    import onnx_ir as ir

_EXTERNAL_DATA_FROM = 1_000_000_000  # bytes of weights; protobuf messages end at 2 GiB and are built in memory
_GRAPH_ALONE = 32_000_000  # bytes; a larger file holds its weights itself, or in <name>.data
_INSIDE_UP_TO = 256  # bytes; a weight that small stays in the model file
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

    path = Path(path)
    if not path.is_file():
        code, kind = ("wrong-file", "no regular file") if path.exists() else ("file-missing", "no such file")
        raise StageError(code, f"{path}: {kind}; expected an ONNX model")
    try:
        return onnx.load(path, load_external_data=False)
    except OSError as error:
        raise StageError(
            "file-unreadable", f"{path}: {error.strerror or error}; expected an ONNX model that can be read"
        ) from error
    except Exception as error:  # of protobuf, JSON, ONNX's text
        raise _no_model(path, error) from error


def adopt_proto(proto: onnx.ModelProto, path: Path | str, image: str | None = None) -> ir.Model:
    """A proto as a model whose external data lies beside `path`; `image`: see truehalf.ir.proto.one_image.give_axis.

    Raises:
        StageError: as `load_model`.
    """
    import onnx_ir as ir

    from truehalf.ir.normalize import sort_nodes
    from truehalf.ir.proto.forms import restated
    from truehalf.ir.proto.one_image import give_axis
    from truehalf.ir.proto.plugins import take_out

    path = Path(path)
    if not proto.graph.node and not proto.graph.output:
        raise StageError(
            "file-unreadable", f"{path}: expected an ONNX model, got an empty one ({proto.ByteSize()} bytes)"
        )
    follow_links(proto, path)
    has_functions = bool(proto.functions)
    try:
        model = sort_nodes(ir.from_proto(restated(proto, path)))
        weights = _hold_weights(model, path.absolute())
    except StageError:
        raise
    except Exception as error:  # onnx_ir raises what it likes
        raise _no_model(path, error) from error
    model.meta[_SOURCE] = path.absolute(), weights
    is_linked = bool(weights) and path.is_symlink()
    model.meta[_RESTATED] = any([take_out(model), give_axis(model, image), has_functions, is_linked])
    return model


def _hold_weights(model: ir.Model, path: Path) -> frozenset[str]:
    """Check the external data of a model that was read, and hold the weights of its file as arrays: a tensor of a proto
    copies its bytes whenever it is read, and keeps the whole proto in memory.

    Returns:
        the real paths of the files of external data.
    """
    import numpy as np
    import onnx_ir as ir

    from truehalf.ir.facts import all_nodes, is_op

    files: dict[str, int] = {}

    def held(tensor: ir.TensorProtocol) -> ir.TensorProtocol:
        if isinstance(tensor, ir.ExternalTensor):
            tensor.base_dir = data_folder(path)
            _check_external(tensor, path, files)
            return tensor
        if not isinstance(tensor, ir.TensorProtoTensor) or not tensor.raw.HasField("raw_data"):
            return tensor
        return ir.Tensor(tensor.numpy(), tensor.dtype, name=tensor.name, doc_string=tensor.doc_string)

    for graph in model.graphs():
        for value in graph.initializers.values():
            if value.const_value is not None:
                value.const_value = held(value.const_value)
    for node in all_nodes(model):
        if is_op(node, "Constant") and len(node.attributes) != 1:
            raise ValueError(f"node {node.name!r} (Constant) has {len(node.attributes)} values, expected one")
        for name, attribute in list(node.attributes.items()):
            if attribute.type == ir.AttributeType.TENSOR:
                tensor = held(attribute.as_tensor())
                if isinstance(tensor, ir.ExternalTensor):  # only initializers are written to <name>.data
                    tensor = ir.Tensor(np.array(tensor.numpy()), tensor.dtype, name=tensor.name)
                node.attributes[name] = ir.AttrTensor(name, tensor, doc_string=attribute.doc_string)
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
    import onnx_ir as ir

    weights = [value.const_value for graph in model.graphs() for value in graph.initializers.values()]
    if sum(weight.nbytes for weight in weights if weight is not None) > _EXTERNAL_DATA_FROM:
        data = f"{path.name}.data"  # on pages, so that readers can map it
        ir.save(model, path, external_data=data, size_threshold_bytes=_INSIDE_UP_TO, alignment=4096)
    else:
        ir.save(ir.external_data.load_to_model(model.clone()), path)
