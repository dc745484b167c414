"""Section `composed` of params.yaml: the choices, the overrides and the files of conf/ that a configuration comes from.

truehalf/provenance/composed.py compares the files with it when DVC runs the chain.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode

from truehalf.files import file_sha256
from truehalf.json_values import JsonObject

_DIGITS = 12  # of SHA-256, as truehalf.provenance.composed compares them


def composed_section(root: Path) -> JsonObject:
    """Choices by group, overrides of the command line, and digests of the files that Hydra read for the current job.

    Args:
        root: the project; a file in it is named from there, another one by its absolute path.
    """
    hydra = HydraConfig.get()
    overrides = list(hydra.overrides.task)
    choices = {group: choice for group, choice in hydra.runtime.choices.items() if not group.startswith("hydra/")}
    files = {_name(file, root): file_sha256(file)[:_DIGITS] for file in _files(str(hydra.job.config_name), overrides)}
    return {"choices": choices, "overrides": overrides, "files": files}


def _files(config_name: str, overrides: list[str]) -> Iterator[Path]:
    """The YAML files that a composition reads, those of Hydra's own package left out."""
    loader = GlobalHydra.instance().config_loader()
    folders = [Path(source.path) for source in loader.get_sources() if source.scheme() == "file"]
    for entry in loader.compute_defaults_list(config_name, overrides, RunMode.RUN).defaults:
        places = (folder / f"{entry.config_path}.yaml" for folder in folders)
        if (file := next((place for place in places if place.is_file()), None)) is not None:
            yield file


def _name(file: Path, root: Path) -> str:
    return file.relative_to(root).as_posix() if file.is_relative_to(root) else str(file)
