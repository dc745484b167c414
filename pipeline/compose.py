"""Arguments of Hydra, and the way from what it has composed to plain values, ready to be checked."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import is_dataclass
from itertools import pairwise
from typing import Any, ClassVar, cast, get_origin, get_type_hints

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf

from pipeline.forms import Params
from pipeline.workspace import CONF
from truehalf.codes import coded
from truehalf.config.precision import Precision, PrecisionName
from truehalf.config.schema import Config
from truehalf.config.typed import did_you_mean, plain
from truehalf.config.validate import completed
from truehalf.files import read_yaml

# Precisions that people ask for and that conf/precision has no file of, with the reason.
_NO_PRECISION = {
    "auto": "fp16 decides node by node, by rules and measured ranges, and search=frontier looks for faster files",
    "bf16": "its 8 bits of mantissa are too few for coordinates and scores, and it is no faster than FP16",
    **dict.fromkeys(
        ("fp8", "int4", "int8"),
        "it needs scales from a quantizer, which is another tool's work, such as NVIDIA's Model Optimizer",
    ),
}
# Mappings whose keys the user defines.
_OVERRIDE = re.compile(r"(\w[\w./]*)(?:@[^=]*)?=(.*)", re.DOTALL)
_FLAGS = ("-m", "--multirun", "-r", "--run", "--resolve", "--verbose")  # without a value
_OPTIONS = "model.options."  # whose keys are those of the model's source
_OPEN = re.compile(r"(model\.options\.kwargs|trace\.dynamic_axes|engine\.memory_pools_gb)(\.[^=]+)?=")


def opened(arguments: Sequence[str]) -> list[str]:
    """The command line with Hydra's sign for a key that may be new, `++`, before mappings whose keys the user
    defines, and what is in them: model.options.kwargs.classes=5 is ++model.options.kwargs.classes=5.
    """
    return [f"++{each}" if _OPEN.match(each) else each for each in arguments]


def mistyped(arguments: Sequence[str]) -> list[str]:
    """What is wrong with the names on a command line: keys and choices that there are none of, a line each, with those
    most like them. Values are checked later, when the configuration is composed.
    """
    told = [found.groups() for each in arguments if (found := _OVERRIDE.fullmatch(each))]
    models = [name for key, value in told if key == "model" for name in value.split(",")]
    models = models or [path.stem for path in (CONF / "model").glob("*.yaml")]  # an experiment may choose one
    parser = OverridesParser.create()
    bare = [each for before, each in pairwise(["", *arguments]) if not _is_parsed(parser, each, before)]
    errors = [error for key, value in told for error in _wrong(key, value, models)]
    if bare:
        expected = "expected key=value; quote all of it where it holds spaces, and the value once more where it holds ="
        errors.append(coded("bad-syntax", f"{' '.join(bare)}: {expected}: 'data.folder=\"a=b\"'"))
    return errors


def _is_parsed(parser: OverridesParser, argument: str, before: str) -> bool:
    """Whether Hydra can read it, or it is a flag of Hydra's, or the value of one."""
    if argument[:1] == "-" or (before[:1] == "-" and before not in _FLAGS):
        return True
    try:
        parser.parse_override(argument)
    except HydraException:
        return False
    return True


def _wrong(key: str, value: str, models: Sequence[str]) -> Iterator[str]:
    if key.split("/")[0].split(".")[0] == "hydra":  # with choices that other packages bring
        return
    if (CONF / key).is_dir():
        if value.startswith("{"):  # keys of the group's section
            with contextlib.suppress(HydraException):  # what cannot be read is said already
                given: Any = OverridesParser.create().parse_override(f"{key}={value}").value()
                yield from (error for name in given for error in _wrong(f"{key}.{name}", "", models))
        choices = sorted(path.stem for path in (CONF / key).glob("*.yaml"))
        for name in () if value.startswith(tuple("[{'\"$")) else value.split(","):
            if name not in (*choices, "null"):
                why = f"; there is no {name}: {_NO_PRECISION[name]}" if name in _NO_PRECISION else ""
                why = why or did_you_mean(name, choices)
                yield coded("unknown-choice", f"{key}={name}: expected one of {', '.join(choices)}{why}")
        return
    keys = _keys(Config)
    if key.startswith(_OPTIONS):
        keys = [each for each in keys if not each.startswith(_OPTIONS)]
        keys += [f"{_OPTIONS}{each}" for name in models for each in _below(_options(name))]
    if not any(key == known or (known.endswith(".") and key.startswith(known)) for known in keys):
        groups = [path.name for path in CONF.iterdir() if path.is_dir()]
        likely = did_you_mean(key, [*(known.rstrip(".") for known in keys), *groups])
        yield coded("unknown-key", f"{key}: unknown key{likely or '; python -m pipeline --help-all lists them'}")


def _options(model: str) -> dict[str, Any]:
    """What is under `options` in the file of a choice, and in those that it starts from."""
    path = CONF / "model" / f"{model}.yaml"
    content = read_yaml(path) if path.is_file() else None
    content = content if isinstance(content, dict) else {}
    bases = [each for each in content.get("defaults") or () if isinstance(each, str) and each not in ("_self_", model)]
    found: dict[str, Any] = {}
    for each in [*map(_options, bases), content.get("options") or {}]:
        found |= each
    return found


def _below(options: Mapping[str, Any], prefix: str = "") -> Iterator[str]:
    """Dotted keys; one that holds nothing yet, below which there may be any, ends with a dot, too."""
    for name, value in options.items():
        yield f"{prefix}{name}"
        if isinstance(value, Mapping) and value:
            yield from _below(value, f"{prefix}{name}.")
        elif value is None or value == {}:
            yield f"{prefix}{name}."


def _keys(section: type, prefix: str = "") -> list[str]:
    """Dotted keys of a section; one whose keys depend on other values, or are the user's, ends with a dot, too."""
    found = []
    for name, expected in get_type_hints(section).items():
        if get_origin(expected) is ClassVar:
            continue
        path = f"{prefix}{name}"
        found.append(path)
        if is_dataclass(expected):
            found += _keys(cast("type", expected), f"{path}.")
        elif expected is Any or get_origin(expected) in (dict, Mapping):
            found.append(f"{path}.")
    return found


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
