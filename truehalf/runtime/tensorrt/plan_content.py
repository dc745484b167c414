"""Content of a plan: its keys, and the files that it names, found and checked by digest."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from truehalf.runtime.tensorrt.versions import BUILDER_OPTIONS, PLAN_FORMAT, BuildError, Plan, Plugin


def plan_problems(plan: object, keys: Mapping[str, type]) -> list[str]:
    """Everything that is wrong with a plan as such, whatever model it is for."""
    if not isinstance(plan, Mapping):
        return [f"expected a mapping, got {type(plan).__name__}"]
    if plan.get("format") != PLAN_FORMAT:
        return [f"format: expected format {PLAN_FORMAT}, got {plan.get('format')!r}"]
    problems = [f"{name}: missing" for name in keys if name not in plan]
    problems += [
        f"{name}: expected {kind.__name__}, got {type(plan[name]).__name__}"
        for name, kind in keys.items()
        if name in plan and not isinstance(plan[name], kind)
    ]
    if problems:
        return problems
    if plan["declared"] not in ("fp16", "fp32"):
        problems.append(f"declared: expected fp16 or fp32, got {plan['declared']!r}")
    problems += [
        f"builder.{name}: missing" for name in BUILDER_OPTIONS if name not in plan.get("builder", BUILDER_OPTIONS)
    ]
    inside = (
        ("graph", ("float_nodes", "fp16_nodes"), [plan["graph"]]),
        ("plugins", ("path", "sha256"), plan["plugins"]),
    )
    for name, wanted, given in inside:
        if not all(isinstance(one, Mapping) and set(wanted) <= set(one) for one in given):
            problems.append(f"{name}: expected {' and '.join(wanted)}")
    return problems


def sha256(*files: Path) -> str:
    """Of the files' contents, one after the other."""
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as opened:
            while block := opened.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def find_file(name: str, folder: Path, what: str, *, expected: str, data: Sequence[str] = ()) -> Path:
    """A file of a plan: by its name from the current folder, then from the plan's, then by its last part there.

    Args:
        name: as the plan calls it.
        folder: the plan's.
        what: how messages call it.
        expected: SHA-256 of the file and of its `data`, one after the other: the first that has it is taken, whatever
            else is called so.
        data: files that belong to it, by their names beside it.

    Raises:
        BuildError: when it is in none of them, or what is there is another file: with what was found in each.
    """
    tried = list(dict.fromkeys([Path(name), folder / name, folder / Path(name).name]))
    there: dict[Path, Path] = {}
    for path in tried:
        if path.is_file():
            there.setdefault(path.resolve(), path)
    if not there:
        message = f"{what} {name} is missing; looked for {', '.join(map(str, tried))}; copy it beside the plan"
        raise BuildError("file-missing", message)
    others = []
    for path in there.values():
        beside = [path.parent / one for one in data]
        if missing := [str(file) for file in beside if not file.is_file()]:
            others.append(f"{path}: its {', '.join(missing)} is missing")
        elif (found := sha256(path, *beside)) == expected:
            return path
        else:
            others.append(f"{path}: got {found}")
    raise BuildError(
        "wrong-file",
        f"{what} {name}: another file than the plan's: expected sha256 {expected}\n"
        + "".join(f"  {one}\n" for one in others)
        + "copy the right one beside the plan, or make the plan anew",
    )


def checked_model(plan: Plan, folder: Path) -> Path:
    return find_file(plan["onnx"], folder, "the model", expected=plan["onnx_sha256"], data=plan["onnx_data"])


def checked_plugin(plugin: Plugin, folder: Path) -> Path:
    return find_file(plugin["path"], folder, "the plugin", expected=plugin["sha256"])


def quoted(messages: list[str]) -> str:
    return "".join(f"\n  {line}" for line in messages[-20:])
