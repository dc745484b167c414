"""inputs: fingerprints of what a run takes from outside the chain (weights, pictures, a rule of the user's own), so
that a changed file re-runs what depends on it, wherever it lies.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stages.data.samples import PURPOSES, Drawn, drawn
from stages.io import Stage, StageError, stage_main, write_json
from stages.models.sources import source


def fingerprint(path: Path) -> dict[str, Any]:
    """Size in bytes and SHA-256 of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}


def fingerprint_files(paths: Sequence[Path], root: Path) -> dict[str, Any]:
    """Fingerprints of the files of a model's source, folders with all that is in them, by their place.

    Raises:
        StageError: when there is no such file.
    """
    found: dict[str, Any] = {}
    for path in paths:
        if not path.exists():
            raise StageError(
                f"model.checkpoint: no such file: {path}; give the path of the weights, or null for random weights"
            )
        files = sorted(each for each in path.rglob("*") if each.is_file()) if path.is_dir() else [path]
        found |= {_place(each, root): fingerprint(each) for each in files}
    return found


def _place(path: Path, root: Path) -> str:
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name


def fingerprint_samples(samples: Drawn) -> dict[str, Any]:
    """Number of samples, and the files that they come from with SHA-256, in order.

    Made samples (digit scenes, noise) are a function of the configuration: there are no files.
    """
    digest, files = hashlib.sha256(), []
    for path in getattr(samples, "paths", ()):
        files.append({"file": path.name, "sha256": fingerprint(path)["sha256"]})
        digest.update(path.name.encode())
        digest.update(bytes.fromhex(files[-1]["sha256"]))
    return {"samples": len(samples), "sha256": digest.hexdigest(), "files": files}


def fingerprint_rule(rule: str) -> dict[str, Any]:
    """Fingerprint of the file that a custom rule, module:function, is defined in.

    Raises:
        StageError: when there is no such module.
    """
    module = rule.partition(":")[0]
    try:
        found = importlib.util.find_spec(module)
    except ModuleNotFoundError:  # a package around it is missing
        found = None
    if found is None or found.origin is None or not Path(found.origin).is_file():
        raise StageError(
            f"precision.custom_rule: {rule!r}: expected a module that can be imported from the workspace or is "
            f"installed, found no file of {module!r}"
        )
    return fingerprint(Path(found.origin))


def run(stage: Stage) -> dict[str, Any]:
    config, root, out = stage.config, stage.root, stage.out()
    rule, files = config.precision.custom_rule, source(config.model.source).files(config, root)
    used = {
        "custom_rule": None if rule is None else {"rule": rule} | fingerprint_rule(rule),
        "weights": fingerprint_files(files, root),
        **{purpose: fingerprint_samples(drawn(config, root, purpose)) for purpose in PURPOSES},
    }
    for name, content in used.items():  # a file each, so that a stage depends on what it reads and no more
        write_json(out / f"{name}.json", content)
    return used


def main() -> None:
    stage_main("inputs", run, timed=False)  # seconds would change the file each time, and so re-run the chain


if __name__ == "__main__":
    main()
