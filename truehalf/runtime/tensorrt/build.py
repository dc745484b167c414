"""Build a strongly typed TensorRT engine from a plan.

This file, what it imports of this package and truehalf/files.py need the standard library, numpy and tensorrt
only: as one file, build_engine.py, they are carried to the GPU's host with the plan. TensorRT 10 is asked to build a
strongly typed network and TensorRT 11 knows no others: both read the precision from the graph and mean the same. What
differs between them stands only in VERSIONS (versions.py).

    pip install tensorrt numpy
    python build_engine.py plan.json [--out folder]
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from truehalf.files import destination, same_place, written_whole
from truehalf.runtime.cuda_driver import gpu_name
from truehalf.runtime.tensorrt.builder_config import add_profiles, configure
from truehalf.runtime.tensorrt.layer_log import layers_of_log
from truehalf.runtime.tensorrt.plan_content import checked_model, checked_plugin, plan_problems, quoted
from truehalf.runtime.tensorrt.plugins import load_plugins, message_log
from truehalf.runtime.tensorrt.proof import (
    NO_LAYERS,
    engine_facts,
    logged_facts,
    precision_doubt,
    precision_problem,
    precision_unknown,
)
from truehalf.runtime.tensorrt.rtx import set_target
from truehalf.runtime.tensorrt.timing_cache import cache_file, load_cache, save_cache
from truehalf.runtime.tensorrt.versions import (
    PLAN_KEYS,
    RTX,
    TENSORRT,
    BuildError,
    BuildPlan,
    EngineFacts,
    ParserError,
    tensorrt_version,
    version_of,
)

FACTS_FILE = "engine.json"
NOT_VERIFIED = 3  # exit code of this script for an engine of unknown precision


# --- building ---------------------------------------------------------------------------------------------------------


def build(
    plan: BuildPlan,
    folder: Path | str,
    *,
    beside: Path | str | None = None,
    module: str = TENSORRT,
    compiled: bool = False,
) -> EngineFacts:
    """Build the engine that a plan (truehalf.engines.plan_files.make_plan) describes, and write it to `folder`.

    Args:
        plan: the content of plan.json.
        folder: where the engine goes, under the last part of plan["engine"].
        beside: the plan's folder (default: `folder`). The plan's paths are looked up from the current folder, then from
            there, then by their last part there.
        module: that builds: "tensorrt", or "tensorrt_rtx", which needs no GPU.
        compiled: by tensorrt_rtx, and not read back, as where there is no GPU, or one that it runs nothing on: facts of
            the engine are those of the builder's log.

    Returns:
        what `engine_facts` returns, and of the build its versions, sizes (10^6 bytes), time, timing cache and
        TensorRT's warnings, each once.

    Raises:
        BuildError: when a file is missing, not the plan's or cannot be written, `module` cannot be imported, or
            TensorRT refuses an option, a plugin or the model. An engine that was there is as it was.
    """
    folder = Path(folder)
    try:
        trt = importlib.import_module(module)
    except (ImportError, OSError) as error:  # a wheel without its libraries, too
        raise BuildError("package-missing", f"{module} cannot be imported: {error}; install it anew") from error
    try:
        return _built(trt, plan, folder, folder if beside is None else Path(beside), compiled)
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


def _built(trt: Any, plan: BuildPlan, folder: Path, beside: Path, compiled: bool) -> EngineFacts:
    version = version_of(trt.__version__)
    if problems := plan_problems(plan, PLAN_KEYS):
        lines = ["the plan cannot be carried out; make it anew:", *(f"  {one}" for one in problems)]
        raise BuildError("wrong-plan", "\n".join(lines))
    options = plan["builder"]
    model_path = checked_model(plan, beside)
    engine_path = folder / Path(plan["engine"]).name
    plugins = [checked_plugin(plugin, beside) for plugin in plan["plugins"]]
    _check_written(
        {"the engine": engine_path}, {"the model": model_path} | {f"plugin {i}": p for i, p in enumerate(plugins)}
    )
    logger = message_log(trt)
    load_plugins(trt, logger, plugins)

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


# --- what is written --------------------------------------------------------------------------------------------------


def _check_written(written: Mapping[str, Path], read: Mapping[str, Path]) -> None:
    """Before the work: what is written is a regular file, and none that the work reads or writes besides.

    Raises:
        BuildError: when it is not.
    """
    for name, path in written.items():
        try:
            destination(path)
        except OSError as error:
            raise BuildError("file-unwritable", f"{name}, {path}: {error.strerror}") from error
    if clash := same_place(written, read):
        name, other = clash
        message = f"{name}, {written[name]}, would be written over {other}, {(dict(read) | dict(written))[other]}"
        raise BuildError("would-overwrite", f"{message}; give `engine` in the plan, or the plan, another name")


def _write(path: Path, content: bytes) -> None:
    try:
        with written_whole(path) as building:
            building.write_bytes(content)
    except OSError as error:
        message = f"{path}: {error.strerror or error}; what was there is as it was"
        raise BuildError("file-unwritable", message) from error


# --- script -----------------------------------------------------------------------------------------------------------


def _built_and_recorded(plan: BuildPlan, folder: Path, beside: Path) -> EngineFacts:
    """`build`, with what is known of the engine in FACTS_FILE wherever one was written."""
    facts: EngineFacts | None = None
    try:
        facts = built = build(plan, folder, beside=beside)
    except BuildError as error:
        facts = error.facts
        raise
    finally:
        if facts is not None:
            _write(folder / FACTS_FILE, (json.dumps(facts, indent=2) + "\n").encode())
    return built


def main() -> None:
    parser = argparse.ArgumentParser(description="Build the TensorRT engine of a plan and say what was built.")
    parser.add_argument("plan", type=Path, help="plan.json, as the engine stage wrote it")
    parser.add_argument("--out", type=Path, help="folder for the engine and engine.json; default: the plan's folder")
    arguments = parser.parse_args()
    folder = arguments.out or arguments.plan.parent
    try:
        plan = json.loads(arguments.plan.read_text())
        if not tensorrt_version():
            message = "TensorRT cannot be imported here: pip install tensorrt, on a host with an NVIDIA GPU"
            raise BuildError("package-missing", message)
        outputs = {"the facts": folder / FACTS_FILE, "the engine": folder / Path(plan["engine"]).name}
        _check_written(outputs, {"the plan": arguments.plan})
        facts = _built_and_recorded(plan, folder, arguments.plan.parent)
        problem = precision_problem(facts, plan["declared"], plan["graph"])
        unknown = precision_unknown(facts, plan["builder"]["profiling_verbosity"])
        unknown = unknown or precision_doubt(facts, plan["declared"], plan["graph"])
    except (BuildError, OSError, AttributeError, KeyError, RuntimeError, TypeError, ValueError) as error:
        sys.exit(f"build_engine: {error if isinstance(error, BuildError | OSError) else repr(error)}")
    except KeyboardInterrupt:
        sys.exit(130)
    fraction = facts["half_layers_fraction"]
    share = "share of Half layers not known" if fraction is None else f"{fraction:.1%} of layers compute Half"
    print(f"{facts['engine']}: {facts['engine_mb']:.1f} MB, {facts['layers']} layers, {share}")
    print("not verified: the engine's outputs and latency (truehalf engine plan.json does that)")
    if problem:
        sys.exit(f"build_engine: {problem}")
    if unknown:
        print(f"build_engine: not verified: {plan['declared']}: {unknown}", file=sys.stderr)
        sys.exit(NOT_VERIFIED)


if __name__ == "__main__":
    main()
