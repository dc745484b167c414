"""Arguments of Hydra, and the way from what it has composed to plain values, ready to be checked."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, cast

from omegaconf import DictConfig, OmegaConf, open_dict

from pipeline.forms import Params
from truehalf.config.precision import Precision, PrecisionName
from truehalf.config.schema import Config
from truehalf.config.typed import plain
from truehalf.config.validate import as_typed, completed

# Mappings with keys of the user's own.
_OPEN = re.compile(r"(model\.options\.kwargs|trace\.dynamic_axes|engine\.memory_pools_gb)(\.[^=]+)?=")


def opened(arguments: Sequence[str]) -> list[str]:
    """The command line with Hydra's sign for a key that may be new, `++`, before mappings whose keys are the user's
    own, and what is in them: model.options.kwargs.classes=5 is ++model.options.kwargs.classes=5.
    """
    return [f"++{each}" if _OPEN.match(each) else each for each in arguments]


def resolved(config: DictConfig) -> Params:
    """The configuration as plain dicts, lists and scalars, every interpolation resolved, every key there.

    A `model.image_size` that is no pair stays as it was given, for the check to name it: other keys are made of its two
    sides, and could not be resolved.

    Raises:
        OmegaConfBaseException: when an interpolation cannot be resolved.
    """
    plain: Any = OmegaConf.to_container(config)
    size = plain["model"].get("image_size")
    if (isinstance(size, list) and len(size) == 2) or (isinstance(size, str) and "${" in size):
        return _completed(config)
    replaced = config.copy()
    with open_dict(replaced):
        OmegaConf.update(replaced, "model.image_size", [None, None])
    values = _completed(replaced)
    values["model"]["image_size"] = size
    return values


def effective(values: Params, config: Config) -> Params:
    """A checked configuration in which all that has the same effect is written the same way: a number as its type has
    it, and in FP32 nothing of `precision` but its dtype.

    Stages list `precision` as a whole, so that a sweep over both precisions and a threshold of FP16 would verify the
    same FP32 file once for each threshold.

    Args:
        values: plain ones.
        config: the same, as the check has returned it.
    """
    typed: Params = as_typed(values, config)
    if typed["precision"]["dtype"] != PrecisionName.fp32.value:
        return typed
    return {**typed, "precision": plain(Precision(dtype=PrecisionName.fp32))}


def _completed(config: DictConfig) -> Params:
    values: Any = OmegaConf.to_container(config, resolve=True)
    return cast("Params", completed(values))
