"""A plan of the engine held against what carries it out: its keys, and the model that it is for.

Whoever carries a plan out may have edited it, or have one of another version: every fault is said at once, and before
the machine is looked at, so that a plan that is wrong is wrong everywhere.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from conf.schema import Backend, FailOn, Provider, WhenUnavailable
from stages.engine_profiles import check_profiles, shape_inputs
from stages.graph.lint import RULES
from stages.graph.lint.ignoring import parse_ignores
from stages.io import StageError
from stages.trt.build import PLAN_KEYS, plan_faults

if TYPE_CHECKING:
    import onnx_ir as ir

_COMMON: dict[str, type] = {
    **{name: kind for name, kind in PLAN_KEYS.items() if name != "builder"},
    **{"shape_inputs": list, "latency": dict, "plugin_ops": list, "lint": dict, "when_unavailable": str},
}
_KEYS: dict[str, dict[str, type]] = {
    Backend.tensorrt.value: _COMMON | {"builder": dict},
    Backend.onnxruntime.value: _COMMON | {"provider": str, "provider_options": dict, "environment": dict},
}


def check_keys(plan: Any, name: str = "plan") -> None:
    """Refuse what is no plan, or lacks something of it.

    Raises:
        StageError: with every fault.
    """
    backend = plan.get("backend") if isinstance(plan, Mapping) else None
    if backend not in _KEYS:
        expected = " or ".join(_KEYS)
        raise StageError(
            f"{name}: expected a plan of the engine stage (plan.json), whose backend is {expected}, got "
            + (f"the backend {backend!r}" if backend is not None else "another file")
        )
    _refuse(plan_faults(plan, _KEYS[backend]) or _faults_of_choices(plan), name)


def check_plan(plan: Mapping[str, Any], model: ir.Model, name: str = "plan") -> None:
    """Refuse a plan that cannot be carried out: `check_keys`, and profiles that do not fit its model.

    Raises:
        StageError: with every fault.
    """
    check_keys(plan, name)
    faults = check_profiles(model.graph, plan["profiles"])
    if (found := sorted(shape_inputs(model.graph))) != plan["shape_inputs"]:
        faults.append(f"shape_inputs: expected {found} as in the model, got {plan['shape_inputs']}")
    _refuse(faults, name)


def _faults_of_choices(plan: Mapping[str, Any]) -> list[str]:
    lint, latency = plan["lint"], plan["latency"]
    choices = [
        ("when_unavailable", plan["when_unavailable"], WhenUnavailable),
        ("lint.fail_on", lint.get("fail_on"), FailOn),
        *([("provider", plan["provider"], Provider)] if "provider" in plan else []),
    ]
    faults = []
    for key, value, kind in choices:
        known = [member.value for member in kind]
        if value not in known:
            faults.append(f"{key}: expected {', '.join(known)}, got {value!r}")
    for key in ("warm_up", "runs", "rounds"):
        if type(latency.get(key)) is not int or latency[key] < (key != "warm_up"):
            faults.append(f"latency.{key}: expected a number of runs, got {latency.get(key)!r}")
    if not all(isinstance(profile, Mapping) for profile in plan["profiles"]):
        faults.append("profiles: expected a list of mappings of inputs")
    ignore = lint.get("ignore")
    if not isinstance(ignore, list) or not all(isinstance(entry, str) for entry in ignore):
        return [*faults, f"lint.ignore: expected a list of rules, got {ignore!r}"]
    try:
        parse_ignores(ignore, RULES)
    except StageError as error:
        faults.append(str(error))
    return faults


def _refuse(faults: list[str], name: str) -> None:
    if faults:
        lines = "\n".join(f"  {fault}" for fault in faults)
        raise StageError(f"{name}: the plan cannot be carried out; make it anew:\n{lines}")
