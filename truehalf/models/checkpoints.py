"""Tensors out of checkpoint files, which are data, not programs: nothing that a file names is ever called.

.safetensors            names and tensors
.pt .pth .ckpt .bin     what torch.save wrote, read with weights_only=True: a state dict, or a mapping that holds one

Where a mapping holds several state dicts, the first of KEYS is taken: the averaged weights, where there are any.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truehalf.config.named_files import folder_instead
from truehalf.errors import StageError, failing, some_of

if TYPE_CHECKING:
    import torch

    from truehalf.config.schema import Config

PICKLED = (".pt", ".pth", ".ckpt", ".bin")
KEYS = (  # where training scripts put the state dict, in the order in which they are looked for
    *("ema", "model_ema", "ema_state_dict", "params_ema", "state_dict", "model_state_dict", "model", "module"),
    *("net", "network", "weights", "params"),
)
_NAMED = 5  # names that an error lists
_GLOBAL = re.compile(r"GLOBAL ([\w.]+)")
_CONVERSION = (
    "content = torch.load('{name}', weights_only=False); torch.save(state, 'weights.pt') with "
    "state = content['model'] or where its state dict is (module.state_dict() of a whole module)"
)


def files(config: Config, root: Path) -> list[Path]:
    """What a source reads that has one checkpoint: it, where there is one; weights by name or tag are no file here."""
    return [] if config.model.checkpoint is None else [root / config.model.checkpoint]


@dataclass(frozen=True)
class Checkpoint:
    """The tensors of a file.

    Attributes:
        tensors: by name.
        key: where in the file's mapping they were, such as "ema.module"; None: they are the file.
    """

    tensors: dict[str, torch.Tensor]
    key: str | None = None


def read_checkpoint(path: Path | str, key: str | None = None) -> Checkpoint:
    """Read a file of weights, on the CPU.

    Args:
        key: where in the file's mapping the state dict is, dots between levels; None: see the top of this module.

    Raises:
        StageError: when the file is missing or a folder, cannot be read, needs more than tensors and plain values
            (naming the first globals that it would have to import), or holds no state dict where it is looked for.
    """
    path = Path(path)
    if path.is_dir():
        raise StageError("wrong-file", f"weights: {folder_instead(path)}")
    if not path.is_file():
        raise StageError(
            "file-missing",
            f"weights: {path}: no such file; expected a safetensors file, or one of {', '.join(PICKLED)} "
            "(set model.checkpoint to its path, or to null for random weights)",
        )
    if path.suffix == ".safetensors":
        if key is not None:
            message = f"weights: {path}: a safetensors file has tensors and no keys, and {key!r} was asked for"
            raise StageError("in-conflict", message)
        return Checkpoint(_safetensors(path))
    if path.suffix not in PICKLED:
        message = f"weights: {path}: expected .safetensors or one of {', '.join(PICKLED)}, got {path.suffix!r}"
        raise StageError("wrong-file", message)
    return _found(read_pickle(path), key, path)


def without_prefix(tensors: Mapping[str, torch.Tensor], prefix: str, path: Path | str) -> dict[str, torch.Tensor]:
    """The tensors with a prefix, such as "module.", taken off every name.

    Raises:
        StageError: when a name does not begin with it.
    """
    others = [name for name in tensors if not name.startswith(prefix)]
    if others:
        raise StageError(
            "wrong-name",
            f"weights: {path}: expected all names to begin with {prefix!r}, got {some_of(others, _NAMED)}; "
            "a prefix is taken off all of them or of none",
        )
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items()}


def _safetensors(path: Path) -> dict[str, torch.Tensor]:
    from safetensors.torch import load_file

    what = f"weights: {path}: a safetensors file that cannot be read, perhaps truncated ({path.stat().st_size} bytes)"
    with failing("file-unreadable", what, "; copy or train it again"):
        return load_file(path)


def read_pickle(path: Path, conversion: str = _CONVERSION) -> Any:
    """What torch.save wrote, on the CPU, as long as it is tensors and plain values.

    Args:
        conversion: what to do, where it was trained, with a file that holds more; {name} is the file's.

    Raises:
        StageError: when it holds more, naming the first globals that it would import, or cannot be read.
    """
    import torch

    try:
        return torch.load(path, map_location="cpu", weights_only=True)
    except Exception as error:  # torch raises what its unpickler stumbles over: KeyError, EOFError, struct.error, ...
        if names := _globals(path, error):
            raise StageError(
                "code-refused",
                f"weights: {path}: to read it, {some_of(names, _NAMED)} would have to be imported and called: it holds "
                "objects beside tensors, and a checkpoint that is given is data here, not a program. Where it was "
                f"trained, and if you trust it, save only the tensors: {conversion.format(name=path.name)}",
            ) from error
        raise StageError(
            "file-unreadable",
            f"weights: {path}: expected a checkpoint of torch.save (no TorchScript), got a file that cannot be read as "
            f"one, perhaps truncated ({path.stat().st_size} bytes): {type(error).__name__}; copy or train it again",
        ) from error


def _globals(path: Path, error: Exception) -> list[str]:
    """What a file would import, as far as that is known without doing so."""
    import torch

    try:
        return sorted(torch.serialization.get_unsafe_globals_in_checkpoint(path))
    except Exception:  # it reads only the newer format
        return _GLOBAL.findall(str(error))[:1]


def _found(content: Any, key: str | None, path: Path) -> Checkpoint:
    """Find the state dict in a file: at `key`; else itself, or at the first of KEYS, at most one level deeper."""
    likely = ["", *(each for outer in KEYS for each in (outer, *(f"{outer}.{inner}" for inner in KEYS)))]
    for each in likely if key is None else [key]:
        part = _at(content, each)
        if _is_state_dict(part):
            return Checkpoint(dict(part), each or None)
    if key is None:
        message = f"weights: {path}: expected a state dict, itself or under {', '.join(KEYS)}, got {_shown(content)}"
        raise StageError("wrong-file", message)
    message = f"weights: {path}: expected a state dict (names and tensors) at {key!r}, got {_shown(part)}, in "
    raise StageError("wrong-name", f"{message}{_shown(content)}")


def _at(content: Any, key: str) -> Any:
    """Follow a key with dots; None where it leads nowhere."""
    for name in key.split(".") if key else ():
        content = content.get(name) if isinstance(content, Mapping) else None
    return content


def _is_state_dict(value: Any) -> bool:
    import torch

    return (
        isinstance(value, Mapping)
        and len(value) > 0
        and all(isinstance(name, str) and isinstance(tensor, torch.Tensor) for name, tensor in value.items())
    )


def _shown(value: Any) -> str:
    if not isinstance(value, Mapping):
        return f"a {type(value).__name__}"
    keys = [f"{name} ({type(item).__name__})" for name, item in value.items()]
    return f"a mapping with {some_of(keys, _NAMED) or 'no key'}"
