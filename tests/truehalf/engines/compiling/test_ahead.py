"""An engine that is compiled before it is asked for: taken where it is of just that plan, and compiled anew else."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx
import pytest

from tests.measuring.attention_graphs import Form, attention
from truehalf.config.engine import Backend, EngineConfig, TargetConfig
from truehalf.engines.build import Order, build_engine, compile_ahead
from truehalf.engines.compiling import report
from truehalf.runtime.tensorrt.versions import RTX

pytest.importorskip(RTX, reason="TensorRT for RTX has no wheel for this machine")

HERE: Any = {"gpus": None, "tensorrt": None, RTX: "1.7"}
GPU: Any = {"gpus": [{"name": "GPU", "compute_capability": "8.6"}], "tensorrt": "11.3", RTX: "1.7"}


@pytest.fixture
def path(tmp_path: Path) -> Path:
    onnx.save(attention(Form()), tmp_path / "model.onnx")
    return tmp_path / "model.onnx"


def order(target: tuple[str, ...] = (), probe: Any = HERE) -> Order:
    return Order(declared="fp16", profiles=[], probe=probe, target=TargetConfig(list(target)))


def options(folder: Path, **given: Any) -> EngineConfig:
    return EngineConfig(**{"timing_cache": str(folder / "cache")} | given)


def built(path: Path, monkeypatch: pytest.MonkeyPatch, **given: Any) -> tuple[Any, int]:
    """The report, and how often the compiler was called."""
    calls = []
    compiled = report.build_apart
    monkeypatch.setattr(report, "build_apart", lambda *a, **k: calls.append(a) or compiled(*a, **k))
    made = build_engine(path, path.parent / "out", given.pop("order", order()), options(path.parent, **given))
    return made, len(calls)


def test_what_was_compiled_ahead_is_taken_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    first, calls = built(path, monkeypatch)
    assert calls == 1
    (path.parent / "out" / "model.rtx.engine").unlink()
    compile_ahead(path, order(), options(path.parent))
    second, calls = built(path, monkeypatch)
    assert calls == 0 and (path.parent / "out" / "model.rtx.engine").stat().st_size > 0
    assert second | {"build_seconds": 0} == first | {"build_seconds": 0}
    assert not (path.parent / "cache" / "ahead").exists()
    assert built(path, monkeypatch)[1] == 1


def test_the_engine_of_another_plan_is_not_taken(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_ahead(path, order(), options(path.parent))
    assert built(path, monkeypatch, order=order(("sm89",)))[1] == 1
    assert built(path, monkeypatch, builder_optimization_level=1)[1] == 1
    onnx.save(attention(Form(), ("softmax",)), path)
    assert built(path, monkeypatch)[1] == 1


@pytest.mark.parametrize("content", ["", "{", None])
def test_one_that_is_broken_is_compiled_anew(content: str | None, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    compile_ahead(path, order(), options(path.parent))
    kept = path.parent / "cache" / "ahead"
    if content is None:
        (kept / "model.rtx.engine").unlink()
    else:
        (kept / "facts.json").write_text(content)
    found, calls = built(path, monkeypatch)
    assert calls == 1 and found["status"] == "compiled"


def test_on_a_gpu_that_it_does_not_run_on_it_compiles(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on Hopper: the engine would be refused when it is read back."""
    hopper = GPU | {"gpus": [{"name": "NVIDIA H200", "compute_capability": "9.0"}]}
    compiled, calls = built(path, monkeypatch, order=order(probe=hopper), backend=Backend.tensorrt_rtx)
    assert compiled["status"] == "compiled" and calls == 1
    assert "9.0" in compiled["reason"]


@pytest.mark.parametrize(
    ("given", "machine"),
    [({"timing_cache": None}, HERE), ({"when_unavailable": "fail"}, HERE), ({}, GPU), ({}, HERE | {RTX: None})],
)
def test_nothing_is_compiled_that_would_not_be(given: Any, machine: Any, path: Path) -> None:
    compile_ahead(path, order(probe=machine), options(path.parent, **given))
    assert not (path.parent / "cache").exists()
