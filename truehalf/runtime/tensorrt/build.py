"""Build a strongly typed TensorRT engine from a plan.

This file, proof.py and truehalf/output_files.py need the standard library, numpy and tensorrt only: as one file,
build_engine.py, they are carried to the GPU's host with the plan. TensorRT 10 is told to build a strongly typed network
and TensorRT 11 knows no others: both read the precision from the graph and mean the same. What differs between them
stands in VERSIONS and nowhere else.

    pip install tensorrt numpy
    python build_engine.py plan.json [--out folder]
"""

from __future__ import annotations

import argparse
import ctypes
import hashlib
import json
import os
import re
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

try:
    import fcntl
except ImportError:  # on Windows
    fcntl = None  # type: ignore[assignment]

from truehalf.output_files import destination, same_place, written_whole
from truehalf.runtime.tensorrt.proof import NO_LAYERS, engine_facts, precision_doubt, precision_fault, precision_unknown

PLAN_FORMAT = 1
FACTS_FILE = "engine.json"
NOT_VERIFIED = 3  # exit code of this script for an engine whose precision nobody can say


class Version(NamedTuple):
    """What one major version of TensorRT wants otherwise than another."""

    network_flags: tuple[str, ...]  # members of NetworkDefinitionCreationFlag that make a network strongly typed
    trtexec: tuple[str, ...]  # the same for trtexec
    inspector_dtype: tuple[str, ...]  # keys of the engine inspector's JSON that hold a tensor's type, best first


VERSIONS: dict[int, Version] = {
    10: Version(("STRONGLY_TYPED",), ("--stronglyTyped",), ("Format/Datatype", "Format/DataType")),
    11: Version((), (), ("DataType", "Datatype", "Format", "Format/DataType", "Format/Datatype")),
}


BUILDER_FLAGS = {  # option of a plan -> member of BuilderFlag
    "tf32": "TF32",
    "editable_timing_cache": "EDITABLE_TIMING_CACHE",
    "version_compatible": "VERSION_COMPATIBLE",
    "refit": "REFIT",
    "strip_weights": "STRIP_PLAN",
}


PLAN_KEYS: dict[str, type] = {  # what a build reads of a plan
    **{"onnx": str, "onnx_data": list, "onnx_sha256": str, "engine": str, "declared": str, "graph": dict},
    **{"builder": dict, "profiles": list, "plugins": list},
}
BUILDER_OPTIONS = (
    *("memory_pools_gb", "builder_optimization_level", "max_aux_streams", "tiling_optimization_level", "tf32"),
    *("timing_cache", "editable_timing_cache", "version_compatible", "hardware_compatibility", "refit"),
    *("strip_weights", "profiling_verbosity"),
)


class BuildError(Exception):
    """No engine that can be used: the text is complete, and its first line ends with the code.

    Attributes:
        code: of the project's truehalf.codes, which this file does not need.
        faults: the parser's errors: {node, op_type, message, code}.
        facts: where a file was written all the same, what is known of it, in the shape of `build`'s; else None.
    """

    def __init__(
        self,
        code: str,
        message: str,
        faults: Iterable[Mapping[str, Any]] = (),
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        super().__init__(code, message)
        self.code = code
        first, newline, rest = message.partition("\n")
        self._message = f"{first} [{code}]{newline}{rest}"
        self.faults = [dict(fault) for fault in faults]
        self.facts = None if facts is None else dict(facts)

    def __str__(self) -> str:
        return self._message


# --- the machine ------------------------------------------------------------------------------------------------------


def tensorrt_version() -> str | None:
    """Version of the tensorrt module, or None when it cannot be imported here."""
    try:
        import tensorrt as trt
    except (ImportError, OSError):
        return None
    return str(trt.__version__)


def unavailable_reason(probe: Mapping[str, Any]) -> str | None:
    """Why no engine can be built on the machine that `probe` describes, or None when one can."""
    missing = []
    if not probe["gpus"]:
        missing.append("no NVIDIA GPU (neither nvidia-smi nor the driver finds one)")
    if not probe["tensorrt"]:
        missing.append("TensorRT cannot be imported (pip install 'truehalf[tensorrt]' from NVIDIA's channel)")
    return " and ".join(missing) or None


def version_of(version: str) -> Version:
    """The row of VERSIONS for a version such as "11.4.0.106".

    Raises:
        BuildError: for another major version.
    """
    major = int(version.split(".")[0])
    if major not in VERSIONS:
        known = " and ".join(f"{one}.x" for one in VERSIONS)
        raise BuildError("package-missing", f"TensorRT {version}: expected {known}; install one of these")
    return VERSIONS[major]


def gpu_name() -> str | None:
    """Name of the first visible GPU, such as "NVIDIA L4", as the driver's library gives it; None without a driver."""
    try:
        cuda = ctypes.CDLL("libcuda.so.1" if os.name == "posix" else "nvcuda.dll")
    except OSError:
        return None
    device, name = ctypes.c_int(), ctypes.create_string_buffer(256)
    for status in (
        cuda.cuInit(0),
        cuda.cuDeviceGet(ctypes.byref(device), 0),
        cuda.cuDeviceGetName(name, len(name), device),
    ):
        if status:
            return None
    return name.value.decode(errors="replace")


def gpu_key() -> str:
    """`gpu_name` for names of files: "nvidia-l4"."""
    return re.sub(r"[^a-z0-9]+", "-", (gpu_name() or "unknown gpu").lower()).strip("-")


# --- building ---------------------------------------------------------------------------------------------------------


def build(plan: Mapping[str, Any], folder: Path | str, *, beside: Path | str | None = None) -> dict[str, Any]:
    """Build the engine that a plan (truehalf.engines.plan_files.make_plan) describes, and write it to `folder`.

    Args:
        plan: the content of plan.json.
        folder: where the engine goes, under the last part of plan["engine"].
        beside: the plan's folder (default: `folder`). The plan's paths are looked up from the current folder, then from
            there, then by their last part there.

    Returns:
        tensorrt (version), gpu, engine (path), engine_mb (10^6 bytes), build_seconds, what `engine_facts` tells,
        timing_cache ({file, loaded, saved} or None), warnings (TensorRT's, each once).

    Raises:
        BuildError: when a file is missing or not the plan's, or TensorRT refuses an option, a plugin or the model.
    """
    import tensorrt as trt

    folder = Path(folder)
    try:
        return _built(trt, plan, folder, folder if beside is None else Path(beside))
    except (AttributeError, TypeError) as error:
        raise _refusal(trt, error) from error


def _refusal(trt: Any, error: AttributeError | TypeError) -> BuildError:
    """What is said of a name or a call that this TensorRT does not have."""
    owner = getattr(error, "obj", None)
    where = f"{getattr(owner, '__module__', '')} {getattr(owner, '__name__', '')} {error}"
    if isinstance(error, AttributeError) and "tensorrt" in where:
        said = f"TensorRT {trt.__version__} lacks what this plan takes: {error}; expected a later release"
        return BuildError("not-supported", said)
    said = f"TensorRT {trt.__version__} does not carry out this plan: {type(error).__name__}: {error}"
    return BuildError("runtime-refuses", said)


def _built(trt: Any, plan: Mapping[str, Any], folder: Path, beside: Path) -> dict[str, Any]:
    version = version_of(trt.__version__)
    if faults := plan_faults(plan, PLAN_KEYS):
        lines = ["the plan cannot be carried out; make it anew:", *(f"  {one}" for one in faults)]
        raise BuildError("wrong-plan", "\n".join(lines))
    options = plan["builder"]
    model_path = _checked_model(plan, beside)
    engine_path = folder / Path(plan["engine"]).name
    plugins = [_checked_plugin(plugin, beside) for plugin in plan["plugins"]]
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
            f"TensorRT {trt.__version__} does not start on this machine{_quoted(logger.errors)}\n"
            "expected an NVIDIA GPU that this version supports, and a driver for its CUDA",
        ) from error
    flags = sum(1 << int(getattr(trt.NetworkDefinitionCreationFlag, name)) for name in version.network_flags)
    network = builder.create_network(flags)
    parser = trt.OnnxParser(network, logger)
    _parse(trt, parser, model_path)
    config = builder.create_builder_config()
    _configure(trt, config, options)
    if options["version_compatible"] and (libraries := parser.get_used_vc_plugin_libraries()):
        config.plugins_to_serialize = libraries  # or an engine of another version could not run their layers
    _add_profiles(builder, network, config, plan["profiles"])
    cache_file = _cache_file(trt, options)
    loaded = _load_cache(config, cache_file) if cache_file else False

    started = time.perf_counter()
    with _stopped_by_ctrl_c(trt, config):
        serialized = builder.build_serialized_network(network, config)
    seconds = time.perf_counter() - started
    if serialized is None:
        raise BuildError(
            "no-engine",
            f"TensorRT {trt.__version__} built no engine from {model_path}{_quoted(logger.errors)}\n"
            "a larger engine.memory_pools_gb.workspace or smaller engine.profiles may help",
        )
    saved = _save_cache(config, cache_file) if cache_file else False
    _write(engine_path, bytes(serialized))

    facts = {
        "tensorrt": str(trt.__version__),
        "gpu": gpu_name(),
        "engine": str(engine_path),
        "engine_mb": engine_path.stat().st_size / 1e6,
        "build_seconds": round(seconds, 3),
        **NO_LAYERS,
        "timing_cache": {"file": str(cache_file), "loaded": loaded, "saved": saved} if cache_file else None,
        "warnings": logger.warnings,
    }
    fault = f"TensorRT {trt.__version__} cannot read the engine that it built"
    engine = None
    try:
        runtime = trt.Runtime(logger)
        runtime.engine_host_code_allowed = bool(options["version_compatible"])  # such an engine brings its own runtime
        engine = runtime.deserialize_cuda_engine(engine_path.read_bytes())
    except (AttributeError, RuntimeError, TypeError, ValueError) as error:
        fault += f": {error}"
    if engine is None:
        said = f"{fault}{_quoted(logger.errors)}\nit is kept as {engine_path}"
        raise BuildError("file-unreadable", said, facts=facts)
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


_log: Any = None  # TensorRT keeps the first logger that a process gives it, and tells that one everything


def message_log(trt: Any) -> Any:
    """The process's logger, emptied: prints warnings and errors to stderr and keeps each once: .warnings, .errors."""
    global _log
    if not isinstance(_log, trt.ILogger):
        _log = _message_log(trt)
    _log.errors, _log.warnings = [], []
    return _log


def _message_log(trt: Any) -> Any:
    class MessageLog(trt.ILogger):  # type: ignore[misc]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []
            self.warnings: list[str] = []

        def log(self, severity: Any, msg: str) -> None:
            if int(severity) > int(trt.ILogger.Severity.WARNING):
                return
            kept = self.warnings if int(severity) == int(trt.ILogger.Severity.WARNING) else self.errors
            if msg not in kept:
                kept.append(msg)
                print(f"tensorrt: {msg}", file=sys.stderr)

    return MessageLog()


_LOADED_PLUGINS: dict[str, list[str]] = {}  # a library registers its plugins once in a process


def load_plugins(trt: Any, logger: Any, files: Iterable[Path | str]) -> list[list[str]]:
    """Register TensorRT's own plugins and those of the libraries given, before a parser or an engine needs them.

    A library that has no entry point for the registry registers itself when it is loaded.

    Returns:
        of each library the operators that it has registered.

    Raises:
        BuildError: when a library cannot be loaded, or registers no plugin.
    """
    trt.init_libnvinfer_plugins(logger, "")
    registry = trt.get_plugin_registry()
    paths = [str(Path(file).resolve()) for file in files]
    for path in paths:
        if path in _LOADED_PLUGINS:
            continue
        before = _creators(trt)
        if registry.load_library(path) is None:
            try:
                ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
            except OSError as error:
                raise BuildError("file-unreadable", f"plugin {path}: cannot be loaded: {error}") from error
            if _creators(trt) == before:
                raise BuildError(
                    "wrong-file",
                    f"plugin {path}: the library registers no plugin{_quoted(logger.errors)}\n"
                    "expected one that exports getCreators() or registers its creators when it is loaded",
                )
        _LOADED_PLUGINS[path] = sorted({name for name, _, _ in _creators(trt) - before})
    return [_LOADED_PLUGINS[path] for path in paths]


def _creators(trt: Any) -> set[tuple[str, str, str]]:
    """Name, version and namespace of every plugin that is registered; TensorRT promises no order of them."""
    keys = ("name", "plugin_version", "plugin_namespace")
    return {
        (name, version, space)
        for creator in trt.get_plugin_registry().all_creators
        for name, version, space in [tuple(str(getattr(creator, key, "")) for key in keys)]
    }


def registered_ops(files: Iterable[Path | str]) -> list[list[str]] | None:
    """As `load_plugins` returns them; None where TensorRT refuses a library: what is wrong with it, a build says."""
    import tensorrt as trt

    try:
        return load_plugins(trt, message_log(trt), files)
    except (BuildError, AttributeError, RuntimeError, TypeError):
        return None


def _parse(trt: Any, parser: Any, model_path: Path) -> None:
    if parser.parse_from_file(str(model_path)):
        return
    faults = []
    for index in range(parser.num_errors):
        error = parser.get_error(index)
        faults.append(
            {
                "node": error.node_name(),
                "op_type": error.node_operator(),
                "message": error.desc(),
                "code": str(error.code()).rpartition(".")[2],
            }
        )
    lines = [f"  node {one['node']!r} ({one['op_type']}): {one['message']} [{one['code']}]" for one in faults]
    said = "\n".join([f"TensorRT {trt.__version__} cannot parse {model_path}:", *lines])
    raise BuildError("not-supported", said, faults)


def _member(trt: Any, kind: str, name: str, key: str) -> Any:
    """The member of an enum of TensorRT that a plan calls by its name in lower case."""
    members = getattr(trt, kind, None)
    if members is None:
        said = f"engine.{key}: TensorRT {trt.__version__} lacks {kind}; leave it out, or install a later one"
        raise BuildError("not-supported", said)
    if name.upper() not in members.__members__:
        known = ", ".join(sorted(one.lower() for one in members.__members__))
        said = f"engine.{key}: this TensorRT knows no {name!r}; expected one of: {known}"
        raise BuildError("unknown-choice", said)
    return members.__members__[name.upper()]


def _configure(trt: Any, config: Any, options: Mapping[str, Any]) -> None:
    for name, limit_gb in options["memory_pools_gb"].items():
        pool = _member(trt, "MemoryPoolType", name, "memory_pools_gb")
        config.set_memory_pool_limit(pool, int(limit_gb * 2**30))
    if options["builder_optimization_level"] is not None:
        config.builder_optimization_level = options["builder_optimization_level"]
    if options["max_aux_streams"] is not None:
        config.max_aux_streams = options["max_aux_streams"]
    if options["tiling_optimization_level"] != "none":
        config.tiling_optimization_level = _member(
            trt, "TilingOptimizationLevel", options["tiling_optimization_level"], "tiling_optimization_level"
        )
    if options["hardware_compatibility"] != "none":
        config.hardware_compatibility_level = _member(
            trt, "HardwareCompatibilityLevel", options["hardware_compatibility"], "hardware_compatibility"
        )
    verbosity = options["profiling_verbosity"]
    config.profiling_verbosity = _member(trt, "ProfilingVerbosity", verbosity, "profiling_verbosity")
    for option, flag in BUILDER_FLAGS.items():
        if options[option]:
            config.set_flag(_member(trt, "BuilderFlag", flag, option))
    if not options["tf32"]:
        config.clear_flag(trt.BuilderFlag.TF32)  # the only one that is on by default


def _add_profiles(builder: Any, network: Any, config: Any, profiles: Iterable[Mapping[str, Any]]) -> None:
    """Add the profiles; numbers are values where the parser found a shape tensor, and shapes elsewhere."""
    inputs = {tensor.name: tensor for tensor in (network.get_input(i) for i in range(network.num_inputs))}
    faults = []
    for number, ranges in enumerate(profiles):
        profile = builder.create_optimization_profile()
        for name, numbers in ranges.items():
            where = f"engine.profiles[{number}].{name}"
            if name not in inputs:
                faults.append(f"{where}: no such input; the network has {', '.join(inputs)}")
                continue
            tensor = inputs[name]
            try:
                if tensor.is_shape_tensor:
                    profile.set_shape_input(name, numbers["min"], numbers["opt"], numbers["max"])
                else:
                    profile.set_shape(name, numbers["min"], numbers["opt"], numbers["max"])
            except (RuntimeError, ValueError) as error:  # the bindings raise where the library says no
                kind = "values of a shape tensor" if tensor.is_shape_tensor else f"shapes of {tuple(tensor.shape)}"
                faults.append(f"{where}: TensorRT refuses {dict(numbers)} as {kind}: {error}")
        for name, tensor in inputs.items():
            if name not in ranges and (tensor.is_shape_tensor or -1 in tuple(tensor.shape)):
                wanted = "a shape tensor: give its values" if tensor.is_shape_tensor else "dynamic: give its shapes"
                faults.append(f"engine.profiles[{number}]: input {name!r} is missing and is {wanted}")
        if not faults and config.add_optimization_profile(profile) < 0:
            faults.append(f"engine.profiles[{number}]: TensorRT refuses it as inconsistent: {dict(ranges)}")
    if faults:
        raise BuildError("wrong-plan", "\n".join(faults))


# --- the timing cache -------------------------------------------------------------------------------------------------


def _cache_file(trt: Any, options: Mapping[str, Any]) -> Path | None:
    """One file per GPU and TensorRT version; editable caches apart, for their entries are others."""
    if options["timing_cache"] is None:
        return None
    kind = "-editable" if options["editable_timing_cache"] else ""
    return Path(options["timing_cache"]) / f"{gpu_key()}-tensorrt-{trt.__version__}{kind}.cache"


def _load_cache(config: Any, file: Path) -> bool:
    """Attach the file's cache, or an empty one where TensorRT refuses it. Returns whether the file's is used."""
    content = b""
    with suppress(OSError):
        content = file.read_bytes()
    for data in [content, b""] if content else [b""]:
        cache = config.create_timing_cache(data)
        if cache is not None and config.set_timing_cache(cache, False):
            return bool(data)
    return False


def _save_cache(config: Any, file: Path) -> bool:
    """Write the cache with what other builds have added to the file since; one that cannot be kept is no fault."""
    cache = config.get_timing_cache()
    if cache is None:
        return False
    try:
        file.parent.mkdir(parents=True, exist_ok=True)
        with _locked(file.parent):  # of two builds that end together, neither is lost
            if file.exists() and (other := config.create_timing_cache(file.read_bytes())) is not None:
                cache.combine(other, False)
            serialized = cache.serialize()
            if serialized is None:
                return False
            _write(file, bytes(serialized))
    except OSError as error:
        print(f"timing cache {file}: not kept: {error}", file=sys.stderr)
        return False
    return True


@contextmanager
def _locked(folder: Path) -> Iterator[None]:
    """Hold a folder against other processes that ask for it so; where the system has no such locks, nothing is held."""
    if fcntl is None:
        yield
        return
    opened = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(opened, fcntl.LOCK_EX)
        yield
    finally:
        os.close(opened)  # which lets go


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
        said = f"{name}, {written[name]}, would be written over {other}, {(dict(read) | dict(written))[other]}"
        raise BuildError("would-overwrite", f"{said}; give `engine` in the plan, or the plan, another name")


def _write(path: Path, content: bytes) -> None:
    with written_whole(path) as building:
        building.write_bytes(content)


# --- a plan and its files --------------------------------------------------------------------------------------------


def plan_faults(plan: Any, keys: Mapping[str, type]) -> list[str]:
    """Everything that is wrong with a plan as such, whatever model it is for."""
    if not isinstance(plan, Mapping):
        return [f"expected a mapping, got {type(plan).__name__}"]
    if plan.get("format") != PLAN_FORMAT:
        return [f"format: expected format {PLAN_FORMAT}, got {plan.get('format')!r}"]
    faults = [f"{name}: missing" for name in keys if name not in plan]
    faults += [
        f"{name}: expected {kind.__name__}, got {type(plan[name]).__name__}"
        for name, kind in keys.items()
        if name in plan and not isinstance(plan[name], kind)
    ]
    if faults:
        return faults
    if plan["declared"] not in ("fp16", "fp32"):
        faults.append(f"declared: expected fp16 or fp32, got {plan['declared']!r}")
    faults += [
        f"builder.{name}: missing" for name in BUILDER_OPTIONS if name not in plan.get("builder", BUILDER_OPTIONS)
    ]
    inside = (
        ("graph", ("float_nodes", "fp16_nodes"), [plan["graph"]]),
        ("plugins", ("path", "sha256"), plan["plugins"]),
    )
    for name, wanted, given in inside:
        if not all(isinstance(one, Mapping) and set(wanted) <= set(one) for one in given):
            faults.append(f"{name}: expected {' and '.join(wanted)}")
    named = plan["graph"].get("fp16_node_names", [])
    if not isinstance(named, list) or not all(isinstance(one, str) for one in named):
        faults.append(f"graph.fp16_node_names: expected a list of names, got {named!r}")
    return faults


def sha256(*files: Path) -> str:
    """Of the files' contents, one after the other."""
    digest = hashlib.sha256()
    for file in files:
        with file.open("rb") as opened:
            while block := opened.read(1 << 20):
                digest.update(block)
    return digest.hexdigest()


def find_file(
    name: str, folder: Path, what: str = "the file", *, expected: str | None = None, data: Sequence[str] = ()
) -> Path:
    """A file of a plan: by its name from the current folder, then from the plan's, then by its last part there.

    Args:
        name: as the plan calls it.
        folder: the plan's.
        what: how messages call it.
        expected: SHA-256 of the file and of its `data`, one after the other: the first that has it is taken, whatever
            else is called so. None takes the first that is there.
        data: files that belong to it, by their names beside it.

    Raises:
        BuildError: when it is in none of them, or what is there is another file: with what was found in each.
    """
    tried = list(dict.fromkeys([Path(name), folder / name, folder / Path(name).name]))
    there: dict[Path, Path] = {}
    for path in tried:
        if path.is_file():
            there.setdefault(path.resolve(), path)
    if not there:
        said = f"{what} {name} is missing; looked for {', '.join(map(str, tried))}; copy it beside the plan"
        raise BuildError("file-missing", said)
    others = []
    for path in there.values():
        beside = [path.parent / one for one in data]
        if missing := [str(file) for file in beside if not file.is_file()]:
            others.append(f"{path}: its {', '.join(missing)} is missing")
        elif expected is None or (found := sha256(path, *beside)) == expected:
            return path
        else:
            others.append(f"{path}: got {found}")
    wanted = "files beside it" if expected is None else f"sha256 {expected}"
    raise BuildError(
        "wrong-file",
        f"{what} {name}: another file than the plan's: expected {wanted}\n"
        + "".join(f"  {one}\n" for one in others)
        + "copy the right one beside the plan, or make the plan anew",
    )


def _checked_model(plan: Mapping[str, Any], folder: Path) -> Path:
    return find_file(plan["onnx"], folder, "the model", expected=plan["onnx_sha256"], data=plan["onnx_data"])


def _checked_plugin(plugin: Mapping[str, str], folder: Path) -> Path:
    return find_file(plugin["path"], folder, "the plugin", expected=plugin["sha256"])


def _quoted(messages: list[str]) -> str:
    return "".join(f"\n  {line}" for line in messages[-20:])


# --- alone ------------------------------------------------------------------------------------------------------------


def _built_and_told(plan: Mapping[str, Any], folder: Path, beside: Path) -> dict[str, Any]:
    """`build`, with what is known of the engine in FACTS_FILE wherever one was written."""
    facts: Mapping[str, Any] | None = None
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
            said = "TensorRT cannot be imported here: pip install tensorrt, on a host with an NVIDIA GPU"
            raise BuildError("package-missing", said)
        outputs = {"the facts": folder / FACTS_FILE, "the engine": folder / Path(plan["engine"]).name}
        _check_written(outputs, {"the plan": arguments.plan})
        facts = _built_and_told(plan, folder, arguments.plan.parent)
        fault = precision_fault(facts, plan["declared"], plan["graph"])
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
    if fault:
        sys.exit(f"build_engine: {fault}")
    if unknown:
        print(f"build_engine: not verified: {plan['declared']}: {unknown}", file=sys.stderr)
        sys.exit(NOT_VERIFIED)


if __name__ == "__main__":
    main()
