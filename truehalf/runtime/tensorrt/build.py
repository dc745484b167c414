"""Build a strongly typed TensorRT engine from a plan.

TensorRT 10 is asked to build a strongly typed network and TensorRT 11 knows no others: both read the precision from the
graph and mean the same. What differs between them stands only in VERSIONS (versions.py).
"""

from __future__ import annotations

import importlib
import os
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from truehalf.files import destination, written_whole
from truehalf.runtime.cuda_driver import gpu_name
from truehalf.runtime.tensorrt.builder_config import add_profiles, configure
from truehalf.runtime.tensorrt.layer_log import layers_of_log
from truehalf.runtime.tensorrt.plugins import load_plugins, message_log
from truehalf.runtime.tensorrt.proof import NO_LAYERS, engine_facts, logged_facts
from truehalf.runtime.tensorrt.rtx import set_target
from truehalf.runtime.tensorrt.timing_cache import cache_file, load_cache, save_cache
from truehalf.runtime.tensorrt.versions import (
    RTX,
    TENSORRT,
    BuildError,
    BuildPlan,
    EngineFacts,
    ParserError,
    quoted,
    version_of,
)


def build(
    plan: BuildPlan,
    folder: Path | str,
    *,
    module: str = TENSORRT,
    compiled: bool = False,
) -> EngineFacts:
    """Build the engine that a plan (truehalf.engines.plan.make_plan) describes, and write it to `folder`.

    Args:
        plan: the content of plan.json, with paths from the current folder.
        folder: where the engine goes, under the last part of plan["engine"].
        module: that builds: "tensorrt", or "tensorrt_rtx", which needs no GPU.
        compiled: by tensorrt_rtx, and not read back, as where there is no GPU, or one that it runs nothing on: facts of
            the engine are those of the builder's log.

    Returns:
        what `engine_facts` returns, and of the build its versions, sizes (10^6 bytes), time, timing cache and
        TensorRT's warnings, each once.

    Raises:
        BuildError: when the engine cannot be written, `module` cannot be imported, or TensorRT refuses an option, a
            plugin or the model. An engine that was there is as it was.
    """
    folder = Path(folder)
    try:
        trt = importlib.import_module(module)
    except (ImportError, OSError) as error:  # a wheel without its libraries, too
        raise BuildError("package-missing", f"{module} cannot be imported: {error}; install it anew") from error
    try:
        return _built(trt, plan, folder, compiled)
    except (AttributeError, TypeError) as error:
        raise _refusal(trt, error) from error


def _refusal(trt: Any, error: AttributeError | TypeError) -> BuildError:
    """The error for a name or a call that this TensorRT does not have."""
    owner = getattr(error, "obj", None)
    where = f"{getattr(owner, '__module__', '')} {getattr(owner, '__name__', '')} {error}"
    if isinstance(error, AttributeError) and "tensorrt" in where:
        message = f"TensorRT {trt.__version__} lacks what this plan takes: {error}; expected a later release"
        return BuildError("not-supported", message)
    message = f"TensorRT {trt.__version__} does not carry out this plan: {type(error).__name__}: {error}"
    return BuildError("runtime-refuses", message)


def _built(trt: Any, plan: BuildPlan, folder: Path, compiled: bool) -> EngineFacts:
    version = version_of(trt.__version__)
    options = plan["builder"]
    model_path = Path(plan["onnx"])
    engine_path = folder / Path(plan["engine"]).name
    try:
        destination(engine_path)
    except OSError as error:
        raise BuildError("file-unwritable", f"the engine, {engine_path}: {error.strerror}") from error
    logger = message_log(trt)
    load_plugins(trt, logger, [plugin["path"] for plugin in plan["plugins"]])

    try:
        builder = trt.Builder(logger)
    except TypeError as error:  # by which the bindings say that the library gave none
        raise BuildError(
            "no-device",
            f"TensorRT {trt.__version__} does not start on this machine{quoted(logger.errors)}\n"
            "expected an NVIDIA GPU that this version supports, and a driver for its CUDA",
        ) from error
    flags = sum(1 << int(getattr(trt.NetworkDefinitionCreationFlag, name)) for name in version.network_flags)
    network = builder.create_network(flags)
    parser = trt.OnnxParser(network, logger)
    _parse(trt, parser, model_path)
    config = builder.create_builder_config()
    configure(trt, config, options)
    set_target(trt, config, plan.get("target", {}).get("compute_capability", []))
    if options["version_compatible"] and (libraries := parser.get_used_vc_plugin_libraries()):
        config.plugins_to_serialize = libraries  # or an engine of another version could not run their layers
    add_profiles(builder, network, config, plan["profiles"])
    cache = cache_file(trt, options)
    loaded = load_cache(config, cache) if cache else False

    started = time.perf_counter()
    with _stopped_by_ctrl_c(trt, config):
        serialized = builder.build_serialized_network(network, config)
    seconds = time.perf_counter() - started
    if serialized is None:
        raise BuildError(
            "no-engine",
            f"TensorRT {trt.__version__} built no engine from {model_path}{quoted(logger.errors)}\n"
            "a larger engine.memory_pools_gb.workspace or smaller engine.profiles may help",
        )
    saved = save_cache(config, cache) if cache else False
    _write(engine_path, bytes(serialized))

    facts: EngineFacts = {
        "tensorrt": str(trt.__version__),
        "gpu": gpu_name(),
        "engine": str(engine_path),
        "engine_mb": engine_path.stat().st_size / 1e6,
        "build_seconds": round(seconds, 3),
        **NO_LAYERS,
        "timing_cache": {"file": str(cache), "loaded": loaded, "saved": saved} if cache else None,
        "warnings": logger.warnings,
    }
    if compiled or (trt.__name__ == RTX and facts["gpu"] is None):
        return facts | logged_facts(layers_of_log(logger.layers), version.inspector_dtype)
    message = f"TensorRT {trt.__version__} cannot read the engine that it built"
    engine = None
    try:
        runtime = trt.Runtime(logger)
        runtime.engine_host_code_allowed = bool(options["version_compatible"])  # such an engine brings a runtime
        engine = runtime.deserialize_cuda_engine(engine_path.read_bytes())
    except (AttributeError, RuntimeError, TypeError, ValueError) as error:
        message += f": {error}"
    if engine is None:
        message += f"{quoted(logger.errors)}\nit is kept as {engine_path}"
        raise BuildError("file-unreadable", message, facts=facts)
    return facts | engine_facts(trt, engine, version.inspector_dtype)


@contextmanager
def _stopped_by_ctrl_c(trt: Any, config: Any) -> Iterator[None]:
    """Let the builder stop at its next step after Ctrl-C, and hand the signal on when it has.

    The builder holds the main thread, where Python would handle the signal, and reports its steps from any thread: so
    the signal's number is read from a pipe, which the system's handler fills at once.
    """
    before = signal.getsignal(signal.SIGINT)
    base = getattr(trt, "IProgressMonitor", None)
    in_main = threading.current_thread() is threading.main_thread()
    if base is None or not callable(before) or not in_main or os.name != "posix":
        yield
        return
    interrupted = threading.Event()
    reading, writing = os.pipe()

    class StopOnInterrupt(base):  # type: ignore[misc, valid-type]
        def __init__(self) -> None:
            super().__init__()

        def phase_start(self, phase_name: str, parent_phase: str | None, num_steps: int) -> None: ...

        def phase_finish(self, phase_name: str) -> None: ...

        def step_complete(self, phase_name: str, step: int) -> bool:
            with suppress(OSError):  # nothing to read
                if signal.SIGINT in os.read(reading, 512):
                    interrupted.set()
            return not interrupted.is_set()

    monitor = StopOnInterrupt()
    config.progress_monitor = monitor
    for end in (reading, writing):
        os.set_blocking(end, False)
    waker = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
    try:
        signal.signal(signal.SIGINT, lambda *_: interrupted.set())
        yield
    finally:
        signal.signal(signal.SIGINT, before)
        signal.set_wakeup_fd(waker)
        os.close(reading)
        os.close(writing)
        if interrupted.is_set():
            before(signal.SIGINT, None)


def _parse(trt: Any, parser: Any, model_path: Path) -> None:
    if parser.parse_from_file(str(model_path)):
        return
    errors: list[ParserError] = []
    for index in range(parser.num_errors):
        error = parser.get_error(index)
        errors.append(
            {
                "node": error.node_name(),
                "op_type": error.node_operator(),
                "message": error.desc(),
                "code": str(error.code()).rpartition(".")[2],
            }
        )
    lines = [f"  node {one['node']!r} ({one['op_type']}): {one['message']} [{one['code']}]" for one in errors]
    message = "\n".join([f"TensorRT {trt.__version__} cannot parse {model_path}:", *lines])
    raise BuildError("not-supported", message, errors)


def _write(path: Path, content: bytes) -> None:
    try:
        with written_whole(path) as building:
            building.write_bytes(content)
    except OSError as error:
        message = f"{path}: {error.strerror or error}; what was there is as it was"
        raise BuildError("file-unwritable", message) from error
