"""Read a configuration as its types, check the rules of rules.py and of the model's source: every problem at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Protocol

from truehalf.codes import coded
from truehalf.config.named_files import missing_files
from truehalf.config.rules import RULES
from truehalf.config.schema import Config
from truehalf.config.typed import ConfigErrors, did_you_mean, note, typed
from truehalf.json_values import JsonObject


class Sources(Protocol):
    """The sources of models: the type of `model.options` under each, and its rules for the other keys."""

    def names(self) -> list[str]: ...

    def options_of(self, name: str) -> type: ...

    def problems_of(self, name: str, config: Config) -> Iterable[str]: ...


def validate(values: JsonObject, sources: Sources | None = None, root: Path | None = None) -> Config:
    """Check a fully resolved configuration (plain dicts, lists and scalars) and return it typed.

    Args:
        values: a key that is left out takes its default in the section's dataclass.
        sources: of models; without them `model.source` and `model.options` are left as they stand.
        root: of the workspace, in which named files have to exist; None: they are not looked for.

    Raises:
        ConfigErrors: naming every unknown, missing or mistyped key, every value out of bounds, every broken rule and
            every missing file.
    """
    errors: list[str] = []
    config: Config = typed(Config, values, "", errors)
    rules: list[Callable[[Config], Iterable[str]]] = list(RULES)
    if sources is not None and config is not None and config.model is not None:
        name = config.model.source
        if name in sources.names():
            options = typed(sources.options_of(name), config.model.options, "model.options", errors)
            config = replace(config, model=replace(config.model, options=options))
            rules.append(partial(sources.problems_of, name))
        else:
            like = did_you_mean(str(name), sources.names())
            message = f"model.source: expected one of {', '.join(sources.names())}, got {name!r}{like}"
            errors.append(coded("unknown-choice", message))
    if root is not None:
        rules.append(partial(missing_files, root=root))
    for rule in rules:
        note(partial(rule, config), "", errors)
    if errors:
        raise ConfigErrors(errors)
    return config
