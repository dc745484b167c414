"""Build a strongly typed TensorRT engine, or say why none can be built here and how to build it elsewhere.

TensorRT 11 knows strongly typed networks only; TensorRT 10 is told to build one, so that both versions read the
precision from the graph and mean the same. Every name of the tensorrt module used here exists in both.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from stages.io import StageError

Shapes = dict[str, dict[str, list[int]]]  # input -> {"min" | "opt" | "max": shape}


def tensorrt_version() -> str | None:
    """Version of the tensorrt module, or None when it cannot be imported here."""
    try:
        import tensorrt
    except (ImportError, OSError):
        return None
    return str(tensorrt.__version__)


def unavailable_reason(probe: dict[str, Any]) -> str | None:
    """Why no engine can be built on the machine that `probe` describes, or None when one can."""
    missing = []
    if not probe["gpus"]:
        missing.append("no NVIDIA GPU (nvidia-smi finds none)")
    if not probe["tensorrt"]:
        missing.append("TensorRT cannot be imported (pip install 'truehalf[tensorrt]' from NVIDIA's channel)")
    return " and ".join(missing) or None


def build_plan(model_path: str, engine_path: str, profiles: Sequence[Shapes], workspace_gb: float) -> dict[str, Any]:
    """Everything that building the engine takes, as plain data, and the same as a trtexec command line.

    Args:
        model_path, engine_path: as the command should name them.
        profiles: optimization profiles.
        workspace_gb: limit of the workspace memory pool in GiB.
    """
    command = ["trtexec", f"--onnx={model_path}", f"--saveEngine={engine_path}", "--stronglyTyped", "--noTF32"]
    command += [f"--memPoolSize=workspace:{workspace_gb * 1024:g}M", "--profilingVerbosity=detailed"]
    for number, profile in enumerate(profiles):
        if len(profiles) > 1:
            command.append(f"--profile={number}")
        for kind in ("min", "opt", "max"):
            shapes = ",".join(f"{name}:{'x'.join(map(str, shape[kind]))}" for name, shape in profile.items())
            command.append(f"--{kind}Shapes={shapes}")
    return {
        "onnx": model_path,
        "engine": engine_path,
        "network": {"strongly_typed": True},
        "builder": {"workspace_gb": workspace_gb, "tf32": False, "profiling_verbosity": "DETAILED"},
        "profiles": list(profiles),
        "trtexec": shlex.join(command),
    }


def build(model_path: Path, engine_path: Path, profiles: Sequence[Shapes], workspace_gb: float) -> dict[str, Any]:
    """Build the engine, write it, and return its facts as the engine inspector and the engine give them.

    Returns:
        tensorrt (version), engine_mb (10^6 bytes), layers, half_layers (layers with a Half output),
        half_layers_fraction, device_memory_mb, io (name, mode, dtype of each input and output).

    Raises:
        StageError: when the parser or the builder refuses the model, with their messages.
    """
    import tensorrt as trt

    logger = trt.Logger(trt.Logger.WARNING)
    builder = trt.Builder(logger)
    network = builder.create_network(1 << int(trt.NetworkDefinitionCreationFlag.STRONGLY_TYPED))
    parser = trt.OnnxParser(network, logger)
    if not parser.parse_from_file(str(model_path)):
        faults = [_parser_fault(parser.get_error(i)) for i in range(parser.num_errors)]
        raise StageError(f"TensorRT {trt.__version__} cannot parse {model_path}:\n" + "\n".join(faults))
    config = builder.create_builder_config()
    config.set_memory_pool_limit(trt.MemoryPoolType.WORKSPACE, int(workspace_gb * 2**30))
    config.clear_flag(trt.BuilderFlag.TF32)
    config.profiling_verbosity = trt.ProfilingVerbosity.DETAILED
    for shapes in profiles:
        profile = builder.create_optimization_profile()
        for name, shape in shapes.items():
            profile.set_shape(name, shape["min"], shape["opt"], shape["max"])
        config.add_optimization_profile(profile)
    serialized = builder.build_serialized_network(network, config)
    if serialized is None:
        raise StageError(
            f"TensorRT {trt.__version__} built no engine from {model_path} (its messages stand above); "
            "more engine.workspace_gb or smaller engine.profiles may help"
        )
    engine_path.write_bytes(serialized)
    engine = trt.Runtime(logger).deserialize_cuda_engine(serialized)
    return {"tensorrt": trt.__version__, "engine_mb": engine_path.stat().st_size / 1e6} | _engine_facts(trt, engine)


def _parser_fault(error: Any) -> str:
    return f"  node {error.node_name()!r} ({error.node_operator()}): {error.desc()}"


def _engine_facts(trt: Any, engine: Any) -> dict[str, Any]:
    inspector = engine.create_engine_inspector()
    described = json.loads(inspector.get_engine_information(trt.LayerInformationFormat.JSON))
    layers = [layer for layer in described["Layers"] if isinstance(layer, dict)]
    half = sum(any("Half" in str(o.get("Format/Datatype", "")) for o in layer.get("Outputs", [])) for layer in layers)
    names = [engine.get_tensor_name(i) for i in range(engine.num_io_tensors)]
    return {
        "layers": len(layers),
        "half_layers": half,
        "half_layers_fraction": half / len(layers) if layers else None,
        "device_memory_mb": engine.device_memory_size_v2 / 1e6,
        "io": [
            {"name": n, "mode": engine.get_tensor_mode(n).name, "dtype": engine.get_tensor_dtype(n).name} for n in names
        ],
    }
