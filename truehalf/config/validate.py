"""Check a configuration: types first, then the rules of rules.py; every problem at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Protocol

from truehalf.codes import coded
from truehalf.config.rules import RULES
from truehalf.config.schema import Config
from truehalf.config.typed import ConfigErrors, did_you_mean, typed
from truehalf.json_values import Json, JsonObject

# What an entry of model.inputs and model.outputs may leave out, and what it is then: these lists are the user's, so no
# YAML file says it.
_LEFT_OUT: dict[str, dict[str, Json]] = {
    "inputs": {"shape": None},
    "outputs": {"kind": "tensor"}
    | dict.fromkeys(("take", "activation", "format", "normalized", "no_object", "columns", "axis")),
}


class Sources(Protocol):
    """The sources of models: what `model.options` may hold under each, and what they ask of the other keys."""

    def names(self) -> list[str]: ...

    def options_of(self, name: str) -> type: ...

    def problems_of(self, name: str, config: Config) -> Iterable[str]: ...


def completed(values: JsonObject) -> dict[str, Json]:
    """The configuration with all keys of the entries of `model.inputs` and `model.outputs`: what is left out is null;
    an output's `kind` is tensor, the `dtype` of images float32. What is no entry stays as it is, for `validate`.
    """
    model = values.get("model")
    if not isinstance(model, Mapping):
        return dict(values)
    lists = {
        name: [_complete(name, entry) if isinstance(entry, Mapping) else entry for entry in entries]
        for name in _LEFT_OUT
        if isinstance(entries := model.get(name), list)
    }
    return dict(values) | {"model": dict(model) | lists}


def _complete(name: str, entry: JsonObject) -> JsonObject:
    of_images = {"dtype": "float32"} if name == "inputs" and entry.get("kind") == "images" else {}
    return dict(entry) | {key: value for key, value in (of_images | _LEFT_OUT[name]).items() if key not in entry}


def validate(values: JsonObject, sources: Sources | None = None) -> Config:
    """Check a fully resolved configuration (plain dicts, lists and scalars) and return it typed.

    Args:
        values: entries of `model.inputs` and `model.outputs` may leave keys out, see `completed`.
        sources: of models; without them `model.source` and `model.options` are left as they stand.

    Raises:
        ConfigErrors: naming every unknown, missing or mistyped key, every value out of bounds and every broken rule.
    """
    errors: list[str] = []
    config = typed(Config, completed(values), "", errors)
    rules: list[Callable[[Config], Iterable[str]]] = list(RULES)
    if sources is not None and config is not None and config.model is not None:
        config, more = _with_options(config, sources, errors)
        rules += more
    for rule in rules if config is not None else ():
        noted = {key for error in errors for key in _keys_of(error)}
        try:
            for error in rule(config):  # one by one: what it says before it stumbles counts
                if error.partition(":")[0] not in noted:
                    errors.append(error)
        except (TypeError, AttributeError, KeyError):  # a key that the rule reads is missing or mistyped: noted already
            if not noted:
                raise
    if errors:
        raise ConfigErrors(errors)
    assert isinstance(config, Config)
    return config


def _keys_of(error: str) -> tuple[str, str]:
    """The key that an error begins with; of an entry of a list, the list's as well."""
    key = error.partition(":")[0]
    return key, key.partition("[")[0]


def _with_options(
    config: Config, sources: Sources, errors: list[str]
) -> tuple[Config, list[Callable[[Config], Iterable[str]]]]:
    """`model.options` as its source has them, and the source's rules."""
    name = config.model.source
    if name not in sources.names():
        like = did_you_mean(str(name), sources.names())
        expected = f"model.source: expected one of {', '.join(sources.names())}, got {name!r}{like}"
        errors.append(coded("unknown-choice", expected))
        return config, []
    options = typed(sources.options_of(name), config.model.options, "model.options", errors)
    return replace(config, model=replace(config.model, options=options)), [lambda c: sources.problems_of(name, c)]
