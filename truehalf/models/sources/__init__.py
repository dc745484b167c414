"""Sources of models: one file each, called as `model.source` calls it, with

Options                      a frozen dataclass: what `model.options` may hold, with the types; defaults are in YAML
problems(config)             what is wrong with the keys of `model` beyond their types: a sentence each, with its code
files(config, root)          its files and folders (weights, configurations), for the fingerprints of `inputs`
open_model(config, root)     the model as its source gives it: truehalf.models.model.Model
"""

from __future__ import annotations

import importlib
import pkgutil
from pathlib import Path
from types import ModuleType

from truehalf.config.schema import Config


def names() -> list[str]:
    """Every source, by its name."""
    return sorted(module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))


def source(name: str) -> ModuleType:
    """The file of a source.

    Raises:
        KeyError: when there is none of this name.
    """
    if name not in names():
        raise KeyError(name)
    return importlib.import_module(f"{__name__}.{name}")


def options_of(name: str) -> type:
    """The type of `model.options` under a source.

    Raises:
        KeyError: when there is no source of this name.
    """
    options: type = source(name).Options
    return options


def problems_of(name: str, config: Config) -> list[str]:
    """What a source finds wrong with `model.*`.

    Raises:
        KeyError: when there is no source of this name.
    """
    return list(source(name).problems(config))
