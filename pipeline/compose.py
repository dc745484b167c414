"""Arguments of Hydra, its errors, and the way from what it has composed to plain values, ready to be checked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

from hydra.errors import MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf

from pipeline.forms import Params
from truehalf.codes import coded
from truehalf.config.precision import Precision, PrecisionName
from truehalf.config.schema import Config
from truehalf.config.typed import plain
from truehalf.config.validate import completed

# Mappings whose keys the user defines.
_OPEN = re.compile(r"(model\.options\.kwargs|trace\.dynamic_axes|engine\.memory_pools_gb)(\.[^=]+)?=")


def opened(arguments: Sequence[str]) -> list[str]:
    """The command line with Hydra's sign for a key that may be new, `++`, before mappings whose keys the user
    defines, and what is in them: model.options.kwargs.classes=5 is ++model.options.kwargs.classes=5.
    """
    return [f"++{each}" if _OPEN.match(each) else each for each in arguments]


def sentence(error: Exception) -> str:
    """One line for an error of Hydra's or OmegaConf's: a key or choice that there is not, or no key=value."""
    lines: list[str] = []
    for each in (error, error.__cause__):
        text = "" if each is None or str(each) == "None" else str(each).partition("Config search path")[0]
        lines += [line for part in text.splitlines() if (line := " ".join(part.split())) and not _is_aside(line)]
    code = "unknown-key"
    if isinstance(error, OverrideParseException):
        code = "bad-syntax"
    elif isinstance(error, MissingConfigException):
        code = "unknown-choice"
    if (override := getattr(error, "override", None)) and override not in lines[0]:
        lines.insert(0, f"{override}:")
    return coded(code, f"configuration: {' '.join(dict.fromkeys(lines))}")


def _is_aside(line: str) -> bool:
    """True for lines with insides of OmegaConf, or with advice that leads to a key which no run reads."""
    return line.startswith(("full_key:", "object_type=", "reference_type=", "To append to your config", "See https:"))


def resolved(config: DictConfig) -> Params:
    """The configuration as plain dicts, lists and scalars, every interpolation resolved, every key there.

    Raises:
        OmegaConfBaseException: when an interpolation cannot be resolved.
    """
    values: Any = OmegaConf.to_container(config, resolve=True)
    return completed(values)


def effective(config: Config) -> Params:
    """A checked configuration in which all that has the same effect is written the same way: a number as its type has
    it, and in FP32 nothing of `precision` but its dtype.

    Stages list `precision` as a whole, so that a sweep over both precisions and a threshold of FP16 would verify the
    same FP32 file once for each threshold.

    DVC, MLflow and comparisons of runs go by what is written, and would take 512 and 512.0 for different values.

    Args:
        config: as the check has returned it.
    """
    typed: Params = plain(config)
    if typed["precision"]["dtype"] != PrecisionName.fp32.value:
        return typed
    return {**typed, "precision": plain(Precision(dtype=PrecisionName.fp32))}
