"""Fingerprints of weights, samples and code that a run reads."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

import numpy as np

from truehalf.config.schema import Config, DataSource
from truehalf.config.typed import plain
from truehalf.data.run_samples import run_sources
from truehalf.data.samples import Arrays, digest_of
from truehalf.data.sources import PURPOSES, LabelledImage, Source
from truehalf.errors import StageError, some_of
from truehalf.files import file_sha256
from truehalf.json_values import Json
from truehalf.provenance.user_files import user_files
from truehalf.user_code import imported


class Fingerprint(TypedDict):
    """Of a file; its size in bytes."""

    bytes: int
    sha256: str


class CodePrint(TypedDict, total=False):
    """Of the files of a function of the user's, by their places; `function` is its name, where it makes samples."""

    function: str
    sha256: str
    files: dict[str, Fingerprint]


class UsedFile(TypedDict):
    file: str
    sha256: str


class LabelFile(Fingerprint):
    file: str


class SamplesPrint(TypedDict, total=False):
    """artifacts/inputs/<purpose>.json: all that determines the samples of a purpose.

    Attributes:
        drawn: the settings by which the source chooses or makes them.
        sha256: of their names and files; of a function's samples of their content.
        annotations, code: of sources that have such.
        also_verifies: true of a sample to calibrate with that is the one to verify with, too.
    """

    drawn: dict[str, Json]
    also_verifies: bool
    samples: int
    sha256: str
    files: list[UsedFile]
    annotations: LabelFile
    code: CodePrint


class ModelPrint(TypedDict):
    """artifacts/inputs/model.json: all that determines the model.

    Attributes:
        sha256: 12 digits, the same for the same weights, code and settings, wherever the files lie.
        files: weights, configurations and code of the source, by their place.
        settings: of `model` and `decoder`, without the model's name.
    """

    sha256: str
    files: dict[str, Fingerprint]
    seed: int
    settings: dict[str, Json]


_MADE = (DataSource.digits, DataSource.random)  # sources of samples that the settings make, not files
# Keys of `data` left out of the settings: files have fingerprints, and the samples' names show their number.
_SEEN_IN_SAMPLES = {"folder", "annotations", "file", "function", "calibration_samples", "verification_samples"}
_NO_IDENTITY = {"name", "checkpoint"}  # of `model`: what a model is called, and where its weights lie


def fingerprint(path: Path) -> Fingerprint:
    """Size in bytes and SHA-256 of a file."""
    return {"bytes": path.stat().st_size, "sha256": file_sha256(path)}


def fingerprint_files(paths: Sequence[Path], root: Path) -> dict[str, Fingerprint]:
    """Fingerprints of the files of a model's source, folders with all that is in them, by their place: in the
    workspace, or beside the file or folder that was named, from as far up as it takes to tell them apart.

    What Python compiles beside its sources is left out: it changes by being imported.

    Raises:
        StageError: when there is no such file.
    """
    inside: dict[str, Path] = {}
    outside: list[tuple[Path, int]] = []  # a file, and how many parts of its path are its name
    for path in paths:
        if not path.exists():
            raise StageError(
                "file-missing",
                f"model.checkpoint: no such file: {path}; give its path, or null where the source takes none",
            )
        files = sorted(file for file in path.rglob("*") if file.is_file()) if path.is_dir() else [path]
        for file in (file for file in files if "__pycache__" not in file.parts):
            if path.is_relative_to(root):
                inside[file.relative_to(root).as_posix()] = file
            else:
                outside.append((file, len(file.relative_to(path.parent).parts)))
    named = dict(inside)
    for file, parts in outside:
        while (name := Path(*file.parts[-parts:]).as_posix()) in named and parts < len(file.parts):
            parts += 1
        named[name] = file
    return {name: fingerprint(file) for name, file in named.items()}


def fingerprint_model(config: Config, files: Sequence[Path], root: Path) -> ModelPrint:
    """Fingerprint of the configured model.

    Args:
        files: of its source (truehalf.models.sources).
        root: the workspace.

    Raises:
        StageError: see fingerprint_files.
    """
    model: dict[str, Json] = plain(config.model)
    settings = {key: value for key, value in model.items() if key not in _NO_IDENTITY}
    settings["decoder"] = config.decoder.name.value
    prints = fingerprint_files(files, root)
    is_random = config.model.checkpoint is None and getattr(config.model.options, "random", True)
    content = [settings, sorted(each["sha256"] for each in prints.values()), config.seed if is_random else None]
    digest = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    return {"sha256": digest[:12], "files": prints, "seed": config.seed, "settings": settings}


def fingerprint_samples(samples: Source) -> SamplesPrint:
    """Number of samples, and the files that they come from with SHA-256: by their place in the source's folder, in
    order.

    Made samples (digit scenes, noise) have no files: their names count.
    """
    digest, folder = hashlib.sha256(), samples.folder
    files: list[UsedFile] = []
    for path in dict.fromkeys(samples.paths):  # one file may hold many samples
        inside = folder is not None and path.is_relative_to(folder)
        name = path.relative_to(folder).as_posix() if inside and folder is not None else path.name
        files.append({"file": name, "sha256": fingerprint(path)["sha256"]})
        digest.update(name.encode())
        digest.update(bytes.fromhex(files[-1]["sha256"]))
    if samples.names != [file["file"] for file in files]:  # rows of files, or made
        digest.update(" ".join(samples.names).encode())
    return {"samples": len(samples.names), "sha256": digest.hexdigest(), "files": files}


def fingerprint_code(key: str, name: str, root: Path) -> CodePrint:
    """Fingerprints of the files that a module:function of the user's comes from (truehalf.provenance.user_files), and
    one digest of them all. The module is imported, so that what is wrong with it ends the run here.

    Args:
        key: of the configuration, for the message.

    Raises:
        StageError: when there is no such module or function, or it cannot be imported.
    """
    found = user_files([name], root)
    if not found:
        raise StageError(
            "function-fails",
            f"{key}: {name!r}: expected a module that can be imported from the workspace or is "
            f"installed, found no file of {name.partition(':')[0]!r}",
        )
    imported(key, name, root)
    files = fingerprint_files(found, root)
    digest = hashlib.sha256()
    for place, each in files.items():
        digest.update(f"{place} {each['sha256']} ".encode())
    return {"sha256": digest.hexdigest(), "files": files}


def fingerprint_data(config: Config, root: Path) -> tuple[dict[str, SamplesPrint], dict[str, list[str]]]:
    """What is used for each purpose, and what the source holds and nothing uses, with the reasons.

    Raises:
        StageError: when a sample has two purposes.
    """
    sources = run_sources(config, root)
    samples = {purpose: sources.of(purpose) for purpose in PURPOSES}
    data: dict[str, Json] = plain(config.data)
    settings = {key: value for key, value in data.items() if key not in _SEEN_IN_SAMPLES}
    if config.data.source in _MADE:
        settings |= {"image_size": plain(config.model.image_size), "labelled": config.model.classes is not None}
    found: dict[str, SamplesPrint] = {
        purpose: {"drawn": settings, **fingerprint_samples(each)} for purpose, each in samples.items()
    }
    if samples["calibration"].names == samples["verification"].names:
        found["calibration"]["also_verifies"] = True
    if config.data.annotations is not None and config.data.source is DataSource.coco:
        path = root / config.data.annotations  # only verification reads labels
        found["verification"]["annotations"] = {"file": path.name, **fingerprint(path)}
    if config.data.source is DataSource.npz:
        _digests(samples)
    if config.data.source is DataSource.function:
        name = str(config.data.function)
        code: CodePrint = {"function": name, **fingerprint_code("data.function", name, root)}
        made = _digests(samples)
        for purpose in PURPOSES:  # content, too: what the function reads may change while its code does not
            digest = hashlib.sha256(" ".join(made[purpose]).encode()).hexdigest()
            found[purpose] |= {"code": code, "sha256": digest}
    left_out = samples["verification"].left_out
    return found, {reason: list(names) for reason, names in left_out.items()}


def _digests(samples: Mapping[str, Source]) -> dict[str, list[str]]:
    """SHA-256 of every sample of each purpose, one sample in memory at a time.

    Raises:
        StageError: when two purposes share one.
    """
    first: dict[str, tuple[str, str]] = {}  # purpose and name of the first sample of a content
    digests: dict[str, list[str]] = {}
    shared: list[str] = []
    for purpose, source in samples.items():
        digests[purpose] = [_digest(source.load(number)) for number in range(len(source.names))]
        for name, digest in zip(source.names, digests[purpose], strict=True):
            earlier, of_earlier = first.setdefault(digest, (purpose, name))
            if earlier != purpose and of_earlier != name:  # of one name: a single sample serves both
                shared.append(f"{name} ({purpose}) is {of_earlier} ({earlier})")
    if shared:
        raise StageError(
            "given-twice",
            f"data: samples with two purposes: {some_of(shared)}; what was calibrated with proves "
            "nothing in verification; leave the same samples out, or let data.function return others for each purpose",
        )
    return digests


def _digest(item: LabelledImage | Arrays) -> str:
    """SHA-256 of a sample's content, without its name."""
    return digest_of({"image": np.asarray(item.image)} if isinstance(item, LabelledImage) else item)


def check_plugins(plugins: Sequence[str], root: Path) -> None:
    """Find out before the work that the engine's plugins are not where the configuration says.

    Raises:
        StageError: naming every one that is missing.
    """
    if missing := [plugin for plugin in plugins if not (root / plugin).is_file()]:
        raise StageError(
            "file-missing", f"engine.plugins: no such file: {', '.join(missing)}; give paths from the workspace"
        )
