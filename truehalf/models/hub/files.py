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
_BRANCHES = ("main", "master", "HEAD")
_CONVERSION = (
    "python -c 'import torch; from safetensors.torch import save_file; "
    'state = torch.load("{pickle}", map_location="cpu", weights_only=True); '
    'save_file({{name: tensor.clone() for name, tensor in state.items()}}, "{target}", {{"format": "pt"}})\''
)


def is_folder(identity: str) -> bool:
    """Whether `model.options.id` means a folder, by its form: ./models/mine, /data/mine, mine/ or a/b/c.

    An id of the hub is owner/name, or name.
    """
    return identity.startswith((".", "/", "~")) or identity.endswith("/") or identity.count("/") > 1


def problem_of_revision(identity: str, revision: str | None) -> str | None:
    """What is wrong with `model.options.revision`, as far as the hub need not be asked."""
    if is_folder(identity):
        return None if revision is None else coded("in-conflict", f"a folder has none; expected null, got {revision!r}")
    remedy = "; name a commit (40 hexadecimal digits) or a tag of it"
    if revision is None:
        message = f"{identity!r} is an id of the hub, where a model may change any day{remedy} (a folder: ./{identity})"
        return coded("needs-value", message)
    if revision in _BRANCHES or revision.startswith("refs/"):
        return coded("revision-moves", f"{revision!r} moves, and the model with it{remedy}")
    return None


def files_in(folder: Path, weights: bool) -> list[Path]:
    """What is read of a folder: its configurations and, if asked for, its weights."""
    names = [PROCESSOR, *(_WEIGHTS if weights else ())]
    return [folder / CONFIGURATION, *(path for name in names for path in sorted(folder.glob(name)))]


def located(identity: str, revision: str | None, root: Path, weights: bool) -> Path:
    """The folder with the files of a model, downloaded into the hub's cache where they are not there yet.

    Args:
        root: what a folder's path is relative to.
        weights: whether they are needed, too.

    Raises:
        StageError: when there is no such folder, model or revision, when the hub can not
            be reached and the cache has not all, or when there are no weights as safetensors.
    """
    if is_folder(identity):
        folder = root / Path(identity).expanduser()
        if not (folder / CONFIGURATION).is_file():
            raise StageError(
                "file-missing",
                f"model.options.id: {folder}: expected a folder with {CONFIGURATION}, as save_pretrained writes it; "
                f"there is no {'such file' if folder.is_dir() else 'such folder'}",
            )
    else:
        assert revision is not None, "checked by problems"
        folder = _downloaded(identity, revision, weights)
    if weights and not _has_weights(folder):
        raise _without_weights(identity, revision, folder)
    return folder


def read_mapping(path: Path) -> dict[str, Any]:
    """A JSON file that holds a mapping.

    Raises:
        StageError: when it does not.
    """
    named = f"model.options.id: {path}"
    content = read_json(path, named, "a JSON file")
    if not isinstance(content, dict):
        raise StageError("file-unreadable", f"{named}: expected a mapping, got {type(content).__name__}")
    return content


def _has_weights(folder: Path) -> bool:
    """One file, or every file that the index names."""
    if (folder / _WEIGHTS[0]).is_file():
        return True
    index = folder / _INDEX
    named = read_mapping(index).get("weight_map") if index.is_file() else None
    parts = {str(part) for part in named.values()} if isinstance(named, dict) else set()
    return bool(parts) and all((folder / part).is_file() for part in parts)


def _without_weights(identity: str, revision: str | None, folder: Path) -> StageError:
    """What to say of a model that has no safetensors."""
    found = f"{identity}{'' if revision is None else f' at revision {revision}'}: {folder}"
    pickles = [path for pattern in _PICKLES for path in sorted(folder.glob(pattern))]
    if pickles:
        command = _CONVERSION.format(pickle=pickles[0], target=folder / _WEIGHTS[0])
        return StageError(
            "code-refused",
            f"model.options.id: {found}: expected {_WEIGHTS[0]}, got {', '.join(path.name for path in pickles)}: a "
            f"pickle, which may run code when it is read. Convert it, reading only tensors: {command}",
        )
    either = "" if is_folder(identity) else (
        "either the cache is incomplete, or this revision has only pickles, which may run code when they are read "
        "and are not downloaded. Choose a revision with safetensors, or download and convert it yourself: "
        f"hf download {identity} --revision {revision} --local-dir ./mine, then "
        f"{_CONVERSION.format(pickle='mine/pytorch_model.bin', target='mine/' + _WEIGHTS[0])}, then "
        "model.options.id=./mine model.options.revision=null; "
    )  # fmt: skip
    return StageError(
        "file-missing",
        f"model.options.id: {found}: expected {_WEIGHTS[0]} (or {_INDEX} and all the files that it names), got none; "
        f"{either}or set model.options.random=true for seeded random weights",
    )


def _downloaded(identity: str, revision: str, weights: bool) -> Path:
    """The model's folder in the hub's cache."""
    from huggingface_hub import constants, errors, snapshot_download

    wanted = [CONFIGURATION, PROCESSOR, *(_WEIGHTS if weights else ())]
    named = f"model.options.id: {identity} at revision {revision}"
    try:
        folder = Path(snapshot_download(identity, revision=revision, allow_patterns=wanted))
        if not (folder / CONFIGURATION).is_file():
            raise FileNotFoundError(f"{folder} has no {CONFIGURATION}")
        return folder
    except errors.GatedRepoError as error:
        message = f"{named}: its owner wants its terms accepted first: do so on its page, then `hf auth login`"
        raise StageError("download-fails", message) from error
    except errors.RevisionNotFoundError as error:
        message = f"model.options.revision: {identity} has no commit or tag {revision!r}"
        raise StageError("unknown-choice", message) from error
    except errors.RepositoryNotFoundError as error:
        raise StageError(
            "unknown-choice",
            f"{named}: the hub has no such model, or it is private (`hf auth login`); a folder is written ./{identity}",
        ) from error
    except errors.HFValidationError as error:
        message = f"model.options.id: expected owner/name, or a folder such as ./mine: {error}"
        raise StageError("bad-syntax", message) from error
    except Exception as error:  # what the hub's client and what is below it raise without a network or on a full disk
        raise StageError(
            "download-fails", _unreachable(named, identity, revision, wanted, constants.HF_HUB_CACHE, error)
        ) from error


def _unreachable(named: str, identity: str, revision: str, wanted: list[str], cache: str, error: Exception) -> str:
    included = " ".join(f"--include {name!r}" for name in wanted)
    reason = first_line(error)
    return (
        f"{named}: the cache ({cache}; HF_HOME moves it) has not all of {', '.join(wanted)}, and the hub did not give "
        f"them: {reason}. Where there is a network: hf download {identity} --revision {revision} {included}; copy the "
        "cache here, or download with --local-dir ./mine, copy that folder, and set model.options.id=./mine "
        "model.options.revision=null"
    )
