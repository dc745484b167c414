"""Weights from a file into a module: exactly its tensors, or an error that names the difference.

Tensors that a module ties (several names, one storage) may stand in the file under any of their names, once or more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from truehalf.errors import StageError, some_of
from truehalf.models.checkpoints import read_checkpoint, without_prefix

if TYPE_CHECKING:
    import torch


def load_weights(module: torch.nn.Module, path: Path | str, key: str | None = None, prefix: str = "") -> str:
    """Fill every parameter and persistent buffer of `module` from a file of weights.

    Floating-point tensors are converted to the module's dtype.

    Args:
        key: where in the file's mapping the state dict is, see truehalf.models.checkpoints.
        prefix: taken off every name in the file.

    Returns:
        a sentence: what was read, and from which key.

    Raises:
        StageError: when the file is missing or cannot be read, belongs to another architecture (missing, unexpected or
            wrongly shaped tensors), or holds NaN, Inf or float8. The module is then unchanged.
    """
    path = Path(path)
    checkpoint = read_checkpoint(path, key)
    tensors = without_prefix(checkpoint.tensors, prefix, path) if prefix else checkpoint.tensors
    taken = "" if checkpoint.key is None else f" (its key {checkpoint.key!r})"
    fill(module, tensors, f"{path}{taken}")
    without = f", {prefix!r} taken off every name" if prefix else ""
    return f"weights: {len(tensors)} tensors of {path.name}{taken}{without}"


def fill(module: torch.nn.Module, tensors: Mapping[str, torch.Tensor], named: str) -> None:
    """Fill every parameter and persistent buffer of `module`, as `load_weights`.

    Args:
        named: what errors call the tensors' file.

    Raises:
        StageError: see load_weights.
    """
    import torch

    expected = module.state_dict()
    tied: dict[object, list[str]] = {}
    for name, tensor in expected.items():
        shared = (tensor.data_ptr(), tensor.shape, tensor.stride()) if tensor.numel() else name
        tied.setdefault(shared, []).append(name)
    missing = [" = ".join(names) for names in tied.values() if not any(name in tensors for name in names)]
    unexpected = [name for name in tensors if name not in expected]
    wrong = [
        f"{name}: expected {_kind(tensor)}, got {_kind(got)}"
        for name, tensor in expected.items()
        if (got := tensors.get(name, tensor)).shape != tensor.shape
        or got.is_floating_point() != tensor.is_floating_point()
    ]
    if missing or unexpected or wrong:
        raise _of_another_architecture(named, differences(wrong, missing, unexpected), expected, tensors)
    _check_values(named, tensors)
    with torch.no_grad():
        for names in tied.values():
            expected[names[0]].copy_(next(tensors[name] for name in names if name in tensors))


def differences(wrong: Sequence[str], missing: Sequence[str], unexpected: Sequence[str]) -> list[str]:
    """Make lines of an error on tensors that do not fit a module: how many of each kind, and the first five."""
    kinds = {"of another shape or type": wrong, "missing in the file": missing, "unexpected in the file": unexpected}
    return [f"  {len(found)} {what}: {some_of(found, 5, '; ')}" for what, found in kinds.items() if found]


def _of_another_architecture(
    named: str, lines: list[str], expected: Mapping[str, torch.Tensor], tensors: Mapping[str, torch.Tensor]
) -> StageError:
    """Make the error for tensors that do not fit, with the prefix that all of them have where that may be all."""
    prefix, dot, _ = next(iter(tensors), "").partition(".")
    shared = prefix + dot
    is_shared = bool(dot) and all(name.startswith(shared) for name in tensors)
    if is_shared and any(name.removeprefix(shared) in expected for name in tensors):
        lines.append(
            f"  every name in the file begins with {shared!r}, which the model's do not have; "
            f"if that is all, take it off: model.options.prefix={shared} (of source torch)"
        )
    return StageError(
        "wrong-file",
        f"weights: {named} belongs to another architecture; give the file that was trained with this model and "
        "decoder, or the model that these weights were trained with\n" + "\n".join(lines),
    )


def _check_values(named: str, tensors: Mapping[str, torch.Tensor]) -> None:
    import torch

    odd = [
        f"{name} ({'sparse' if tensor.layout != torch.strided else _kind(tensor)})"
        for name, tensor in tensors.items()
        if tensor.layout != torch.strided or tensor.is_meta or (tensor.is_floating_point() and tensor.itemsize < 2)
    ]
    if odd:
        raise StageError(
            "not-supported",
            f"weights: {named}: expected dense tensors of float16 or wider with their values, got {some_of(odd, 5)}; "
            "save them by tensor.to_dense() or tensor.float(), on the CPU",
        )
    if broken := [name for name, tensor in tensors.items() if not tensor.to(torch.float32).isfinite().all()]:
        message = f"weights: {named}: expected numbers that FP32 can hold, got NaN or Inf in {some_of(broken, 5)}"
        raise StageError("not-finite", message)


def _kind(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
