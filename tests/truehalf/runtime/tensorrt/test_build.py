"""What a plan makes NVIDIA's builder do and what is said when it refuses, by TensorRT for RTX, which needs no GPU."""

from __future__ import annotations

import _ctypes
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import onnx
import pytest

from tests.messages import expect, raises
from tests.truehalf.conftest import MODEL, OPTIONS, PROFILE, Planner, parsed
from tests.waiting import HANG_S
from truehalf.runtime.tensorrt import versions
from truehalf.runtime.tensorrt.apart import build_apart
from truehalf.runtime.tensorrt.build import build
from truehalf.runtime.tensorrt.builder_config import add_profiles, configure
from truehalf.runtime.tensorrt.plugins import load_plugins, message_log
from truehalf.runtime.tensorrt.versions import RTX, BuildError, version_of

trt = pytest.importorskip(RTX, reason="TensorRT for RTX has no wheel for this machine")

SHAPED = """g (float[4,16] x, int64[2] size, float[N,8] mask) => (float[M,K] y, float[N,8] z)
    { y = Reshape(x, size)  z = Relu(mask) }"""
SIZE = {"min": [1, 16], "opt": [4, 16], "max": [8, 64]}
MASK = {"min": [1, 8], "opt": [2, 8], "max": [4, 8]}


@pytest.fixture
def good(plan: Planner, tmp_path: Path) -> Iterator[dict[str, Any]]:
    """A plan whose engine was built earlier; it must be as it was when the test has ended."""
    planned = plan()
    (tmp_path / "model.engine").write_bytes(b"the last good engine")
    yield planned
    assert (tmp_path / "model.engine").read_bytes() == b"the last good engine"
    assert not [*tmp_path.glob(".truehalf-*")], "nothing half written is left"


def renewed(planned: dict[str, Any], model: onnx.ModelProto) -> Any:
    """The plan with another model, of fixed shapes."""
    path = Path(planned["onnx"])
    onnx.save(model, path)
    return planned | {"profiles": []}


# --- options ----------------------------------------------------------------------------------------------------------

ATTRIBUTES = ("builder_optimization_level", "max_aux_streams", "tiling_optimization_level", "profiling_verbosity")


def configured(**options: Any) -> tuple[Any, Any]:
    """A configuration of the builder as it comes, and one with options."""
    builder = trt.Builder(message_log(trt))
    fresh, config = builder.create_builder_config(), builder.create_builder_config()
    configure(trt, config, OPTIONS | options)  # type: ignore[arg-type]
    return fresh, config


def test_the_default_options_only_clear_tf32() -> None:
    fresh, config = configured()
    assert fresh.flags ^ config.flags == 1 << int(trt.BuilderFlag.TF32) == fresh.flags
    assert config.get_memory_pool_limit(trt.MemoryPoolType.WORKSPACE) == 4 * 2**30
    changed = {name for name in ATTRIBUTES if getattr(fresh, name) != getattr(config, name)}
    assert changed == {"profiling_verbosity"} and config.profiling_verbosity.name == "DETAILED"


@pytest.mark.parametrize(("option", "flag"), versions.BUILDER_FLAGS.items())
def test_an_option_sets_its_flag(option: str, flag: str) -> None:
    _, config = configured(**{option: True})
    assert config.flags == 1 << int(trt.BuilderFlag.__members__[flag])


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("builder_optimization_level", 5, 5),
        ("builder_optimization_level", 0, 0),
        ("max_aux_streams", 0, 0),
        ("tiling_optimization_level", "full", "FULL"),
        ("profiling_verbosity", "layer_names_only", "LAYER_NAMES_ONLY"),
        ("profiling_verbosity", "none", "NONE"),
    ],
)
def test_an_option_sets_its_attribute(option: str, value: Any, expected: Any) -> None:
    _, config = configured(**{option: value})
    assert getattr(getattr(config, option), "name", getattr(config, option)) == expected


@pytest.mark.parametrize("pool", ["workspace", "tactic_dram", "tactic_shared_memory"])
def test_a_memory_pool_is_limited(pool: str) -> None:
    _, config = configured(memory_pools_gb={pool: 2**-10})
    assert config.get_memory_pool_limit(trt.MemoryPoolType.__members__[pool.upper()]) == 2**20


@pytest.mark.parametrize(
    ("option", "value", "unknown", "known"),
    [
        ("memory_pools_gb", {"heap": 1}, "'heap'", "workspace"),
        ("tiling_optimization_level", "most", "'most'", "moderate"),
        ("hardware_compatibility", "all", "'all'", "ampere_plus"),
    ],
)
def test_an_unknown_member_is_refused_with_the_known_ones(
    good: dict[str, Any], tmp_path: Path, option: str, value: Any, unknown: str, known: str
) -> None:
    good["builder"][option] = value  # a plan edited by hand
    with raises("unknown-choice", f"engine.{option}", unknown, known, error=BuildError):
        build(good, tmp_path, module=RTX)


# --- profiles ---------------------------------------------------------------------------------------------------------


def added(text: str, profiles: list[Any]) -> list[Any]:
    """Profiles as the builder's configuration takes them, for a model."""
    builder = trt.Builder(log := message_log(trt))
    network, config = builder.create_network(0), builder.create_builder_config()
    assert trt.OnnxParser(network, log).parse(parsed(text).SerializeToString())
    taken: list[Any] = []

    def add(profile: Any) -> int:
        taken.append(profile)
        return int(config.add_optimization_profile(profile))

    add_profiles(builder, network, SimpleNamespace(add_optimization_profile=add), profiles)
    assert config.num_optimization_profiles == len(taken)
    return taken


def test_every_profile_is_added() -> None:
    large = {"images": {"min": [8, 3, 8, 8], "opt": [16, 3, 8, 8], "max": [32, 3, 8, 8]}}
    shapes = [[list(one) for one in profile.get_shape("images")] for profile in added(MODEL, [PROFILE, large])]
    assert shapes == [list(given["images"].values()) for given in (PROFILE, large)]


def test_numbers_of_a_shape_tensor_are_its_values() -> None:
    (profile,) = added(SHAPED, [{"size": SIZE, "mask": MASK}])
    assert [list(one) for one in profile.get_shape_input("size")] == list(SIZE.values())
    assert [list(one) for one in profile.get_shape("mask")] == list(MASK.values())


def test_what_the_parser_knows_better_than_the_plan_is_said_at_once() -> None:
    with raises("wrong-plan", error=BuildError) as error:
        added(SHAPED, [{"other": MASK}])
    other, size, mask = str(error.value).splitlines()
    expect(other, "wrong-plan", "engine.profiles[0].other", "x", "size", "mask")
    expect(size, None, "engine.profiles[0]", "'size'", "values")
    expect(mask, None, "engine.profiles[0]", "'mask'", "shapes")


@pytest.mark.parametrize(
    ("name", "changes", "said"),
    [
        ("mask", {"max": [4]}, "(-1, 8)"),
        ("mask", {"opt": [2, 8, 1]}, "(-1, 8)"),
        ("mask", {"max": [4, 9]}, "(-1, 8)"),
        ("mask", {"min": [-1, 8]}, "(-1, 8)"),
        ("mask", {"min": [3, 8]}, "{'min': [3, 8]"),
        ("size", {"opt": [4]}, "values"),
        ("size", {"max": [8, 64, 1]}, "values"),
        ("size", {"min": [5, 16]}, "values"),
    ],
)
def test_numbers_that_do_not_fit_are_named(name: str, changes: dict[str, list[int]], said: str) -> None:
    given = {"size": SIZE, "mask": MASK}
    with raises("wrong-plan", "engine.profiles[0]", *changes.values(), said, error=BuildError) as error:
        added(SHAPED, [given | {name: given[name] | changes}])
    assert len(str(error.value).splitlines()) == 1 and name in str(error.value)


# --- refusals ---------------------------------------------------------------------------------------------------------


def test_parser_errors_name_node_and_operator(good: dict[str, Any], tmp_path: Path) -> None:
    model = parsed("g (float[4] x) => (int64[1,M] y) { z = Relu(x)  y = NonZero(z) }")
    model.graph.node[1].name = "/b/NonZero"
    planned = renewed(good, model)
    with raises("not-supported", tmp_path / "model.onnx", trt.__version__, error=BuildError) as error:
        build(planned, tmp_path, module=RTX)
    (fault,) = error.value.errors  # type: ignore[attr-defined]
    assert (fault["node"], fault["op_type"], fault["code"]) == ("/b/NonZero", "NonZero", "UNSUPPORTED_NODE")
    _, line = str(error.value).splitlines()
    expect(line, None, *fault.values())


@pytest.mark.parametrize("content", [b"no model", b"\x08\x08garbage", b"PK\x03\x04"])
def test_a_file_that_is_no_model_is_refused(content: bytes, good: dict[str, Any], tmp_path: Path) -> None:
    path = Path(good["onnx"])
    path.write_bytes(content)
    with raises("not-supported", path, "MODEL_DESERIALIZE_FAILED", error=BuildError):
        build(good, tmp_path, module=RTX)


def test_an_operator_of_a_missing_plugin_is_named(good: dict[str, Any], tmp_path: Path) -> None:
    model = parsed("g (float[4] x) => (float[4] y) { y = com.acme.Mine(x) }")
    model.opset_import.append(onnx.helper.make_opsetid("com.acme", 1))
    planned = renewed(good, model)
    with raises("not-supported", "Mine", error=BuildError):
        build(planned, tmp_path, module=RTX)


def test_when_nothing_is_built_its_errors_are_quoted_and_no_others(
    good: dict[str, Any], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """TensorRT keeps the first logger that a process gives it, for good: each build quotes its own all the same."""
    facts = (tmp_path / "model.onnx", trt.__version__, "engine.memory_pools_gb.workspace", "engine.profiles")
    no_memory = good | {"builder": good["builder"] | {"memory_pools_gb": {"workspace": 0.0}}}
    with raises("no-engine", *facts, "workspace memory", error=BuildError) as first:
        build(no_memory | {"builder": no_memory["builder"] | {"timing_cache": "caches"}}, tmp_path, module=RTX)
    with raises("no-engine", *facts, error=BuildError) as second:
        build(good | {"profiles": []}, tmp_path, module=RTX)
    assert "workspace memory" not in str(second.value)
    assert f"tensorrt: {str(first.value).splitlines()[1].strip()}" in capsys.readouterr().err.splitlines()
    assert not Path("caches").exists()


def test_warnings_are_kept_once_and_chatter_is_not() -> None:
    log, severity = message_log(trt), trt.ILogger.Severity
    for level, text in ((severity.WARNING, "a"), (severity.INFO, "b"), (severity.WARNING, "a"), (severity.ERROR, "c")):
        log.log(level, text)
    assert (log.warnings, log.errors) == (["a"], ["c"])
    assert message_log(trt) is log and (log.warnings, log.errors) == ([], [])


def test_a_library_that_is_no_plugin_is_refused(tmp_path: Path) -> None:
    library = tmp_path / "libmine.so"
    library.write_text("no library")
    with raises("file-unreadable", library, error=BuildError):
        load_plugins(trt, message_log(trt), [library])
    none = Path(_ctypes.__file__)
    with raises("wrong-file", none.resolve(), "getCreators()", error=BuildError):
        load_plugins(trt, message_log(trt), [none])


def test_another_tensorrt_is_refused() -> None:
    with raises("package-missing", "8.6.1", "10.x", "11.x", error=BuildError):
        version_of("8.6.1")


# --- what is not the plan's fault -------------------------------------------------------------------------------------


def test_a_disk_that_is_full_is_said(good: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, content: bytes) -> int:
        raise OSError(28, "No space left on device", str(path))

    monkeypatch.setattr(Path, "write_bytes", full)
    with raises("file-unwritable", tmp_path / "model.engine", "No space left on device", error=BuildError):
        build(good, tmp_path, module=RTX)


def test_a_wheel_without_its_libraries_is_said(good: dict[str, Any], tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(json.dumps(good))
    text = f"""import json, sys
from truehalf.runtime.tensorrt.build import build
from truehalf.runtime.tensorrt.versions import BuildError, tensorrt_version
sys.modules["tensorrt_rtx_libs"] = None
assert tensorrt_version({RTX!r}) is None
try:
    build(json.load(open("plan.json")), ".", module={RTX!r})
except BuildError as error:
    print(error)"""
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    ended = subprocess.run(
        [sys.executable, "-c", text], cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=HANG_S
    )
    expect(ended.stdout, "package-missing", RTX, "libtensorrt_rtx.so.1")


def test_a_compiler_that_dies_is_said(good: dict[str, Any], tmp_path: Path) -> None:
    model = parsed(
        "g (float16[2,4,8] f) => (float16[2,4,8] y) { y = Attention<q_num_heads = 2, kv_num_heads = 2>(f, f, f) }"
    )
    model.opset_import[0].version, model.ir_version = 23, 10
    with raises("runtime-refuses", good["onnx"], RTX, "SIGSEGV", error=BuildError):
        build_apart(renewed(good, model), tmp_path, module=RTX)


@pytest.mark.parametrize(
    ("does", "said"),
    [("os.kill(os.getpid(), signal.SIGKILL)", "SIGKILL"), ("os._exit(3)", 3), ("raise ValueError", 1)],
)
def test_any_end_without_an_answer_is_said(
    does: str, said: object, good: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "library_that_ends.py").write_text(f"import os, signal\n{does}")
    monkeypatch.syspath_prepend(tmp_path)
    with raises("runtime-refuses", "library_that_ends", said, error=BuildError):
        build_apart(good, tmp_path, module="library_that_ends")  # type: ignore[arg-type]


def test_what_is_built_apart_is_told_as_here(plan: Planner, tmp_path: Path) -> None:
    here = build(plan(), tmp_path, module=RTX)
    apart = build_apart(plan(), tmp_path, module=RTX)  # type: ignore[arg-type]
    assert {**apart, "build_seconds": 0} == {**here, "build_seconds": 0} and here["gpu"] is None
    with raises("package-missing", "no_such_module", error=BuildError):
        build_apart(plan(), tmp_path, module="no_such_module")  # type: ignore[arg-type]


# --- Ctrl-C -----------------------------------------------------------------------------------------------------------

INTERRUPTING = f'''import signal, sys, threading, {RTX}

class Interrupting({RTX}.IProgressMonitor):
    """Ctrl-C at the third step, said from a thread of the builder's, while the main thread runs no Python."""

    steps = 0

    def __init_subclass__(cls):
        step_complete = cls.step_complete

        def counted(self, phase, step):
            Interrupting.steps += 1
            went_on = []

            def told():
                if Interrupting.steps == 3:
                    signal.raise_signal(signal.SIGINT)
                went_on.append(step_complete(self, phase, step))

            thread = threading.Thread(target=told)
            thread.start()
            thread.join()
            return went_on[0]

        cls.step_complete = counted
'''


@pytest.fixture
def interrupting(monkeypatch: pytest.MonkeyPatch) -> Any:
    space: dict[str, Any] = {}
    exec(INTERRUPTING, space)
    monkeypatch.setattr(trt, "IProgressMonitor", space["Interrupting"])
    return space["Interrupting"]


def test_ctrl_c_stops_the_builder_at_its_next_step(good: dict[str, Any], tmp_path: Path, interrupting: Any) -> None:
    before = signal.getsignal(signal.SIGINT), signal.set_wakeup_fd(-1)
    good["builder"]["timing_cache"] = str(tmp_path / "caches")
    with pytest.raises(KeyboardInterrupt):
        build(good, tmp_path, module=RTX)
    assert interrupting.steps == 3
    assert (signal.getsignal(signal.SIGINT), signal.set_wakeup_fd(-1)) == before
    assert not (tmp_path / "caches").exists()
    elsewhere = tmp_path / "elsewhere"
    build(good | {"onnx": good["onnx"]}, elsewhere, module=RTX)
    assert interrupting.steps > 6 and (elsewhere / "model.engine").exists()


def test_a_caller_s_own_handler_gets_the_signal_when_the_builder_has_stopped(
    good: dict[str, Any], tmp_path: Path, interrupting: Any
) -> None:
    given: list[int] = []
    before = signal.signal(signal.SIGINT, lambda number, frame: given.append(number))
    try:
        with raises("no-engine", error=BuildError):
            build(good, tmp_path, module=RTX)
    finally:
        signal.signal(signal.SIGINT, before)
    assert given == [signal.SIGINT] and interrupting.steps == 3


def test_signals_are_left_alone_outside_the_main_thread(
    plan: Planner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(signal, "set_wakeup_fd", None)  # which only the main thread may call
    planned, built = plan(), []
    thread = threading.Thread(target=lambda: built.append(build(planned, tmp_path, module=RTX)))
    thread.start()
    thread.join()
    assert built and built[0]["layers"]


def test_ctrl_c_ends_a_process_apart(good: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "library_that_hangs.py").write_text(
        f"import os, signal, time\nos.kill(os.getppid(), signal.SIGINT)\ntime.sleep({HANG_S})\nos._exit(3)"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(KeyboardInterrupt):
        build_apart(good, tmp_path, module="library_that_hangs")  # type: ignore[arg-type]
