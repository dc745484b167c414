"""Rooms keep to themselves: who may import whom, and what stays out until it is needed."""

import ast
import functools
import graphlib
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.truehalf.conftest import BLOCKED

ROOT = Path(__file__).resolve().parent.parent
MODULES = sorted(path for room in ("pipeline", "stages", "truehalf") for path in (ROOT / room).rglob("*.py"))
STAGE_MODULES = {
    f"stages.{name}"
    for name in (
        "inputs",
        "trace",
        "slim",
        "calibrate",
        "fp16",
        "cast_cleanup",
        "reference",
        "verify",
        "engine",
    )
}
# Rooms and single modules of truehalf stand on floors: each imports from its own and from those before it.
FLOORS = (
    *("codes", "json_values", "errors", "files", "float16", "progress"),
    "user_code",
    "config",
    *("report", "ir", "io_spec", "runtime", "patterns", "data", "provenance", "calibration", "emulation"),
    *("conversion", "verification", "slimming", "engines", "models", "exporting", "api", "cli", "__main__"),
)
HEAVY = ("torch", "onnxruntime", "tensorrt", "transformers", "onnxslim", "mlflow", "sklearn", "skimage")
EDITING_GRAPHS = ("ir", "patterns", "emulation", "conversion")
FOR_EDITING = {"google", "onnx", "onnx_ir", "numpy", "scipy", "truehalf"}
# What pipeline takes of truehalf: what checks a configuration before DVC starts, and what writes files, pages and the
# terminal.
FOR_PIPELINE = (
    *("truehalf.codes", "truehalf.config", "truehalf.errors"),
    # reports
    *("truehalf.exporting.trace_report", "truehalf.slimming.slim_report", "truehalf.calibration.calibrate_report"),
    *("truehalf.conversion.report", "truehalf.verification.stage_numbers", "truehalf.engines.engine_report"),
    *("truehalf.provenance.inputs_report", "truehalf.runtime.machine", "truehalf.runtime.timing"),
    *("truehalf.files", "truehalf.json_values"),
    *("truehalf.report", "truehalf.progress"),
    "truehalf.models.configuration",
)
LOOSE = r"\b(dict|Mapping)\[str, Any\]"

# --- exceptions, of which none may be added ---------------------------------------------------------------------------

# torch, outside the rooms that are for it
TORCH = {
    *("truehalf.provenance.software", "truehalf.verification.chain.reference"),
}
# ONNX Runtime, outside its room
ORT = {"truehalf.calibration.instrument"}


@functools.cache
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


def floor(name: str) -> int:
    return FLOORS.index(name.split(".")[1])


@pytest.mark.parametrize("path", MODULES, ids=module_name)
def test_import_rules(path: Path) -> None:
    name, imported = module_name(path), imports_of(path)
    tops = {top(one) for one in imported}
    ours = {one for one in imported if one.startswith("truehalf.")}
    if name.startswith("truehalf."):
        assert not tops & set(BLOCKED)
        room = name.split(".")[1]
        if path.parent.name != "truehalf" or path.stem != "__init__":
            assert {one for one in ours if floor(one) > floor(name)} == set(), "up"
        if room in EDITING_GRAPHS and "sessions" not in name:
            assert tops - set(sys.stdlib_module_names) <= FOR_EDITING
    if name.startswith("pipeline"):
        assert {one for one in ours if not one.startswith(FOR_PIPELINE)} == set()
        assert "stages" not in tops
    if name.startswith("stages"):
        assert not tops & {"pipeline", "hydra", "mlflow", "dvc"}
        assert not (imported & STAGE_MODULES) - {name}, "a stage imports no other stage"
    if not name.startswith("truehalf.runtime.ort") and name not in ORT:
        assert "onnxruntime" not in tops
    if name != "truehalf.runtime.tensorrt":
        assert not tops & {"tensorrt", "polygraphy"}
    if not name.startswith(("truehalf.models", "truehalf.exporting")) and name not in TORCH:
        assert not tops & {"torch", "transformers"}


def test_tests_import_no_benchmark() -> None:
    files = [path for path in (ROOT / "tests").rglob("*.py") if "corpus" not in path.parts]
    assert {path.name for path in files if "benchmarks" in {top(one) for one in imports_of(path)}} == set()


def test_no_circle_of_imports() -> None:
    """Of whole modules; what a function imports when it runs is not one."""
    names = {module_name(path).removesuffix(".__init__") for path in MODULES}
    graph = {}
    for path in MODULES:
        name = module_name(path).removesuffix(".__init__")
        graph[name] = (imports_of(path, top_level_only=True) & names) - {name}
    graphlib.TopologicalSorter(graph).prepare()


def test_no_exception_is_out_of_date() -> None:
    found = {module_name(path): {top(one) for one in imports_of(path)} for path in MODULES}
    assert {name for name in TORCH if not found[name] & {"torch", "transformers"}} == set()
    assert {name for name in ORT if "onnxruntime" not in found[name]} == set()


def test_rooms_hand_each_other_typed_forms() -> None:
    """No dict[str, Any] and no Mapping[str, Any] is in the signature of a public function that another room takes."""
    taken = {
        one for path in MODULES for one in imports_of(path) if one.split(".")[:2] != module_name(path).split(".")[:2]
    }
    loose = []
    for path in (each for each in MODULES if module_name(each).startswith("truehalf.")):
        for node in ast.parse(path.read_text()).body:
            if not isinstance(node, (ast.FunctionDef, ast.ClassDef)) or f"{module_name(path)}.{node.name}" not in taken:
                continue
            for one in [node] if isinstance(node, ast.FunctionDef) else node.body:
                if isinstance(one, ast.FunctionDef) and (one is node or not one.name.startswith("_")):
                    signature = f"{ast.unparse(one.args)} -> {ast.unparse(one.returns) if one.returns else None}"
                    loose += [f"{module_name(path)}.{one.name}"] if re.search(LOOSE, signature) else []
    assert not loose, "expected a dataclass, a TypedDict or json_values.JsonObject"


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


def test_what_reads_a_run_imports_no_graph_library() -> None:
    """The stages finish and gate, and `python -m pipeline`, run every time."""
    code = "import sys, pipeline.finish, pipeline.gate, pipeline.entry; sys.exit('onnx_ir' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_the_library_stands_alone() -> None:
    """With the rooms of the project blocked from import."""
    names = [module_name(path) for path in MODULES if path.stem not in ("__init__", "__main__")]
    code = f"""
import sys, importlib
for other in {BLOCKED!r}:
    sys.modules[other] = None
for name in {[name for name in names if name.startswith("truehalf.")]!r}:
    importlib.import_module(name)
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr


def test_tests_of_the_library_and_their_helpers_stand_alone() -> None:
    """With what is of tests/ that they import, one helper after the other."""
    left = {ROOT / "tests" / "conftest.py", *(ROOT / "tests" / "truehalf").rglob("*.py")}
    found: dict[Path, set[str]] = {}
    while left:
        path = left.pop()
        found[path] = imports_of(path)
        helpers = {ROOT / f"{name.replace('.', '/')}.py" for name in found[path] if top(name) == "tests"}
        left |= {helper for helper in helpers if helper.exists()} - found.keys()
    assert {module_name(path) for path, names in found.items() if {top(name) for name in names} & set(BLOCKED)} == set()
