"""dvc.yaml: each stage depends on all the code it runs, and on keys that exist."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.conftest import ROOT, composed
from tests.test_imports import imports_of

STAGES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
# what they do changes no result
PLUMBING = {
    *("stages/__init__.py", "stages/progress.py", "stages/restore.py", "pipeline/workspace.py"),
    *("stages/configuration.py", "stages/models/sources/__init__.py"),  # they refuse, or pass on what params.yaml says
}


def code_of(path: Path, found: set[Path]) -> set[Path]:
    """A module and what it imports of stages/ and pipeline/, transitively."""
    if path in found:
        return found
    found.add(path)
    for name in imports_of(path):
        if name.startswith(("stages", "pipeline")):
            target = ROOT / name.replace(".", "/")
            for module in (target.with_suffix(".py"), target / "__init__.py"):
                if module.exists():
                    code_of(module, found)
    return found


@pytest.mark.parametrize("name", [name for name, stage in STAGES.items() if not stage.get("always_changed")])
def test_deps_cover_the_code(name: str) -> None:
    module = re.fullmatch(r"python -m ([\w.]+)", STAGES[name]["cmd"])
    assert module
    deps = [ROOT / dep for dep in STAGES[name]["deps"]]
    code = code_of(ROOT / (module[1].replace(".", "/") + ".py"), set())
    needed = {path for path in code if str(path.relative_to(ROOT)) not in PLUMBING and path.stat().st_size}
    missing = {str(path.relative_to(ROOT)) for path in needed if not any(path.is_relative_to(dep) for dep in deps)}
    assert not missing, f"{name}: an edit there would re-run nothing"
    idle = {dep for dep in deps if dep.suffix == ".py" and dep not in code}
    assert not idle, f"{name}: depends on code that it does not run"


@pytest.mark.parametrize("name", STAGES)
def test_params_exist(name: str) -> None:
    for key in STAGES[name].get("params", []):
        value: Any = composed()
        for part in key.split("."):
            assert part in value, f"{name}: {key}"
            value = value[part]


def test_calibrate_reads_no_precision_key_and_trace_none_of_what_follows() -> None:
    lints = {"engine.plugins", "engine.plugin_ops"}  # which operators lint knows
    for name in ("trace", "slim", "calibrate"):
        keys = set(STAGES[name]["params"]) - (lints if name == "trace" else set())
        assert not [key for key in keys if key.startswith(("precision", "verify", "engine"))]


def test_cached_outs_are_not_persistent() -> None:
    """A persistent out would take its stage out of DVC's run-cache."""
    for name, stage in STAGES.items():
        for out in [*stage.get("outs", []), *stage.get("metrics", [])]:
            assert isinstance(out, str) or next(iter(out.values())).get("cache") is False, name
