"""Functions of a file, inlined on a copy: rules then know where the values in them come from.

Those that a plugin stands for are left out.
"""

from __future__ import annotations

from collections.abc import Collection

import onnx_ir as ir

from truehalf.ir.inlining import InlineNamed
from truehalf.ir.normalize import InferTypes


def inlined(model: ir.Model, plugin_ops: Collection[str]) -> tuple[ir.Model, str]:
    """The model, or where it has functions, a copy without them; and why they could not be inlined ("": they were).

    A function with another version of ONNX's operators than the model is read as if it had the model's.
    """
    if not model.functions:
        return model, ""
    copy = model.clone()
    if refused := InlineNamed(plugin_ops, any_version=True)(copy).refused:
        return model, refused[0]["reason"]
    InferTypes()(copy)
    return copy, ""
