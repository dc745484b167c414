"""Configurations for tests: the files of conf/ and keys by their dotted names, put together without Hydra.

tests/pipeline/test_compose.py holds them against what Hydra composes, choice by choice.
"""

from __future__ import annotations

import copy
import functools
import re
from pathlib import Path
from typing import Any

import yaml

from tests.measuring.shipped import CONF, shipped

_KEY = re.compile(r"\$\{([\w.]+)(?:\[(\d+)\])?\}")


def composed(*overrides: str) -> dict[str, Any]:
    """A run's configuration, fully resolved: the defaults, with choices (`precision=fp32`) and keys (`seed=1`, a value
    as YAML has it; a new key is added).
    """
    return copy.deepcopy(_composed(overrides))


@functools.cache
def _composed(overrides: tuple[str, ...]) -> dict[str, Any]:
    told = dict(each.split("=", 1) for each in overrides)
    values = _file("config")
    choices = _choices(values.pop("defaults"))
    del values["hydra"]
    choices |= _choices_of_model(told.get("model", choices["model"]))
    choices |= {group: told.pop(group) for group in choices if group in told}
    experiment = choices.pop("experiment")
    values |= {group: _file(f"{group}/{choice}") for group, choice in choices.items()}
    if experiment:
        values = _merged(values, _file(f"experiment/{experiment}"))
        values.pop("hydra", None)
    for key, text in told.items():
        *sections, last = key.split(".")
        functools.reduce(lambda section, name: section[name], sections, values)[last] = yaml.safe_load(text)
    resolved = _resolved(values, values)
    assert isinstance(resolved, dict)
    return resolved


def write_params(folder: Path, *overrides: str) -> None:
    """params.yaml of a scratch workspace, without the pipeline."""
    (folder / "params.yaml").write_text(yaml.safe_dump(composed(*overrides)))


def _choices(defaults: list[Any]) -> dict[str, Any]:
    """Group and choice, of a list of defaults: `decoder: dfine`, or `override /decoder@_global_.decoder: none`."""
    entries = (entry for entry in defaults if isinstance(entry, dict))
    named = {key.removeprefix("override /").split("@")[0]: choice for entry in entries for key, choice in entry.items()}
    return {group: choice for group, choice in named.items() if (CONF / group).is_dir()}


def _choices_of_model(name: str) -> dict[str, Any]:
    """What a model chooses of other groups, and before that what the one does that it starts from."""
    defaults = shipped(f"model/{name}").get("defaults", [])
    below = (_choices_of_model(entry) for entry in defaults if isinstance(entry, str) and entry != "_self_")
    return {group: choice for each in [*below, _choices(defaults)] for group, choice in each.items()}


def _file(name: str) -> dict[str, Any]:
    """A file of conf/, on top of the one of its group that its defaults name."""
    content = shipped(name)
    if "/" in name:
        for entry in content.pop("defaults", []):
            if isinstance(entry, str) and entry != "_self_":
                content = _merged(_file(f"{name.split('/')[0]}/{entry}"), content)
    return content


def _merged(base: Any, above: Any) -> Any:
    if not (isinstance(base, dict) and isinstance(above, dict)):
        return above
    return base | {key: _merged(base.get(key), value) for key, value in above.items()}


def _resolved(value: Any, values: dict[str, Any]) -> Any:
    """`value` with what `${section.key}` and `${section.key[0]}` stand for."""
    if isinstance(value, dict):
        return {key: _resolved(item, values) for key, item in value.items()}
    if isinstance(value, list):
        return [_resolved(item, values) for item in value]
    if not isinstance(value, str) or not _KEY.search(value):
        return value

    def found(match: re.Match[str]) -> Any:
        at = functools.reduce(lambda section, name: section[name], match[1].split("."), values)
        return at if match[2] is None else at[int(match[2])]

    whole = _KEY.fullmatch(value)
    return found(whole) if whole else _KEY.sub(lambda match: str(found(match)), value)
