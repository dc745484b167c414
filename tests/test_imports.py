"""Rooms keep to themselves: who may import whom, and what stays out until it is needed."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted(path for room in ("conf", "pipeline", "stages") for path in (ROOT / room).rglob("*.py"))
STAGE_MODULES = {
    f"stages.{name}"
    for name in ("inputs", "trace", "slim", "calibrate", "fp16", "cast_cleanup", "verify", "probe", "engine")
}
HEAVY = ("torch", "onnxruntime", "tensorrt", "transformers", "onnxslim", "matplotlib", "mlflow", "sklearn", "skimage")
GRAPH_MAY_IMPORT = {"onnx", "onnx_ir", "numpy", "scipy", "stages", "conf"}


def imports_of(path: Path, top_level_only: bool = False) -> set[str]:
    """Names of imported modules; `from truehalf.ir import facts` counts as truehalf.ir and truehalf.ir.facts."""
    tree = ast.parse(path.read_text())
    type_checking = {
        id(node)
        for block in ast.walk(tree)
        if isinstance(block, ast.If) and "TYPE_CHECKING" in ast.unparse(block.test)
        for node in ast.walk(block)
    }
    nodes = tree.body if top_level_only else list(ast.walk(tree))
    found: set[str] = set()
    for node in nodes:
        if id(node) in type_checking:
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: relative import"
            found |= {node.module or ""} | {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def top(name: str) -> str:
    return name.split(".")[0]


def module_name(path: Path) -> str:
    return ".".join(path.relative_to(ROOT).with_suffix("").parts)


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_import_rules(path: Path) -> None:
    name, imported = module_name(path), imports_of(path)
    tops = {top(one) for one in imported}
    if name.startswith("conf"):
        assert not tops & {"stages", "pipeline"}
    if name.startswith("pipeline"):
        assert {one for one in imported if top(one) == "stages"} <= {
            "truehalf.models.configuration",
            "truehalf.models.configuration.validated",
        }
    if name.startswith("stages"):
        assert not tops & {"pipeline", "hydra", "mlflow", "dvc"}
        assert not (imported & STAGE_MODULES) - {name}, "a stage imports no other stage"
    if name.startswith("stages.graph"):
        ours = tops - set(sys.stdlib_module_names)
        assert ours <= GRAPH_MAY_IMPORT
        assert all(one.startswith(("stages.graph", "stages.frame")) for one in imported if top(one) == "stages")
        assert all(one.startswith("truehalf.codes") for one in imported if top(one) == "conf")
    if not name.startswith("stages.ort"):
        assert "onnxruntime" not in tops
    if not name.startswith("stages.trt"):
        assert "tensorrt" not in tops


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_heavy_imports_wait(path: Path) -> None:
    assert not {top(one) for one in imports_of(path, top_level_only=True)} & set(HEAVY)


def test_every_module_imports_and_helps_without_heavy_packages() -> None:
    names = [module_name(path) for path in MODULES if path.stem not in ("__init__", "__main__")]
    code = f"""
import sys, importlib
for heavy in {HEAVY!r}:
    sys.modules[heavy] = None
for name in {names!r}:
    importlib.import_module(name)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
