"""inputs: fingerprints of what a run takes from outside the chain (weights, pictures, a rule of the user's own), so
that a changed file re-runs what depends on it, wherever it lies.
"""

from __future__ import annotations

import hashlib
import importlib.util
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stages.data.samples import (
    TRACE_SAMPLES,
    ImageSamples,
    Sample,
    calibration_samples,
    trace_samples,
    verification_samples,
)
from stages.io import Stage, StageError, stage_main, write_json


def fingerprint(path: Path) -> dict[str, Any]:
    """Size in bytes and SHA-256 of a file."""
    with path.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()
    return {"bytes": path.stat().st_size, "sha256": digest}


def fingerprint_weights(path: Path) -> dict[str, Any]:
    """Fingerprint of a weights file.

    Raises:
        StageError: when there is no such file.
    """
    if not path.is_file():
        raise StageError(
            f"model.weights: no such file: {path}; give the path of a .safetensors file, or null for random weights"
        )
    return fingerprint(path)


def fingerprint_samples(samples: Sequence[Sample]) -> dict[str, Any]:
    """Number of samples and one SHA-256 over their names and, where they are files, their content.

    Made samples (digit scenes) are a function of the configuration: their names say it all.
    """
    digest = hashlib.sha256()
    for path in samples.paths if isinstance(samples, ImageSamples) else ():
        digest.update(path.name.encode())
        digest.update(bytes.fromhex(fingerprint(path)["sha256"]))
    return {"samples": len(samples), "sha256": digest.hexdigest()}


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


def check_plugins(plugins: Sequence[str], root: Path) -> None:
    """Find out before the work that the engine's plugins are not where the configuration says.

    Raises:
        StageError: naming every one that is missing.
    """
    if missing := [plugin for plugin in plugins if not (root / plugin).is_file()]:
        raise StageError(f"engine.plugins: no such file: {', '.join(missing)}; give paths from the workspace")


def run(stage: Stage) -> dict[str, Any]:
    config, out = stage.config, stage.out()
    check_plugins(config.engine.plugins, stage.root)
    weights, rule = config.model.weights, config.precision.custom_rule
    used = {
        "custom_rule": None if rule is None else {"rule": rule} | fingerprint_rule(rule),
        "weights": None if weights is None else {"file": weights} | fingerprint_weights(stage.root / weights),
        "trace": fingerprint_samples(trace_samples(config, TRACE_SAMPLES, stage.root)),
        "calibration": fingerprint_samples(calibration_samples(config, stage.root)),
        "verification": fingerprint_samples(verification_samples(config, stage.root)),
    }
    for name, content in used.items():  # a file each, so that a stage depends on what it reads and no more
        write_json(out / f"{name}.json", content)
    return used


def main() -> None:
    stage_main("inputs", run, timed=False)  # seconds would change the file each time, and so re-run the chain


if __name__ == "__main__":
    main()
