"""TensorRT and TensorRT for RTX through Polygraphy: engines built in a child process, and run on the GPU.

A compiler may die (TensorRT for RTX 1.7 ends in a segmentation fault on some graphs), hang, or hold the main thread
where Python would handle Ctrl-C: a child takes nothing with it, and can be ended. `python -m truehalf.runtime.tensorrt
ORDER ANSWER` is that child.
"""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict

from truehalf.errors import StageError
from truehalf.json_values import JsonObject
from truehalf.runtime.machine import NO_GPU, Machine

if TYPE_CHECKING:
    import numpy as np

    from truehalf.io_spec.profiles import Profile

TENSORRT, RTX = "tensorrt", "tensorrt_rtx"  # modules with one API
NAMES = {TENSORRT: "TensorRT", RTX: "TensorRT for RTX"}
_EXTRAS = {TENSORRT: "'truehalf[tensorrt]' from NVIDIA's channel", RTX: "'truehalf[rtx]'"}
# Compute capabilities, beside all from 12.0 on, whose GPUs TensorRT for RTX 1.7 runs engines on; not those of data
# centres from Hopper to Blackwell, nor Jetson's.
_RTX_RUNS_ON = ("7.5", "8.0", "8.6", "8.9")
_MAJORS = {TENSORRT: (10, 11), RTX: (1,)}  # versions that this was written for
LAYERS = "Layers:\n"  # begins the message of the builder's log that lists the layers
_QUOTED = 20  # messages of the log in an error
_NO_DRIVER = re.compile(r"\n?\[checkMacros\.cpp::catchCudaError.*")  # beside each refusal where there is no GPU
_RTX_VARIABLE = {"POLYGRAPHY_USE_TENSORRT_RTX": "1"}  # read when Polygraphy is imported


@dataclass(frozen=True)
class BuildOrder:
    """An engine to build.

    Attributes:
        module: TENSORRT, or RTX, which needs no GPU.
        onnx, engine: files to read and to write.
        profiles: optimization profiles.
        options: EngineConfig as plain values.
        targets: compute capabilities that RTX compiles for, such as "sm86"; none: its default.
    """

    module: str
    onnx: str
    engine: str
    profiles: Sequence[Profile]
    options: JsonObject
    targets: Sequence[str] = ()


class BuildFacts(TypedDict):
    """Facts of an engine that was written.

    Attributes:
        tensorrt, build_seconds: version, and what the builder took.
        warnings: of TensorRT, each once; a newer major version than is known is one.
        layer_log: the message of the builder's log that lists the layers; "": none.
    """

    tensorrt: str
    build_seconds: float
    warnings: list[str]
    layer_log: str


class BuildRefusal(StageError):
    """No engine was built, and a file that was there is as it was.

    Attributes:
        errors: of the parser: {node, op_type, message, code}.
        log: errors that the builder logged. Without both, TensorRT has not judged the file: it died or was stopped, or
            an option, a plugin or a package is at fault.
    """

    def __init__(self, code: str, text: str, errors: Sequence[Mapping[str, str]] = (), log: Sequence[str] = ()) -> None:
        super().__init__(code, text)
        self.errors, self.log = errors, log


def unavailable_reason(module: str, machine: Machine, has_to_run: bool = True) -> str | None:
    """Reason why a machine builds no engine of a module; None if it does.

    Args:
        has_to_run: whether it has to run there, too: on a GPU that the module supports.
    """
    missing = []
    if has_to_run and not machine["gpus"]:
        missing.append(NO_GPU)
    elif has_to_run and machine["gpus"]:
        capability = machine["gpus"][0]["compute_capability"]
        if module == RTX and capability not in _RTX_RUNS_ON and not capability.startswith("12."):
            runs = f"{', '.join(_RTX_RUNS_ON)} and from 12.0 on"
            missing.append(f"a GPU of compute capability {capability}: TensorRT for RTX runs on {runs}")
    versions: Mapping[str, Any] = machine
    if packages := [name for key, name in ((module, NAMES[module]), ("polygraphy", "Polygraphy")) if not versions[key]]:
        missing.append(f"{' and '.join(packages)} cannot be imported (pip install {_EXTRAS[module]})")
    return " and ".join(missing) or None


# --- building ---------------------------------------------------------------------------------------------------------


def build(order: BuildOrder, limit_s: float | None) -> BuildFacts:
    """Build an engine in a child process, which takes about half a second to start.

    Args:
        limit_s: seconds after which the child is ended; None: no limit.

    Raises:
        BuildRefusal: TensorRT refuses the file or an option, dies, or takes too long.
        RuntimeError: the child ended by an error of truehalf's own, with its traceback.
    """
    with tempfile.TemporaryDirectory() as temporary:
        asked, answered = Path(temporary) / "order.json", Path(temporary) / "answer.json"
        asked.write_text(json.dumps(dataclasses.asdict(order)))
        command = [sys.executable, "-m", __name__, str(asked), str(answered)]
        paths = {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        variables = os.environ | paths | (_RTX_VARIABLE if order.module == RTX else {})
        pipes: Any = {"stdin": subprocess.DEVNULL, "capture_output": True, "text": True, "errors": "replace"}
        try:  # which ends the child on Ctrl-C, too
            ended = subprocess.run(command, env=variables, timeout=limit_s, check=False, **pipes)
        except subprocess.TimeoutExpired as error:
            text = f"{NAMES.get(order.module, order.module)} was stopped after {limit_s:g} s (engine.build_minutes)"
            raise BuildRefusal("runtime-refuses", text) from error
        answer: dict[str, Any] = json.loads(answered.read_text()) if answered.is_file() else {}
    if "refused" in answer:
        raise BuildRefusal(**answer["refused"])
    if "built" in answer:
        facts: BuildFacts = answer["built"]
        return facts
    code = ended.returncode
    if code == 1:  # Python's exit code of an error that nobody handled
        raise RuntimeError(f"the process that builds with {order.module} ended with\n{ended.stderr}")
    how = signal.Signals(-code).name if code < 0 else f"exit code {code}"
    raise BuildRefusal("runtime-refuses", f"{order.module} died with {how} and without a message")


def main() -> None:
    """Build the engine that the file of the first argument orders, and write facts or refusal to the second."""
    asked, answered = map(Path, sys.argv[1:])
    answer: dict[str, Any]
    try:
        answer = {"built": _build(BuildOrder(**json.loads(asked.read_text())))}
    except BuildRefusal as error:
        answer = {"refused": {"code": error.code, "text": error.text, "errors": error.errors, "log": error.log}}
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    answered.write_text(json.dumps(answer))


def _build(order: BuildOrder) -> BuildFacts:
    trt, log = _loaded(order.module)
    from polygraphy.backend.trt import engine_bytes_from_network
    from polygraphy.exception import PolygraphyException

    version, cache = str(trt.__version__), order.options["timing_cache"]
    warning = version_warning(order.module, version)
    try:
        _load_plugins(trt, log, order.options)
        builder = _started(trt.Builder, trt, log)
        strongly = 1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED) if version.startswith("10.") else 0
        network = builder.create_network(strongly)  # TensorRT 11 and TensorRT for RTX know no others
        parser = trt.OnnxParser(network, log)
        _parse(parser, order.onnx, version)
        config, started = _config(trt, order, network, parser), time.perf_counter()
        data = bytes(engine_bytes_from_network((builder, network, parser), config, save_timing_cache=cache))
        seconds = round(time.perf_counter() - started, 3)
    except (PolygraphyException, RuntimeError) as error:  # by which the bindings say what the library refuses
        messages = log.errors[-_QUOTED:] or [str(error)]
        text = "\n  ".join([f"TensorRT {version} built no engine from {order.onnx}", *messages])
        raise BuildRefusal("no-engine", text, log=messages) from error
    Path(order.engine).write_bytes(data)
    return {
        "tensorrt": version,
        "build_seconds": seconds,
        "warnings": [*([warning] if warning else []), *log.warnings],
        "layer_log": log.layers,
    }


def version_warning(module: str, version: str) -> str | None:
    """Warning about a major version of TensorRT that is newer than this code; None of those that it was written for.

    Raises:
        BuildRefusal: a version that builds no strongly typed engines.
    """
    major, known = int(version.split(".")[0]), _MAJORS[module]
    written_for = " and ".join(f"{number}.x" for number in known)
    if major < known[0]:
        text = f"{NAMES[module]} {version}: expected {written_for}; install one of these"
        raise BuildRefusal("package-missing", text)
    return f"{NAMES[module]} {version} is newer than {written_for}, which is known" if major > known[-1] else None


def _loaded(module: str) -> tuple[Any, Any]:
    """The module, and a logger that keeps warnings and errors, each once, and the message that lists the layers:
    .warnings, .errors, .layers.
    """
    try:
        trt, polygraphy = importlib.import_module(module), importlib.import_module("polygraphy.logger")
    except (ImportError, OSError) as error:  # a wheel without its libraries, too
        raise BuildRefusal(
            "package-missing", f"{module}: {error}; pip install {_EXTRAS.get(module, module)}"
        ) from error
    polygraphy.G_LOGGER.module_severity = polygraphy.G_LOGGER.CRITICAL
    level_of_warnings = int(trt.ILogger.Severity.WARNING)

    class Log(trt.ILogger):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            trt.ILogger.__init__(self)
            self.errors: list[str] = []
            self.warnings: list[str] = []
            self.layers = ""

        def log(self, severity: Any, msg: str) -> None:
            kept = self.warnings if int(severity) == level_of_warnings else self.errors
            if int(severity) > level_of_warnings:
                self.layers = msg if msg.startswith(LAYERS) else self.layers
            elif msg not in kept:
                kept.append(msg)

    return trt, Log()


def _started(kind: Any, trt: Any, log: Any) -> Any:
    """A builder or runtime."""
    try:
        return kind(log)
    except TypeError as error:  # by which the bindings say that the library gave none
        text = f"TensorRT {trt.__version__} does not start: expected an NVIDIA GPU and driver that it supports"
        raise BuildRefusal("no-device", "\n  ".join([text, *log.errors])) from error


def _load_plugins(trt: Any, log: Any, options: JsonObject) -> None:
    from polygraphy.backend.trt import load_plugins

    trt.init_libnvinfer_plugins(log, "")
    plugins: Any = options["plugins"]
    try:
        load_plugins([str(Path(plugin).resolve()) for plugin in plugins])
    except OSError as error:
        raise BuildRefusal("file-unreadable", f"engine.plugins: {error}") from error


def _parse(parser: Any, path: str, version: str) -> None:
    if parser.parse_from_file(path):
        return
    errors = [
        {
            "node": error.node_name(),
            "op_type": error.node_operator(),
            "message": _NO_DRIVER.sub("", error.desc()).strip(),
            "code": str(error.code()).rpartition(".")[2],
        }
        for error in map(parser.get_error, range(parser.num_errors))
    ]
    lines = ["  node {node!r} ({op_type}): {message} [{code}]".format_map(error) for error in errors]
    raise BuildRefusal("not-supported", "\n".join([f"TensorRT {version} cannot parse {path}:", *lines]), errors)


def _config(trt: Any, order: BuildOrder, network: Any, parser: Any) -> Any:
    """Polygraphy's configuration of the builder."""
    from polygraphy.backend.trt import CreateConfig, PostprocessConfig
    from polygraphy.backend.trt import Profile as OptimizationProfile

    options: Any = order.options
    inputs = [network.get_input(place) for place in range(network.num_inputs)]
    fixed = {tensor.name for tensor in inputs if not tensor.is_shape_tensor and -1 not in tuple(tensor.shape)}
    profiles = [OptimizationProfile() for _ in order.profiles or [{}]]
    for profile, ranges in zip(profiles, order.profiles, strict=False):
        for name in ranges.keys() - fixed:  # of these the shape is known
            profile.add(name, *(tuple(ranges[name][kind]) for kind in ("min", "opt", "max")))
    common: dict[str, Any] = {
        "profiles": profiles,
        "memory_pool_limits": {trt.MemoryPoolType.WORKSPACE: int(options["workspace_gb"] * 2**30)},
        "profiling_verbosity": trt.ProfilingVerbosity.DETAILED,  # or no layer tells its types
        "load_timing_cache": options["timing_cache"],
        "builder_optimization_level": options["builder_optimization_level"],
    }

    def further(builder: Any, network: Any, config: Any) -> None:
        """Options that Polygraphy does not have; TensorRT for RTX has TF32 on by default, too."""
        if not options["tf32"]:
            config.clear_flag(trt.BuilderFlag.TF32)

    if order.module != RTX:
        return PostprocessConfig(CreateConfig(tf32=options["tf32"], **common), further)
    from polygraphy.backend.tensorrt_rtx import CreateConfigRTX

    capabilities = [(int(target[2:-1]), int(target[-1])) for target in order.targets]
    return PostprocessConfig(CreateConfigRTX(compute_capabilities=capabilities or None, **common), further)


# --- running ----------------------------------------------------------------------------------------------------------


class EngineRunner:
    """An engine on the GPU: a `Runner` of truehalf.verification.open_file. Each run takes the first optimization
    profile that its shapes lie in.

    Attributes:
        provider: the module that runs it.
        device_memory_mb: 10^6 bytes of one execution context; None: not reported, before TensorRT 10.1.
        cpu_nodes, not_split: nothing of the kind.
    """

    cpu_nodes: list[str] | None = None

    def __init__(self, path: Path, module: str, options: JsonObject, profiles: Sequence[Profile]) -> None:
        """Load an engine.

        Args:
            path: the engine's file.
            module: that built it.
            options, profiles: that it was built with; options are EngineConfig as plain values.

        Raises:
            StageError: without a GPU, or when TensorRT refuses the file or a plugin.
        """
        os.environ.update(_RTX_VARIABLE if module == RTX else {})
        self.provider, self.not_split = module, dict[str, str]()
        self._path = path
        trt, self._log = _loaded(module)
        from polygraphy.backend.trt import TrtRunner

        with self._refusing("load"):
            _load_plugins(trt, self._log, options)
            runtime = _started(trt.Runtime, trt, self._log)
            engine = runtime.deserialize_cuda_engine(path.read_bytes())
            if engine is None:
                raise RuntimeError(f"build it anew with TensorRT {trt.__version__} on this GPU")
            self._shapes = [
                {name: ranges for name, ranges in profile.items() if not engine.is_shape_inference_io(name)}
                for profile in profiles
            ]
            self._inspector, self._json = engine.create_engine_inspector(), trt.LayerInformationFormat.JSON
            self._runner = TrtRunner(engine)
            self._runner.activate()
        size = getattr(engine, "device_memory_size_v2", None)
        self.device_memory_mb: float | None = None if size is None else size / 1e6

    def layers_json(self) -> str:
        """Layers as TensorRT's inspector tells them, in JSON; types at dynamic shapes are those at the first opt."""
        with self._refusing("tell its layers"):
            for name, ranges in (self._shapes or [{}])[0].items():
                self._runner.context.set_input_shape(name, tuple(ranges["opt"]))
            self._inspector.execution_context = self._runner.context
            return str(self._inspector.get_engine_information(self._json))

    def run(self, feeds: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        """Outputs by name.

        Raises:
            StageError: out-of-range, for shapes in no profile; when TensorRT does not run.
        """
        import numpy as np

        self._choose_profile(feeds)
        with self._refusing("run"):
            return {name: np.array(value) for name, value in self._runner.infer(dict(feeds)).items()}

    def prepared(self, feeds: Mapping[str, np.ndarray]) -> Callable[[], object]:
        """A call that runs the engine on these inputs and waits, to be timed: inputs and outputs stay on the GPU."""
        from polygraphy.cuda import DeviceArray

        self._choose_profile(feeds)
        held = {name: DeviceArray(array.shape, array.dtype) for name, array in feeds.items()}
        for name, array in feeds.items():
            held[name].copy_from(array)

        def once() -> object:
            with self._refusing("run"):
                return self._runner.infer(held, check_inputs=False, copy_outputs_to_host=False)

        return once

    def close(self) -> None:
        """Free the engine; it runs no more."""
        self._runner.deactivate()

    def _choose_profile(self, feeds: Mapping[str, np.ndarray]) -> None:
        for number, profile in enumerate(self._shapes):
            limited = [(limits, feeds[name].shape) for name, limits in profile.items() if name in feeds]
            if all(
                least <= side <= most
                for limits, shape in limited
                for least, side, most in zip(limits["min"], shape, limits["max"], strict=False)
            ):
                self._runner.set_profile(number)
                return
        if self._shapes:
            shapes = {name: list(array.shape) for name, array in feeds.items()}
            raise StageError("out-of-range", f"{self._path}: shapes in no optimization profile: {shapes}")

    @contextlib.contextmanager
    def _refusing(self, verb: str) -> Iterator[None]:
        """Raise StageError for an error of TensorRT or Polygraphy, with the messages that TensorRT has logged."""
        from polygraphy.exception import PolygraphyException

        try:
            yield
        except (PolygraphyException, RuntimeError) as error:
            lines = [f"{self._path}: the engine does not {verb}: {error}", *self._log.errors[-_QUOTED:]]
            raise StageError("runtime-refuses", "\n  ".join(lines)) from error


if __name__ == "__main__":
    main()
