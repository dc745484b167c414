"""Checks of an engine's plan before it is carried out: keys, values, files, and the model that it is for.

A plan may have been edited, or be of another version: every problem is reported at once, and before the machine is
looked at, so that a plan that is wrong is wrong everywhere. Its options obey the rules of the configuration that they
come from (truehalf.config).
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath, PureWindowsPath
from typing import TYPE_CHECKING, Any, cast

from truehalf.codes import coded
from truehalf.config.engine import ASKS_NOTHING, Backend, EngineConfig, ProfilingVerbosity
from truehalf.config.options import read
from truehalf.config.schema import LintConfig
from truehalf.engines.engine_report import EnginePlan
from truehalf.engines.profiles import check_profiles, shape_inputs
from truehalf.errors import StageError, refuse
from truehalf.files import check_outputs
from truehalf.runtime.tensorrt.plan_content import plan_problems
from truehalf.runtime.tensorrt.versions import BUILDER_OPTIONS, PLAN_KEYS

if TYPE_CHECKING:
    import onnx_ir as ir

_COMMON: dict[str, type] = {
    **{name: kind for name, kind in PLAN_KEYS.items() if name != "builder"},
    **{"shape_inputs": list, "latency": dict, "gates": dict, "plugin_ops": list, "lint": dict, "when_unavailable": str},
}
_KEYS: dict[str, dict[str, type]] = {
    Backend.tensorrt.value: _COMMON | {"builder": dict},
    Backend.tensorrt_rtx.value: _COMMON | {"builder": dict},
    Backend.onnxruntime.value: _COMMON | {"provider": str, "provider_options": dict, "environment": dict},
}
# A plan of ONNX Runtime holds nothing by these names: its provider_options have what was asked for.
_NO_BUILDER: dict[str, Any] = {
    **{name: value for name, value in ASKS_NOTHING.items() if name in BUILDER_OPTIONS},
    **{"memory_pools_gb": {}, "timing_cache": None, "profiling_verbosity": ProfilingVerbosity.detailed.value},
}
_CANNOT_BE = "the plan cannot be carried out; make it anew"
FILES_OF_A_PLAN = ("plan.json", "build_engine.py", "README.txt", "engine.json")


def check_keys(plan: object, name: str = "plan") -> None:
    """Refuse what is no plan, or lacks something of it, or holds what cannot be carried out.

    Raises:
        StageError: with every problem.
    """
    backend = plan.get("backend") if isinstance(plan, Mapping) else None
    if not isinstance(backend, str) or backend not in _KEYS:
        expected = " or ".join(_KEYS)
        raise StageError(
            "wrong-plan",
            f"{name}: expected a plan of the engine stage (plan.json), whose backend is {expected}, got "
            + (f"the backend {backend!r}" if backend is not None else "another file"),
        )
    keys, content = _KEYS[backend], cast("EnginePlan", plan)
    problems = plan_problems(plan, keys)
    if all(isinstance(content.get(key), kind) for key, kind in keys.items()):  # else the others cannot be looked at
        named = {_key(problem) for problem in problems}
        more = [*_problems_of_files(content), *_problems_of_options(content)]
        problems += [problem for problem in more if _key(problem) not in named]
    refuse("wrong-plan", f"{name}: {_CANNOT_BE}", list(dict.fromkeys(problems)))


def _key(problem: str) -> str:
    return problem.partition(":")[0]


def check_plan(plan: EnginePlan, model: ir.Model, name: str = "plan") -> None:
    """Refuse a plan that cannot be carried out: `check_keys`, and profiles that do not fit its model.

    Raises:
        StageError: with every problem.
    """
    check_keys(plan, name)
    problems = check_profiles(model.graph, plan["profiles"])
    if (found := sorted(shape_inputs(model.graph))) != plan["shape_inputs"]:
        message = f"shape_inputs: expected {found} as in the model, got {plan['shape_inputs']}"
        problems.append(coded("wrong-plan", message))
    refuse("wrong-plan", f"{name}: {_CANNOT_BE}", problems)


def check_target(
    plan: EnginePlan, model_path: Path, out_dir: Path, files: Sequence[str], plan_path: Path | None = None
) -> None:
    """Refuse to write what lies in the place of what it is made from, or can lie nowhere.

    Args:
        plan: that `check_keys` lets pass.
        files: what is written into `out_dir` beside the engine.
        plan_path: where the plan was read from.

    Raises:
        StageError: when a file that is written is the model, its weights, a plugin or the plan, or no regular file.
    """
    sources = [model_path, *(model_path.parent / name for name in plan["onnx_data"])]
    sources += [Path(plugin["path"]) for plugin in plan["plugins"]]
    written = {"the engine": out_dir / PurePosixPath(plan["engine"]).name} | {name: out_dir / name for name in files}
    read = {f"what it is made from ({path})": path for path in sources}
    check_outputs(written, read | {"the plan": plan_path})


def _problems_of_files(plan: EnginePlan) -> Iterator[str]:
    """Names of files inside a folder: nothing is written or read outside it by them."""
    if not _is_inside(plan["engine"]) or plan["engine"].endswith("/"):
        message = f"engine: expected the name of a file, such as model.engine, got {plan['engine']!r}"
        yield coded("bad-syntax", message)
    elif PurePosixPath(plan["engine"]).name in FILES_OF_A_PLAN:
        message = f"engine: expected another name than those of the plan's files, got {plan['engine']!r}"
        yield coded("would-overwrite", message)
    if not plan["onnx"]:
        yield coded("needs-value", f"onnx: expected the model's path, got {plan['onnx']!r}")
    for i, data in enumerate(plan["onnx_data"]):
        if not isinstance(data, str) or not _is_inside(data):
            message = f"onnx_data[{i}]: expected a path from the model's folder into it, got {data!r}"
            yield coded("bad-syntax", message)


def _is_inside(name: str) -> bool:
    path = PurePosixPath(name)
    return bool(path.name) and ".." not in path.parts and not path.is_absolute() and not PureWindowsPath(name).anchor


def _problems_of_options(plan: EnginePlan) -> Iterator[str]:
    """The plan's options as a section of the configuration: its types, bounds and rules."""
    files = [plugin.get("path") if isinstance(plugin, Mapping) else plugin for plugin in plan["plugins"]]
    section = {
        **plan.get("builder", _NO_BUILDER),
        "backend": plan["backend"],
        "provider": plan.get("provider"),
        "profiles": plan["profiles"],
        "plugins": [file for file in files if isinstance(file, str)],
        "plugin_ops": plan["plugin_ops"],
        "when_unavailable": plan["when_unavailable"],
        "build_unverified": True,
        "latency": plan["latency"],
        "gates": plan["gates"],
    }
    of_builder = {*BUILDER_OPTIONS, *plan.get("builder", ())}
    for line in read(EngineConfig, section)[1]:
        yield f"builder.{line}" if re.split(r"[:.,\[]", line)[0] in of_builder else line
    yield from (f"lint.{line}" for line in read(LintConfig, plan["lint"])[1])
