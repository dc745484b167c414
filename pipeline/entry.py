"""From Hydra's composed configuration to a run: plain values, checked, and run."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from typing import Any

from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pipeline.composed import composed_section
from pipeline.run import NOT_BEGUN, run
from pipeline.track import missing_address
from pipeline.workspace import git_problems, lock_problems, root
from truehalf.codes import coded
from truehalf.config.params import COMPOSED
from truehalf.config.precision import Precision, PrecisionName
from truehalf.config.schema import Config
from truehalf.config.typed import ConfigErrors, plain
from truehalf.models.configuration import validated

REFUSALS = (ConfigErrors, OmegaConfBaseException)
# Mappings whose keys the user defines: Hydra wants `++` before a key that may be new.
_OPEN_KEYS = re.compile(r"(model\.options\.kwargs|trace\.dynamic_axes)(\.[^=]+)?=")
# Lines of OmegaConf's errors about its insides, and Hydra's advice to append a key, which no run would read.
_NOISE = ("full_key:", "object_type=", "reference_type=", "To append to your config", "See https:")


def with_open_keys(arguments: Sequence[str]) -> list[str]:
    """The command line with `++` before keys of open mappings: model.options.kwargs.classes=5 gets it."""
    return [f"++{each}" if _OPEN_KEYS.match(each) else each for each in arguments]


def hydra_message(error: Exception) -> str:
    """One line for an error of Hydra's or OmegaConf's: an unknown key or choice, or an argument that is no override."""
    lines: list[str] = []
    for each in (error, error.__cause__):
        text = "" if each is None or str(each) == "None" else str(each).partition("Config search path")[0]
        lines += [
            line for part in text.splitlines() if (line := " ".join(part.split())) and not line.startswith(_NOISE)
        ]
    code = "unknown-key"
    if isinstance(error, OverrideParseException):
        code = "bad-syntax"
    elif isinstance(error, MissingConfigException):
        code = "unknown-choice"
    if (override := getattr(error, "override", None)) and override not in lines[0]:
        lines.insert(0, f"{override}:")
    return coded(code, f"configuration: {' '.join(dict.fromkeys(lines))}")


def execute(config: DictConfig) -> int:
    """Run a configuration; return the exit code: 0, 1 for a failure, 2 for bad input, 130 for Ctrl-C."""
    try:
        values = composed_values(config)
    except REFUSALS as error:
        print(refusal_text(error), file=sys.stderr)
        return NOT_BEGUN
    return run(root(), values)


def composed_values(config: DictConfig) -> dict[str, Any]:
    """A configuration as params.yaml holds it.

    Raises:
        ConfigErrors: every error of it, missing files included.
        OmegaConfBaseException: an interpolation that cannot be resolved.
    """
    return effective_values(checked(plain_values(config))) | {COMPOSED: composed_section(root())}


def refusal_text(error: Exception) -> str:
    """The lines that are printed for one of REFUSALS."""
    return str(error) if isinstance(error, ConfigErrors) else hydra_message(error)


def plain_values(config: DictConfig) -> dict[str, Any]:
    """The configuration as dicts, lists and scalars, every interpolation resolved.

    Raises:
        OmegaConfBaseException: an interpolation that cannot be resolved.
    """
    values: Any = OmegaConf.to_container(config, resolve=True)
    return dict(values)


def checked(values: dict[str, Any]) -> Config:
    """The configuration, typed.

    Raises:
        ConfigErrors: every error of it, missing files included.
    """
    surroundings = [*lock_problems(root()), *git_problems(root())]
    try:
        config = validated(values, root())
    except ConfigErrors as error:
        raise ConfigErrors([*error.errors, *surroundings]) from error
    if errors := [*missing_address(values["tracking"]), *surroundings]:
        raise ConfigErrors(errors)
    return config


def effective_values(config: Config) -> dict[str, Any]:
    """A checked configuration as params.yaml holds it: numbers as their types have them, since DVC, MLflow and
    comparisons take 512 and 512.0 for different values; in FP32 nothing of `precision` but its dtype, since stages list
    that section as a whole and would verify the same FP32 file once for each of its values.
    """
    values: dict[str, Any] = plain(config)
    if config.precision.dtype is PrecisionName.fp32:
        values["precision"] = plain(Precision(dtype=PrecisionName.fp32))
    return values
