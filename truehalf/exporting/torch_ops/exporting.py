"""Detection of a running export: checks of values are for eager runs only."""

from __future__ import annotations


def exporting() -> bool:
    """True under torch.jit.trace, torch.onnx.export, torch.export and torch.compile."""
    import torch

    tracing: bool = torch.jit.is_tracing()  # type: ignore[attr-defined, no-untyped-call]
    return tracing or torch.compiler.is_compiling()
