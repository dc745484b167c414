"""Operators that ONNX has not: what ONNX Runtime says of their types, and their names where it refuses a model."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from truehalf.errors import StageError
from truehalf.runtime.ort.session import Session

if TYPE_CHECKING:
    import onnx_ir as ir

_KNOWN_DOMAINS = ("ai.onnx", "com.microsoft", "com.ms", "org.pytorch.aten")


class Parameters(NamedTuple):
    """Type parameters (T, ...) of an operator's inputs and outputs, or types that they always have (tensor(float))."""

    inputs: tuple[str, ...]
    outputs: tuple[str, ...]


def parameters_of(domain: str, op_type: str) -> Parameters | None:
    """Of an operator that ONNX Runtime has beyond ONNX; None: it has none, or does not say."""
    return _contributed().get((domain, op_type))


@functools.cache
def _contributed() -> dict[tuple[str, str], Parameters]:
    from onnxruntime.capi import onnxruntime_pybind11_state as state

    listed: list[Any] = getattr(state, "get_all_operator_schema", list)()  # some builds leave it out
    return {
        (each.domain, each.name): Parameters(
            tuple(formal.typeStr for formal in each.inputs), tuple(formal.typeStr for formal in each.outputs)
        )
        for each in sorted(listed, key=lambda each: each.since_version)
        if each.domain
    }


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
    unknown = _custom_operators(model) if error.code == "runtime-refuses" else []
    if not unknown:
        return StageError(error.code, error.text)
    return StageError(
        "not-supported",
        f"{error.text}. The model has operators that neither ONNX nor a function of the file defines, and that "
        f"ONNX Runtime may not have ({', '.join(unknown)}): {remedy}",
    )


def _custom_operators(model: ir.Model) -> list[str]:
    """Operators of domains that neither ONNX nor ONNX Runtime has, functions aside, as domain::Op."""
    from truehalf.ir.facts import all_nodes

    nodes = (node for node in all_nodes(model, functions=True) if node.op_identifier() not in model.functions)
    found = {f"{node.domain}::{node.op_type}" for node in nodes if node.domain}
    return sorted(name for name in found if not name.startswith(_KNOWN_DOMAINS))
