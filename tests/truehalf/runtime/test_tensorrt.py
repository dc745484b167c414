"""Engines built in a child process by TensorRT for RTX, which needs no GPU: options, profiles, refusals, its end."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import onnx
import pytest

from tests.messages import expect, raises
from tests.tiers import compiled
from tests.truehalf.conftest import MODEL, PROFILE, parsed
from tests.waiting import HANG_S
from truehalf.config.engine import EngineConfig
from truehalf.config.typed import plain
from truehalf.runtime.tensorrt import (
    RTX,
    TENSORRT,
    BuildFacts,
    BuildOrder,
    BuildRefusal,
    build,
    unavailable_reason,
    version_warning,
)

SHAPED = """g (float[4,16] x, int64[2] size, float[N,8] mask) => (float[M,K] y, float[N,8] z)
    { y = Reshape(x, size)  z = Relu(mask) }"""
SIZE = {"min": [1, 16], "opt": [4, 16], "max": [8, 64]}
MASK = {"min": [1, 8], "opt": [2, 8], "max": [4, 8]}


@pytest.fixture
def good(tmp_path: Path) -> Iterator[Path]:
    """An engine that was built earlier; it must be as it was when the test has ended."""
    (tmp_path / "model.engine").write_bytes(b"the last good engine")
    yield tmp_path / "model.engine"
    assert (tmp_path / "model.engine").read_bytes() == b"the last good engine"


def built(
    folder: Path,
    model: str | onnx.ModelProto = MODEL,
    profiles: Any = (PROFILE,),
    module: str = RTX,
    limit_s: float | None = None,
    targets: Any = (),
    **options: Any,
) -> BuildFacts:
    onnx.save(parsed(model) if isinstance(model, str) else model, folder / "model.onnx")
    chosen: Any = plain(EngineConfig(**{"timing_cache": None} | options))
    order = BuildOrder(
        module, str(folder / "model.onnx"), str(folder / "model.engine"), list(profiles), chosen, targets
    )
    return build(order, limit_s)


@compiled
@pytest.mark.parametrize(
    "options",
    [
        {"builder_optimization_level": 5, "tf32": True},
        {"workspace_gb": 1.0},
        {"targets": ["sm75"]},
        {"targets": ["sm86", "sm120"]},
    ],
    ids=str,
)
def test_options_and_targets_build_an_engine(options: dict[str, Any], tmp_path: Path) -> None:
    facts = built(tmp_path, **options)
    assert facts["build_seconds"] > 0 and (tmp_path / "model.engine").stat().st_size > 0
    assert facts["layer_log"].startswith("Layers:\n")


@compiled
def test_several_profiles_and_values_of_shape_tensors_are_taken(tmp_path: Path) -> None:
    large = {"images": {"min": [8, 3, 8, 8], "opt": [16, 3, 8, 8], "max": [32, 3, 8, 8]}}
    assert built(tmp_path, profiles=[PROFILE, large])["layer_log"]
    assert built(tmp_path, SHAPED, [{"size": SIZE, "mask": MASK}])["layer_log"]


@compiled
@pytest.mark.parametrize(
    "profiles",
    [
        [{"images": PROFILE["images"] | {"max": [4, 3, 8, 9]}}],
        [{"images": PROFILE["images"] | {"min": [3, 3, 8, 8]}}],
        [{"other": PROFILE["images"]}],
    ],
)
def test_profiles_that_do_not_fit_are_refused(profiles: Any, good: Path) -> None:
    with raises("no-engine", good.parent / "model.onnx", error=BuildRefusal):
        built(good.parent, profiles=profiles)


@compiled
def test_the_parser_names_node_and_operator(good: Path) -> None:
    model = parsed("g (float[4] x) => (int64[1,M] y) { z = Relu(x)  y = NonZero(z) }")
    model.graph.node[1].name = "/b/NonZero"
    with raises("not-supported", good.parent / "model.onnx", error=BuildRefusal) as error:
        built(good.parent, model, [])
    assert isinstance(error.value, BuildRefusal)
    (fault,) = error.value.errors
    assert (fault["node"], fault["op_type"], fault["code"]) == ("/b/NonZero", "NonZero", "UNSUPPORTED_NODE")
    expect(str(error.value).splitlines()[1], None, *fault.values())


@compiled
def test_errors_of_the_builder_are_quoted(good: Path) -> None:
    with raises("no-engine", "workspace memory", error=BuildRefusal) as error:
        built(good.parent, workspace_gb=1e-10)
    assert isinstance(error.value, BuildRefusal) and error.value.log and not error.value.errors


@compiled
def test_a_library_that_is_no_plugin_is_refused(good: Path) -> None:
    library = good.parent / "libmine.so"
    library.write_text("no library")
    with raises("file-unreadable", library, error=BuildRefusal):
        built(good.parent, plugins=[str(library)])


# --- how the child ends -----------------------------------------------------------------------------------------------


@compiled
def test_a_compiler_that_dies_is_said(good: Path) -> None:
    model = parsed(
        "g (float16[2,4,8] f) => (float16[2,4,8] y) { y = Attention<q_num_heads = 2, kv_num_heads = 2>(f, f, f) }"
    )
    model.opset_import[0].version, model.ir_version = 23, 10
    with raises("runtime-refuses", RTX, "SIGSEGV", error=BuildRefusal):
        built(good.parent, model, [])


def library(folder: Path, monkeypatch: pytest.MonkeyPatch, text: str) -> str:
    """A module in place of TensorRT that does this when it is imported."""
    (folder / "library_that_ends.py").write_text(f"import os, signal, time\n{text}")
    monkeypatch.syspath_prepend(folder)
    return "library_that_ends"


@pytest.mark.parametrize(
    ("does", "said"), [("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"), ("os._exit(3)", "exit code 3")]
)
def test_any_end_without_an_answer_is_said(does: str, said: str, good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with raises("runtime-refuses", "library_that_ends", said, error=BuildRefusal):
        built(good.parent, module=library(good.parent, monkeypatch, does))


def test_a_defect_in_the_child_is_no_refusal(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(RuntimeError) as error:
        built(good.parent, module=library(good.parent, monkeypatch, "raise KeyError('ours')"))
    assert "KeyError: 'ours'" in str(error.value) and not isinstance(error.value, BuildRefusal)


def test_a_build_that_takes_too_long_is_ended(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with raises("runtime-refuses", 0.5, "engine.build_minutes", error=BuildRefusal):
        built(good.parent, module=library(good.parent, monkeypatch, f"time.sleep({HANG_S})"), limit_s=0.5)


def test_ctrl_c_ends_the_child(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    hangs = f"os.kill(os.getppid(), signal.SIGINT)\ntime.sleep({HANG_S})\nos._exit(3)"
    with pytest.raises(KeyboardInterrupt):
        built(good.parent, module=library(good.parent, monkeypatch, hangs))


def test_a_package_that_is_missing_is_said(good: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with raises("package-missing", "no_such_part", error=BuildRefusal):
        built(good.parent, module=library(good.parent, monkeypatch, "import no_such_part"))


# --- machines and versions --------------------------------------------------------------------------------------------


def machine(capability: str | None, **versions: str | None) -> Any:
    known: dict[str, Any] = {TENSORRT: "11.4", RTX: "1.7", "polygraphy": "0.53", **versions}
    return known | {"gpus": None if capability is None else [{"compute_capability": capability}]}


def test_what_is_missing_is_named() -> None:
    for name, extra in ((TENSORRT, "truehalf[tensorrt]"), (RTX, "truehalf[rtx]")):
        assert unavailable_reason(name, machine("8.6")) is None
        for capability, package in ((None, None), (None, name), ("8.6", name), ("8.6", "polygraphy")):
            reason = str(unavailable_reason(name, machine(capability, **({package: None} if package else {}))))
            assert ("nvidia-smi" in reason, extra in reason) == (capability is None, package is not None)
            assert ("Polygraphy" in reason) == (package == "polygraphy")
        assert unavailable_reason(name, machine(None), has_to_run=False) is None


def test_tensorrt_for_rtx_runs_on_no_gpu_of_a_data_centre_but_ampere() -> None:
    for capability in ("7.5", "8.0", "8.7", "9.0", "10.0", "12.1"):
        runs = capability not in ("8.7", "9.0", "10.0")
        assert (unavailable_reason(RTX, machine(capability)) is None) == runs
        assert unavailable_reason(TENSORRT, machine(capability)) is None


def test_a_newer_major_version_is_a_warning_and_an_older_one_refused() -> None:
    assert version_warning(TENSORRT, "10.0.1") is version_warning(TENSORRT, "11.4.0.106") is None
    assert version_warning(RTX, "1.7.1.116") is None
    for module, version in ((TENSORRT, "12.0.1"), (RTX, "2.0")):
        expect(str(version_warning(module, version)), None, version)
    with raises("package-missing", "8.6.1", "10.x", "11.x", error=BuildRefusal):
        version_warning(TENSORRT, "8.6.1")
