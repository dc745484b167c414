"""Check a configuration: types first, then the rules of rules.py; every fault at once."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass, replace
from enum import Enum
from types import UnionType
from typing import Any, Protocol, get_args, get_origin, get_type_hints

from truehalf.codes import coded
from truehalf.config.rules import HEIGHT_AND_WIDTH, RULES, faults_of_engine, faults_of_precision
from truehalf.config.schema import Config, EngineConfig, PrecisionConfig

_NAMES = {bool: "true or false", int: "an integer", float: "a number", str: "text"}
_EXPECTED = {"model.image_size": HEIGHT_AND_WIDTH}  # where a type alone would not say enough
# Keys that the YAML files fill in from another key. What is wrong with that one would be said again of each.
_DERIVED = {"model.image_size": ("trace.input_shape",)}
# What an entry of model.inputs and model.outputs may leave out, and what it is then: these lists are the user's, so no
# YAML file says it.
_LEFT_OUT: dict[str, dict[str, Any]] = {
    "inputs": {"shape": None},
    "outputs": {"kind": "tensor"} | dict.fromkeys(("take", "activation", "format", "normalized", "no_object")),
}


class ConfigErrors(ValueError):
    """Everything that is wrong with a configuration, one line each in `errors`, with its code."""

    def __init__(self, errors: list[str]) -> None:
        self.errors = errors
        count = "1 error" if len(errors) == 1 else f"{len(errors)} errors"
        super().__init__(f"configuration: {count}\n" + "\n".join(f"  - {error}" for error in errors))


class Sources(Protocol):
    """The sources of models: what `model.options` may hold under each, and what they ask of the other keys."""

    def names(self) -> list[str]: ...

    def options_of(self, name: str) -> type: ...

    def faults_of(self, name: str, config: Config) -> Iterable[str]: ...


def completed(values: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration with all keys of the entries of `model.inputs` and `model.outputs`: what is left out is null;
    an output's `kind` is tensor, the `dtype` of pictures float32. What is no entry stays as it is, for `validate`.
    """
    model = values.get("model")
    if not isinstance(model, Mapping):
        return dict(values)
    lists = {
        name: [_complete(name, entry) if isinstance(entry, Mapping) else entry for entry in model[name]]
        for name in _LEFT_OUT
        if isinstance(model.get(name), list)
    }
    return dict(values) | {"model": dict(model) | lists}


def _complete(name: str, entry: Mapping[str, Any]) -> dict[str, Any]:
    of_pictures = {"dtype": "float32"} if name == "inputs" and entry.get("kind") == "images" else {}
    return dict(entry) | {key: value for key, value in (of_pictures | _LEFT_OUT[name]).items() if key not in entry}


def as_typed(values: Any, typed: Any) -> Any:
    """Plain values of a configuration, each number as its type has it: 512 of a key of type float is 512.0. DVC, MLflow
    and whoever compares runs go by what is written, and would take the two for different values.

    Args:
        values: dicts, lists and scalars.
        typed: what `validate` has returned for them.
    """
    if isinstance(values, Mapping):
        of = typed if isinstance(typed, Mapping) else vars(typed)
        return {key: as_typed(value, of[key]) for key, value in values.items()}
    if isinstance(values, list):
        return [as_typed(value, item) for value, item in zip(values, typed, strict=True)]
    return typed if isinstance(typed, float) else values


def validate(values: Mapping[str, Any], sources: Sources | None = None) -> Config:
    """Check a fully resolved configuration (plain dicts, lists and scalars) and return it typed.

    Args:
        values: entries of `model.inputs` and `model.outputs` may leave keys out, see `completed`.
        sources: of models; without them `model.source` and `model.options` are left as they stand.

    Raises:
        ConfigErrors: naming every unknown, missing or mistyped key, every value out of bounds and every broken rule.
    """
    errors: list[str] = []
    config = _typed(Config, completed(values), "", errors)
    rules: list[Callable[[Config], Iterable[str]]] = list(RULES)
    if sources is not None and config is not None and config.model is not None:
        config, more = _with_options(config, sources, errors)
        rules += more
    mistyped = {error.partition(":")[0] for error in errors}
    for rule in rules if config is not None else ():
        try:
            for error in rule(config):  # one by one: what it says before it stumbles counts
                if error.partition(":")[0] not in mistyped:
                    errors.append(error)
        except (TypeError, AttributeError, KeyError):  # a key that the rule reads is missing or mistyped: noted already
            if not mistyped:
                raise
    if errors:
        raise ConfigErrors(_without_derived(errors))
    assert isinstance(config, Config)
    return config


def _without_derived(errors: list[str]) -> list[str]:
    """The errors, without those of keys that are derived from one at fault. Of that one its sides' types are enough, if
    they are wrong, and that it is no pair, if it is none.
    """
    for source, derived in _DERIVED.items():
        of_source = [error for error in errors if error.startswith(source)]
        if of_source:
            kept = [
                error for error in of_source if error.startswith(f"{source}[") or HEIGHT_AND_WIDTH in error
            ] or of_source
            errors = [error for error in errors if error in kept or not error.startswith((source, *derived))]
    return errors


def _with_options(
    config: Config, sources: Sources, errors: list[str]
) -> tuple[Config, list[Callable[[Config], Iterable[str]]]]:
    """`model.options` as its source has them, and the source's own rules."""
    name = config.model.source
    if name not in sources.names():
        _fault(errors, "model.source", f"one of {', '.join(sources.names())}", name, choice=True)
        return config, []
    options = _typed(sources.options_of(name), config.model.options, "model.options", errors)
    return replace(config, model=replace(config.model, options=options)), [lambda c: sources.faults_of(name, c)]


def check_precision(values: Mapping[str, Any]) -> PrecisionConfig:
    """Check the section `precision` by itself: what a library door was told, under the names of its keywords.

    Raises:
        ConfigErrors: as `validate`, each key without the section's name.
    """
    precision = _section(PrecisionConfig, values, "precision", faults_of_precision)
    assert isinstance(precision, PrecisionConfig)
    return precision


def check_engine(values: Mapping[str, Any]) -> EngineConfig:
    """Check the section `engine` by itself, as `check_precision`."""
    engine = _section(EngineConfig, values, "engine", faults_of_engine)
    assert isinstance(engine, EngineConfig)
    return engine


def _section(expected: type, values: Mapping[str, Any], name: str, faults: Callable[[Any], Iterable[str]]) -> Any:
    errors: list[str] = []
    section = _typed(expected, values, name, errors)
    if not errors:
        errors += faults(section)
    if errors:
        raise ConfigErrors([error.removeprefix(f"{name}.") for error in errors])
    return section


def _typed(expected: Any, value: Any, path: str, errors: list[str]) -> Any:
    """`value` as `expected` type, or None after noting the fault under its dotted path."""
    if expected is Any:
        return value
    origin, arguments = get_origin(expected), get_args(expected)
    if type(None) in arguments:  # X | None
        if value is None:
            return None
        return _typed(next(a for a in arguments if a is not type(None)), value, path, errors)
    if origin is UnionType:  # bool | list[str]
        scalar, listed = arguments
        if not isinstance(value, (scalar, list)):
            return _fault(errors, path, f"{_NAMES[scalar]}, or a list", value)
        return _typed(listed if isinstance(value, list) else scalar, value, path, errors)
    if is_dataclass(expected) and isinstance(expected, type):
        return _typed_section(expected, value, path, errors)
    if isinstance(expected, type) and issubclass(expected, Enum):
        options = [member.value for member in expected]
        if value in options:
            return expected(value)
        return _fault(errors, path, f"one of {', '.join(options)}", value, choice=True)
    if origin is list:
        if not isinstance(value, list):
            return _fault(errors, path, "a list", value)
        return [_typed(arguments[0], item, f"{path}[{i}]", errors) for i, item in enumerate(value)]
    if origin is dict:
        if not isinstance(value, Mapping):
            return _fault(errors, path, "a mapping", value)
        return {
            _typed(arguments[0], key, f"{path}, key {key!r}", errors): _typed(
                arguments[1], item, f"{path}.{key}", errors
            )
            for key, item in value.items()
        }
    return _typed_scalar(expected, value, path, errors)


def _typed_section(expected: type, value: Any, path: str, errors: list[str]) -> Any:
    if not isinstance(value, Mapping):
        return _fault(errors, path or "configuration", "a mapping", value)
    hints = get_type_hints(expected)
    names = [field.name for field in fields(expected)]
    prefix = f"{path}." if path else ""
    for key in value:
        if key not in names:
            errors.append(coded("unknown-key", f"{prefix}{key}: unknown key; known here: {', '.join(names)}"))
    for name in names:
        if name not in value:
            errors.append(coded("missing-key", f"{prefix}{name}: missing"))
    return expected(
        **{name: _typed(hints[name], value[name], prefix + name, errors) if name in value else None for name in names}
    )


def _typed_scalar(expected: type, value: Any, path: str, errors: list[str]) -> Any:
    if expected is float and isinstance(value, int) and not isinstance(value, bool):
        return float(value)
    if type(value) is expected:
        return value
    return _fault(errors, path, _NAMES[expected], value)


def _fault(errors: list[str], path: str, expected: str, got: Any, choice: bool = False) -> None:
    text = f"{path}: expected {_EXPECTED.get(path, expected)}, got {got!r}"
    errors.append(coded("unknown-choice" if choice else "wrong-type", text))
