"""Files of a Hugging Face model: in a local folder, or in the hub's cache, filled on demand.

Weights are safetensors, and nothing else is downloaded or read: a pickle may run code when it is read. A revision is a
commit or a tag: a branch moves, and the model with it. Without the hub, what the cache has of a tag is taken: it does
not move there.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from truehalf.codes import coded
from truehalf.errors import StageError, first_line
from truehalf.files import read_json

CONFIGURATION = "config.json"
PROCESSOR = "preprocessor_config.json"
_INDEX = "model.safetensors.index.json"
_WEIGHTS = ("model.safetensors", "model-*.safetensors", _INDEX)
_PICKLES = ("*.bin", "*.pt", "*.pth", "*.ckpt")
_CONVERSION = (
    "python -c 'import torch; from safetensors.torch import save_file; "
    'state = torch.load("{pickle}", map_location="cpu", weights_only=True); '
    'save_file({{name: tensor.clone() for name, tensor in state.items()}}, "{target}", {{"format": "pt"}})\''
)


def is_folder(identity: str) -> bool:
    """True if `model.options.id` is a folder by its form: ./models/mine, /data/mine, mine/ or a/b/c.

    An id of the hub is owner/name, or name.
    """
    return identity.startswith((".", "/", "~")) or identity.endswith("/") or identity.count("/") > 1


def problem_of_revision(identity: str, revision: str | None) -> str | None:
    """Say what is wrong with `model.options.revision`, as far as the hub need not be asked."""
    if is_folder(identity):
        return None if revision is None else coded("in-conflict", f"a folder has none; expected null, got {revision!r}")
    remedy = "; name a commit (40 hexadecimal digits) or a tag of it"
    if revision is None:
        message = f"{identity!r} is an id of the hub, where a model may change any day{remedy} (a folder: ./{identity})"
        return coded("needs-value", message)
    if revision in ("main", "master", "HEAD") or revision.startswith("refs/"):
        return coded("revision-moves", f"{revision!r} moves, and the model with it{remedy}")
    return None


def files_in(folder: Path, weights: bool) -> list[Path]:
    """List what is read of a folder: its configurations and, if asked for, its weights."""
    names = [PROCESSOR, *(_WEIGHTS if weights else ())]
    return [folder / CONFIGURATION, *(path for name in names for path in sorted(folder.glob(name)))]


def located(identity: str, revision: str | None, root: Path, weights: bool) -> Path:
    """Find the folder with the files of a model, downloaded into the hub's cache where they are not there yet.

    Args:
        root: what a folder's path is relative to.
        weights: whether they are needed, too.

    Raises:
        StageError: when there is no such folder, model or revision, when the hub can not be reached and the cache has
            not all, or when there are no weights as safetensors.
    """
    local = is_folder(identity)
    folder = root / Path(identity).expanduser() if local else _downloaded(identity, str(revision), weights)
    named = f"model.options.id: {identity}{'' if local else f' at revision {revision}'}: {folder}"
    if not (folder / CONFIGURATION).is_file():
        message = f"{named}: expected a folder with {CONFIGURATION}, as save_pretrained writes it; there is none"
        raise StageError("file-missing", message)
    if not weights or _has_weights(folder):
        return folder
    if pickles := [path for pattern in _PICKLES for path in sorted(folder.glob(pattern))]:
        command = _CONVERSION.format(pickle=pickles[0], target=folder / _WEIGHTS[0])
        raise StageError(
            "code-refused",
            f"{named}: expected {_WEIGHTS[0]}, got {', '.join(path.name for path in pickles)}: a pickle, which may run "
            f"code when it is read. Convert it, reading only tensors: {command}",
        )
    raise StageError(
        "file-missing",
        f"{named}: expected {_WEIGHTS[0]} (or {_INDEX} and all the files that it names), got none, or not all; choose "
        "a revision that has them (pickles are not downloaded), or set model.options.random=true for seeded random "
        "weights",
    )


def read_mapping(path: Path) -> dict[str, Any]:
    """Read a JSON file that holds a mapping.

    Raises:
        StageError: when it does not.
    """
    named = f"model.options.id: {path}"
    content = read_json(path, named, "a JSON file")
    if not isinstance(content, dict):
        raise StageError("file-unreadable", f"{named}: expected a mapping, got {type(content).__name__}")
    return content


def _has_weights(folder: Path) -> bool:
    """True if there is one file, or every file that the index names."""
    if (folder / _WEIGHTS[0]).is_file():
        return True
    index = folder / _INDEX
    named = read_mapping(index).get("weight_map") if index.is_file() else None
    parts = {str(part) for part in named.values()} if isinstance(named, dict) else set()
    return bool(parts) and all((folder / part).is_file() for part in parts)


def _downloaded(identity: str, revision: str, weights: bool) -> Path:
    """Find the model's folder in the hub's cache, filled."""
    from huggingface_hub import constants, snapshot_download

    wanted = [CONFIGURATION, PROCESSOR, *(_WEIGHTS if weights else ())]
    try:
        folder = Path(snapshot_download(identity, revision=revision, allow_patterns=wanted))
        if not (folder / CONFIGURATION).is_file():
            raise FileNotFoundError(f"{folder} has no {CONFIGURATION}")
        return folder
    except Exception as error:  # no such model or revision, terms not accepted, no network, a full disk
        included = " ".join(f"--include {name!r}" for name in wanted)
        raise StageError(
            "download-fails",
            f"model.options.id: {identity} at revision {revision}: the cache ({constants.HF_HUB_CACHE}; HF_HOME moves "
            f"it) has not all of {', '.join(wanted)}, and the hub did not give them: {first_line(error)}. Where there "
            f"is a network and `hf auth login` has access: hf download {identity} --revision {revision} {included}; "
            "copy the cache here, or download with --local-dir ./mine, copy that folder, and set "
            "model.options.id=./mine model.options.revision=null",
        ) from error
