"""What onnx's checker refuses, in a sentence: what it was made of, which node, why, and what to do."""

from __future__ import annotations

import re
from pathlib import Path

import onnx
import onnx_ir as ir

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
    named = source if source is not None and source.is_file() else made.name
    return StageError("model-invalid", f"{named}: onnx's checker refuses {_said(error)}. {_remedy(error)}")


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
    for value in (*proto.graph.input, *proto.graph.output):
        if value.type.HasField("tensor_type"):
            value.type.tensor_type.shape.SetInParent()
    onnx.save(_without_plugins(proto), copy)
    onnx.checker.check_model(str(copy), full_check=has_ranks)
    copy.unlink()


def _without_plugins(proto: onnx.ModelProto) -> onnx.ModelProto:
    """A model whose plugins have a domain, in place."""
    for node in proto.graph.node:
        if not node.domain and is_plugin(node):
            node.domain = OF_PLUGINS
    proto.opset_import.add(domain=OF_PLUGINS, version=1)
    return proto


def checker_refusal(path: Path) -> Exception | None:
    """What the checker says of a file, if it refuses it; nothing of one that cannot be read, or has gone."""
    try:
        proto = onnx.load(path, load_external_data=False)
        if not path.is_symlink() and not any(is_plugin(node) for node in proto.graph.node):
            onnx.checker.check_model(str(path), full_check=True)
            return None
        follow_links(proto, path)  # the checker refuses a link to external data as such
        onnx.load_external_data_for_model(proto, str(data_folder(path)))
        onnx.checker.check_model(_without_plugins(proto), full_check=True)
    except REFUSED as error:
        return error
    except Exception:  # such as protobuf's, of a file that is no model
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
        return f"Export the model anew at a later opset, where {withdrawn[1]} is valid (GroupNormalization: opset 21)"
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
