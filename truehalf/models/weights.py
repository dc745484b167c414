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
    ties = _ties(expected)
    _check_architecture(named, expected, ties, tensors)
    _check_values(named, tensors)
    with torch.no_grad():
        for names in ties:
            stored = next(name for name in names if name in tensors)
            expected[names[0]].copy_(tensors[stored])


def _ties(expected: Mapping[str, torch.Tensor]) -> list[list[str]]:
    """Names of the module's tensors, those that share one storage together."""
    groups: dict[object, list[str]] = {}
    for name, tensor in expected.items():
        key = (tensor.data_ptr(), tensor.shape, tensor.stride()) if tensor.numel() else name
        groups.setdefault(key, []).append(name)
    return list(groups.values())


def _check_architecture(
    named: str, expected: Mapping[str, torch.Tensor], ties: list[list[str]], tensors: Mapping[str, torch.Tensor]
) -> None:
    missing = [" = ".join(names) for names in ties if not any(name in tensors for name in names)]
    unexpected = [name for name in tensors if name not in expected]
    wrong = [
        f"{name}: expected {_kind(tensor)}, got {_kind(tensors[name])}"
        for name, tensor in expected.items()
        if name in tensors and not _fits(tensor, tensors[name])
    ]
    if not (missing or unexpected or wrong):
        return
    lines = differences(wrong, missing, unexpected)
    if prefix := _prefix(expected, tensors):
        lines.append(
            f"  every name in the file begins with {prefix!r}, which the model's do not have; "
            f"if that is all, take it off: model.options.prefix={prefix} (of source torch)"
        )
    raise StageError(
        "wrong-file",
        f"weights: {named} belongs to another architecture; give the file that was trained with this model and "
        "decoder, or the model that these weights were trained with\n" + "\n".join(lines),
    )


def differences(wrong: Sequence[str], missing: Sequence[str], unexpected: Sequence[str]) -> list[str]:
    """Make lines of an error on tensors that do not fit a module: how many of each kind, and the first five."""
    kinds = {"of another shape or type": wrong, "missing in the file": missing, "unexpected in the file": unexpected}
    return [f"  {len(found)} {what}: {some_of(found, 5, '; ')}" for what, found in kinds.items() if found]


def _prefix(expected: Mapping[str, torch.Tensor], tensors: Mapping[str, torch.Tensor]) -> str | None:
    """What stands before the first dot of every name in the file, where some name without it is one of the model's."""
    prefixes = {name.partition(".")[0] + "." for name in tensors if "." in name}
    if len(prefixes) != 1 or not all("." in name for name in tensors):
        return None
    prefix = prefixes.pop()
    return prefix if any(name.removeprefix(prefix) in expected for name in tensors) else None


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


def _fits(expected: torch.Tensor, got: torch.Tensor) -> bool:
    return expected.shape == got.shape and expected.is_floating_point() == got.is_floating_point()


def _kind(tensor: torch.Tensor) -> str:
    return f"{str(tensor.dtype).removeprefix('torch.')}{list(tensor.shape)}"
