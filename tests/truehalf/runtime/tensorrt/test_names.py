"""Every name of TensorRT that truehalf/runtime/tensorrt uses exists in both versions: in names/, taken from the
bindings.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from tests.truehalf.runtime.tensorrt.recording import VERSIONS as NAMED
from tests.truehalf.runtime.tensorrt.recording import full_version, names
from tests.truehalf.runtime.tensorrt.resolving import uses
from truehalf.config import engine
from truehalf.engines.plan import _COMPATIBILITY, _POOLS, _TILING
from truehalf.runtime.tensorrt.versions import BUILDER_FLAGS, VERSIONS

ROOT = Path(__file__).resolve().parents[4]
OF_RTX = ROOT / "truehalf" / "runtime" / "tensorrt" / "rtx.py"
FILES = sorted({*OF_RTX.parent.glob("*.py")} - {OF_RTX})
GONE = sorted(set(names("10.16")) - set(names("11.4")))


def test_there_is_a_list_of_names_for_every_version_of_the_table() -> None:
    assert NAMED == ("10.16", "11.4")
    assert sorted(int(full_version(version).split(".")[0]) for version in NAMED) == sorted(
        {*VERSIONS} - {1}
    )  # which is TensorRT for RTX
    assert "BuilderFlag.FP16" in GONE and "IBuilderConfig.int8_calibrator" in GONE and len(GONE) > 400


@pytest.mark.parametrize("version", NAMED)
@pytest.mark.parametrize("file", FILES, ids=lambda file: file.name)
def test_every_name_exists(file: Path, version: str) -> None:
    found = uses(file.read_text(), names(version))
    assert not found.missing
    assert not found.unresolved, "say in resolving.OBJECTS what these are, or call them otherwise"
    assert not found.names & set(GONE)


def test_the_reading_is_not_blind() -> None:
    used = set().union(*(uses(file.read_text(), names("11.4")).names for file in FILES))
    assert {
        "Builder.create_network",
        "IBuilderConfig.set_timing_cache",
        "ICudaEngine.get_tensor_profile_values",
        "IExecutionContext.execute_async_v3",
        "ILogger.Severity.WARNING",
        "IOutputAllocator",
        "IPluginRegistry.load_library",
        "ITensor.is_shape_tensor",
        "OnnxParserRefitter.refit_from_file",
        "ParserError.node_operator",
        "Refitter.refit_cuda_engine",
        "TensorLocation.HOST",
    } <= used
    assert len(used) > 70


@pytest.mark.parametrize(
    ("planted", "version", "missing"),
    [
        ("import tensorrt as trt\ntrt.BuilderFlag.FP16", "11.4", "BuilderFlag.FP16"),
        ("import tensorrt as trt\ntrt.BuilderFlag.FP17", "10.16", "BuilderFlag.FP17"),
        ("import tensorrt\ntensorrt.create_builder()", "10.16", "create_builder"),
        (
            "def f(trt, log):\n  b = trt.Builder(log)\n  b.platform_has_fast_fp16",
            "11.4",
            "Builder.platform_has_fast_fp16",
        ),
        ("def f(config):\n  config.int8_calibrator = None", "11.4", "IBuilderConfig.int8_calibrator"),
        ("def f(network):\n  network.get_input(0).dynamic_range", "11.4", "ITensor.dynamic_range"),
        ("def f(parser):\n  e = parser.get_error(0)\n  e.nodename()", "11.4", "ParserError.nodename"),
        (
            "def f(engine):\n  c = engine.create_execution_context()\n  c.execute_v3(0)",
            "11.4",
            "IExecutionContext.execute_v3",
        ),
        ("class A:\n  def f(self):\n    self._engine.device_memory_size", "11.4", "ICudaEngine.device_memory_size"),
        ("import tensorrt as trt\nclass L(trt.ILoger): ...", "11.4", "ILoger"),
        ("def f(engine):\n  [engine.get_tensor_nme(i) for i in range(3)]", "10.16", "ICudaEngine.get_tensor_nme"),
    ],
)
def test_a_planted_name_is_found(planted: str, version: str, missing: str) -> None:
    assert uses(planted, names(version)).missing == {missing}


def test_a_use_of_an_unknown_thing_is_found() -> None:
    assert uses("def f(thing):\n  thing.set_input_shape('x', (1,))", names("11.4")).unresolved == {
        "thing.set_input_shape"
    }


def test_a_name_of_the_other_version_exists_there() -> None:
    found = uses("import tensorrt as trt\ntrt.BuilderFlag.FP16", names("10.16"))
    assert found.names == {"BuilderFlag", "BuilderFlag.FP16"} and not found.missing


@pytest.mark.parametrize("version", NAMED)
def test_names_in_tables_and_choices_exist(version: str) -> None:
    known = names(version)
    row = VERSIONS[int(version.split(".")[0])]
    assert all(f"NetworkDefinitionCreationFlag.{flag}" in known for flag in row.network_flags)
    assert all(f"BuilderFlag.{flag}" in known for flag in BUILDER_FLAGS.values())
    choices = {
        "TilingOptimizationLevel": {one.name for one in engine.TilingLevel},
        "HardwareCompatibilityLevel": {one.name for one in engine.HardwareCompatibility},
        "ProfilingVerbosity": {one.name for one in engine.ProfilingVerbosity},
        "MemoryPoolType": set(engine.MemoryPool),
    }
    for kind, given in choices.items():
        of_tensorrt = {name.removeprefix(f"{kind}.").lower() for name in known if name.startswith(f"{kind}.")}
        assert given == of_tensorrt, kind
    assert set(_POOLS) == choices["MemoryPoolType"] - {"tactic_dram"}
    assert set(_TILING) == choices["TilingOptimizationLevel"]
    assert set(_COMPATIBILITY) == choices["HardwareCompatibilityLevel"] - {"none"}
    assert list(_TILING) == sorted(_TILING, key=lambda one: known[f"TilingOptimizationLevel.{one.upper()}"].value or 0)


def test_only_tests_know_the_stand_in() -> None:
    """And whoever imports tensorrt gets tensorrt: nothing outside the tests puts another module in its place."""
    for room in ("pipeline", "stages", "truehalf", "benchmarks", "examples"):
        for file in (ROOT / room).rglob("*.py"):
            if "build" in file.relative_to(ROOT).parts:  # copies of the project, of benchmarks
                continue
            tree = ast.parse(file.read_text())
            imported = {alias.name for node in ast.walk(tree) if isinstance(node, ast.Import) for alias in node.names}
            imported |= {node.module or "" for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
            assert not any(name.startswith("tests.truehalf.runtime.tensorrt") for name in imported), file
            assigned = {ast.unparse(t) for node in ast.walk(tree) if isinstance(node, ast.Assign) for t in node.targets}
            assert not any(target.startswith("sys.modules['tensorrt") for target in assigned), file
