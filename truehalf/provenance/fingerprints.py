"""Fingerprints of weights, samples and code that a run reads: artifacts/inputs/*.json, which stages depend on."""

from __future__ import annotations

import hashlib
import importlib
import importlib.util
import json
from collections.abc import Iterable, Mapping, Sequence
from importlib.machinery import PathFinder
from pathlib import Path
from typing import Any

import numpy as np

from truehalf.config.schema import Config, DataSource
from truehalf.config.typed import plain
from truehalf.data.images import LabelledImage
from truehalf.data.run_samples import run_sources
from truehalf.data.samples import Samples, digest_of
from truehalf.errors import StageError, some_of
from truehalf.files import file_sha256
from truehalf.user_code import PRODUCT, imported, importing_from

Print = dict[str, Any]  # as JSON
# Keys of `data` left out of the settings: files have fingerprints, and the samples' names show their number.
_SEEN_IN_SAMPLES = {"folder", "annotations", "file", "function", "calibration_samples", "verification_samples"}
_NO_IDENTITY = {"name", "checkpoint"}  # of `model`: what a model is called, and where its weights lie


def fingerprint(path: Path) -> Print:
    """Size in "bytes" and "sha256" of a file."""
    return {"bytes": path.stat().st_size, "sha256": file_sha256(path)}


def fingerprint_files(paths: Iterable[Path], root: Path) -> Print:
    """Fingerprints of files, and of all files in folders, by their place in the workspace; of those elsewhere by their
    place beside the file or folder that was named, from as far up as it takes to tell them apart.

    What Python compiles beside its sources is left out: it changes by being imported.

    Raises:
        StageError: file-missing.
    """
    prints: Print = {}
    for path in sorted(paths, key=lambda path: not path.is_relative_to(root)):
        if not path.exists():
            message = f"model.checkpoint: no such file: {path}; give its path, or null where the source takes none"
            raise StageError("file-missing", message)
        for file in sorted(path.rglob("*")) if path.is_dir() else [path]:
            if not file.is_file() or "__pycache__" in file.parts:
                continue
            parts = len(file.relative_to(root if file.is_relative_to(root) else path.parent).parts)
            while (name := Path(*file.parts[-parts:]).as_posix()) in prints and parts < len(file.parts):
                parts += 1
            prints[name] = fingerprint(file)
    return prints


def fingerprint_model(config: Config, files: Sequence[Path], root: Path) -> Print:
    """Fingerprint of the configured model.

    Args:
        files: of its source (truehalf.models.sources).
        root: the workspace.

    Returns:
        "sha256": 12 digits, the same for the same weights, code and settings, wherever the files lie; "files": see
        fingerprint_files; "seed"; "settings": of `model` and `decoder`, without the model's name.

    Raises:
        StageError: see fingerprint_files.
    """
    settings = {key: value for key, value in plain(config.model).items() if key not in _NO_IDENTITY}
    settings["decoder"] = config.decoder.name.value
    prints = fingerprint_files(files, root)
    is_random = config.model.checkpoint is None and getattr(config.model.options, "random", True)
    content = [settings, sorted(each["sha256"] for each in prints.values()), config.seed if is_random else None]
    digest = _sha256(json.dumps(content, sort_keys=True))
    return {"sha256": digest[:12], "files": prints, "seed": config.seed, "settings": settings}


def fingerprint_code(key: str, name: str, root: Path) -> Print:
    """Fingerprints of the files that a module:function of the user's comes from (`user_files`), and
    one digest of them all: {"sha256": digest, "files": {place: fingerprint}}. The module is imported, so that what is
    wrong with it ends the run here.

    Args:
        key: of the configuration, for the message.

    Raises:
        StageError: when there is no such module or function, or it cannot be imported.
    """
    imported(key, name, root)
    files = fingerprint_files(user_files([name], root), root)
    return {"sha256": _sha256(json.dumps(files)), "files": files}


def user_files(names: Sequence[str], root: Path) -> list[Path]:
    """List the files that each module:function comes from, without running any of it: a module's file, at the top of
    the workspace all modules there, or all sources of its top-level package. None of an unknown module, and none of the
    product's code: stages depend on that by themselves (dvc.yaml).

    Args:
        root: the workspace, an absolute path, searched before what is installed.
    """
    importlib.invalidate_caches()  # a file may have come since the folder was last looked at
    files: dict[Path, None] = {}
    for top in dict.fromkeys(name.partition(":")[0].partition(".")[0] for name in names):
        with importing_from(root):
            spec = PathFinder.find_spec(top) or importlib.util.find_spec(top)  # an editable install has another finder
        places = [] if spec is None else spec.submodule_search_locations or filter(None, [spec.origin])
        for place in map(Path, places):
            if place.is_dir():
                modules = sorted(place.rglob("*.py"))
            else:
                modules = sorted(root.glob("*.py")) if place.parent == root else [place]
            if not any(place.resolve().is_relative_to(room) for room in PRODUCT):
                files |= dict.fromkeys(modules)
    return [file for file in files if file.is_file()]


def fingerprint_data(config: Config, root: Path) -> tuple[dict[str, Print], Print]:
    """Fingerprint the samples of each purpose, and list what the source holds and nothing uses, with the reasons.

    Returns:
        by purpose all that determines its samples: "drawn": the settings by which the source chooses or makes them;
        "samples": their number; "sha256": of their names and files, of a function's of their content, unless it reads
        no files; "files": [{"file": place, "sha256": digest}]; "annotations": fingerprint of the labels' file; "code":
        of a function, see fingerprint_code; "also_verifies": true of a sample to calibrate with that is the one to
        verify with, too.

    Raises:
        StageError: given-twice for a sample of two purposes.
    """
    data, sources = config.data, run_sources(config, root)
    settings = {key: value for key, value in plain(data).items() if key not in _SEEN_IN_SAMPLES}
    if data.source is DataSource.random:
        settings["image_size"] = plain(config.model.image_size)
    prints = {purpose: {"drawn": settings, **_of_files(source)} for purpose, source in sources.items()}
    if sources["calibration"].names == sources["verification"].names:
        prints["calibration"]["also_verifies"] = True
    if data.source is DataSource.coco:
        path = root / str(data.annotations)  # only verification reads labels
        prints["verification"]["annotations"] = {"file": path.name, **fingerprint(path)}
    if data.source is DataSource.npz:
        _digests(sources)
    if data.source is DataSource.function:
        name = str(data.function)
        code = {"function": name, **fingerprint_code("data.function", name, root)}
        reads_files = getattr(imported("data.function", name, root), "reads_files", True)
        for purpose, digests in (_digests(sources) if reads_files else {}).items():
            prints[purpose]["sha256"] = _sha256(" ".join(digests))  # what it reads may change while its code does not
        for each in prints.values():
            each["code"] = code
    return prints, plain(sources["verification"].left_out)


def _of_files(samples: Samples) -> Print:
    """Number of samples, and the files that they come from with SHA-256: by their place in the source's folder, in
    order. Samples without files are known by their names.
    """
    digests = {samples.place(path): file_sha256(path) for path in dict.fromkeys(samples.paths)}
    return {
        "samples": len(samples),
        "sha256": _sha256(json.dumps([samples.names, digests])),
        "files": [{"file": name, "sha256": digest} for name, digest in digests.items()],
    }


def _digests(sources: Mapping[str, Samples]) -> dict[str, list[str]]:
    """SHA-256 of the content of every sample of each purpose, one sample in memory at a time.

    Raises:
        StageError: given-twice, when two purposes share one.
    """
    first: dict[str, tuple[str, str]] = {}  # purpose and name of the first sample of a content
    shared: list[str] = []
    digests = {purpose: list(map(_digest, source)) for purpose, source in sources.items()}
    for purpose, source in sources.items():
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


def _digest(item: Any) -> str:
    return digest_of({"image": np.asarray(item.image)} if isinstance(item, LabelledImage) else item)


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def check_plugins(plugins: Sequence[str], root: Path) -> None:
    """Find out before the work that the engine's plugins are not where the configuration says.

    Raises:
        StageError: naming every one that is missing.
    """
    if missing := [plugin for plugin in plugins if not (root / plugin).is_file()]:
        raise StageError(
            "file-missing", f"engine.plugins: no such file: {', '.join(missing)}; give paths from the workspace"
        )
