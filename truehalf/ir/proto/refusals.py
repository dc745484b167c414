"""What onnx's checker refuses, in a sentence: whose file it is, which node, why, and what to do.

What was made of a file that the checker refuses itself is refused for the same reason: then that file is named.
"""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import onnx_ir as ir
from google.protobuf.message import DecodeError

from truehalf.errors import StageError, first_line
from truehalf.ir.proto.data_files import data_folder, follow_links
from truehalf.ir.proto.plugins import OF_PLUGINS, is_plugin

REFUSED = (onnx.checker.ValidationError, onnx.shape_inference.InferenceError)
_NODE = (
    re.compile(r"Name: (?P<name>.*?) ?OpType: (?P<op_type>\w+)"),
    re.compile(r"\(op_type: ?(?P<op_type>[\w.:]+)(?:, node name: (?P<name>[^)]*))?\)"),
)
_PREFIX = re.compile(r"^(?:\[\w+\] |Inference error\(s\): |\(op_type:[^)]*\): )+")


def refused(error: Exception, made: Path, source: Path | None) -> StageError:
    """The error for a file that the checker has refused.

    Args:
        made: the file that was to be written.
        source: the file that it was made of; None: it was made of none.
    """
    if source is None or not source.is_file():
        return StageError("model-invalid", f"{made.name}: onnx's checker refuses {_said(error)}. {_remedy(error)}")
    own = checker_refusal(source)
    if own is None:
        found = f"onnx's checker refuses what was made of {source}, which is valid itself: {_said(error)}"
        return StageError("model-invalid", f"{found}. Please report it")
    return StageError("model-invalid", f"{source}: onnx's checker refuses {_said(own)}. {_remedy(own)}")


def check_written(model: ir.Model, path: Path) -> None:
    """Run onnx's checker on the file of a model. It asks for the rank of inputs and outputs, which ONNX Runtime does
    not: where one is not known, it sees a copy that states some rank, and types are not inferred. It has no plugins: it
    sees them in a domain of their own.

    Raises:
        one of REFUSED.
    """
    ends = (*model.graph.inputs, *model.graph.outputs)
    has_ranks = all(value.shape is not None or value.dtype is None for value in ends)
    if has_ranks and not any(is_plugin(node) for node in model.graph):
        onnx.checker.check_model(str(path), full_check=True)
        return
    proto, copy = onnx.load(path, load_external_data=False), path.with_name(f"{path.name}.checked")
    onnx.save(_for_checker(proto), copy)
    onnx.checker.check_model(str(copy), full_check=has_ranks)
    copy.unlink()


def _for_checker(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A model whose inputs and outputs have a rank, and its plugins a domain, in place."""
    for value in (*proto.graph.input, *proto.graph.output):
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    for node in proto.graph.node:
        if not node.domain and is_plugin(node):
            node.domain = OF_PLUGINS
    proto.opset_import.add(domain=OF_PLUGINS, version=1)
    return proto


def checker_refusal(path: Path) -> Exception | None:
    """What the checker says of a file, if it refuses it; nothing of one that cannot be read, or has gone."""
    try:
        proto = onnx.load(path, load_external_data=False)
        has_plugins = any(is_plugin(node) for node in proto.graph.node)
        if has_plugins or path.is_symlink():  # a link to external data it refuses as such
            follow_links(proto, path)
            onnx.load_external_data_for_model(proto, str(data_folder(path)))
        checked = _for_checker(proto) if has_plugins else proto if path.is_symlink() else str(path)
        onnx.checker.check_model(checked, full_check=True)
    except REFUSED as error:
        return error
    except (OSError, ValueError, RuntimeError, DecodeError):
        return None
    return None


def _said(error: Exception) -> str:
    """node 'gn' (GroupNormalization): why"""
    text = str(error)
    found = next((match for pattern in _NODE if (match := pattern.search(text))), None)
    reason = _PREFIX.sub("", first_line(error)).rstrip(". ")
    if found is None:
        return f"the model: {reason}"
    return f"node {found['name'] or 'without a name'!r} ({found['op_type']}): {reason}"


def _remedy(error: Exception) -> str:
    text = str(error)
    if withdrawn := re.search(r"Op registered for (\w+) is deprecated in domain_version of (\d+)", text):
        return _anew(withdrawn[1], int(withdrawn[2]))
    if unknown := re.search(r"No Op registered for (\w+) with domain_version", text):
        return (
            f"{unknown[1]} is no operator of ONNX. Where it is a plugin of TensorRT, give its nodes a domain of their "
            f"own and import it, as torch's exporters do (TRT::{unknown[1]})"
        )
    if "existing" in text or "Inferred" in text:
        return (
            "The file states another type or shape of what the node gives than the node: correct what it states "
            "(graph.output, graph.value_info) or delete it, or export the model anew"
        )
    return "Correct the node, or export the model anew"


def _anew(op_type: str, opset: int) -> str:
    """An operator that one opset has withdrawn, and perhaps a later one has again."""
    schemas = [each for each in onnx.defs.get_all_schemas_with_history() if (each.domain, each.name) == ("", op_type)]
    sound = [each.since_version for each in schemas if not each.deprecated]
    later = min((version for version in sound if version > opset), default=None)
    if later is not None:
        return f"Export the model anew at opset {later} or later, where {op_type} is valid"
    gone = min(each.since_version for each in schemas if each.deprecated)
    return f"{op_type} is gone since opset {gone}: export the model anew, with what replaced it"
