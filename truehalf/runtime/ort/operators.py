"""Operators that ONNX Runtime may not have, named where it refuses a model."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from truehalf.errors import StageError
from truehalf.runtime.ort.session import Session

if TYPE_CHECKING:
    import onnx_ir as ir


def check_loads(source: Path | ir.Model, model: ir.Model, remedy: str) -> None:
    """Check that ONNX Runtime loads a model.

    Args:
        source: file or model that it loads.
        model, remedy: as in `refusal`.

    Raises:
        StageError: when it does not.
    """
    try:
        Session(source)
    except StageError as error:
        raise refusal(error, model, remedy) from error


def refusal(error: StageError, model: ir.Model, remedy: str) -> StageError:
    """What ONNX Runtime says of a model, with the operators that are not ONNX's where there are such.

    Args:
        remedy: how the model is converted without running it.
    """
    unknown = custom_operators(model) if error.code == "runtime-refuses" else []
    if not unknown:
        return StageError(error.code, error.text)
    return StageError(
        "not-supported",
        f"{error.text}. The model has operators that neither ONNX nor a function of the file defines, and that "
        f"ONNX Runtime may not have ({', '.join(unknown)}). Plugins of TensorRT are left out of a run where they stand "
        f"in the graph itself, no body and no function, and behind something to run: export it so, or {remedy}",
    )


def custom_operators(model: ir.Model) -> list[str]:
    """Operators that neither ONNX nor ONNX Runtime has, functions aside, as domain::Op."""
    from onnx.defs import has

    from truehalf.ir.facts import all_nodes
    from truehalf.ir.proto.plugins import is_known

    nodes = (node for node in all_nodes(model, functions=True) if node.op_identifier() not in model.functions)
    unknown = (node for node in nodes if not (is_known(node.domain) if node.domain else has(node.op_type)))
    return sorted({f"{node.domain}::{node.op_type}".removeprefix("::") for node in unknown})
