"""Models in bfloat16, which ONNX Runtime computes not on a CPU, and is not fed from Python."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from truehalf.errors import StageError, some_of

if TYPE_CHECKING:
    import onnx_ir as ir

_SHOWN = 3


def remedy_of(model: Path | str | bytes | ir.Model) -> str:
    """Where a model that ONNX Runtime has refused holds bfloat16, and what to do; empty where it holds none."""
    import onnx_ir as ir

    from truehalf.ir.facts import all_nodes, label_of
    from truehalf.ir.model_file import load_model
    from truehalf.ir.normalize import NORMALIZE

    if isinstance(model, bytes):
        return ""
    try:
        typed = model.clone() if isinstance(model, ir.Model) else load_model(model)
        NORMALIZE(typed)
    except StageError:
        return ""
    ends = {"input": typed.graph.inputs, "output": typed.graph.outputs}
    found = [f"{kind} {value.name!r}" for kind, values in ends.items() for value in values if _is_one(value)]
    nodes = (node for node in all_nodes(typed) if any(map(_is_one, (*node.inputs, *node.outputs))))
    found += [f"{node.op_type} {label_of(node)!r}" for node in nodes]
    if not found:
        return ""
    where = some_of(found, _SHOWN)
    why = f"The model is bfloat16 ({where}), which ONNX Runtime does not compute on a CPU"
    return f". {why}: give the float32 model, or export it in float32"


def _is_one(value: ir.Value | None) -> bool:
    import onnx_ir as ir

    return value is not None and value.dtype == ir.DataType.BFLOAT16
