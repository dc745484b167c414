"""The models that the benchmarks convert, each with one real sample beside it.

    python -m benchmarks.models build/models                      all of them
    python -m benchmarks.models build/models dfine640 matmuls     those named

<folder>/<name>.onnx is FP32. <name>.npz holds one sample to calibrate with, <name>.check.npz others to measure
errors on: an array for each input, with the batch axis.
"""

from __future__ import annotations

import argparse
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.converters import ZOO
from benchmarks.zoo import write_pictures
from benchmarks.zoo_models import ENTRIES, FOLDER, PICTURES, write_configurations
from pipeline.workspace import CONF

# Composed like a run of the chain: the traced network after onnxslim.
DETECTORS = {
    "dfine640": ("model=ltdetr", "decoder=dfine"),
    "rtdetrv2640": ("model=ltdetr", "decoder=rtdetrv2"),
    "nano_dfine": ("model=ltdetr_nano", "decoder=dfine"),
    "nano_rtdetrv2": ("model=ltdetr_nano", "decoder=rtdetrv2"),
}
_LAYERS = 24
_WIDTH = 5632  # 24 * 5632^2 * 4 bytes = 3.05e9


def detector(folder: Path, name: str, overrides: Sequence[str] = (), root: Path = CONF.parent) -> None:
    """A detector of the chain, traced and slimmed with its own configuration.

    Args:
        overrides: of the configuration; default: those of DETECTORS.
        root: what paths in the overrides are relative to.
    """
    from truehalf.data.run_samples import run_samples
    from truehalf.data.samples import stacked
    from truehalf.exporting.trace import Tracing, trace
    from truehalf.models.configuration import validated
    from truehalf.models.source import described, open_model, spec_of
    from truehalf.slimming.slim import slim

    config = validated(_composed(*(overrides or DETECTORS[name])))
    model = open_model(config, root)
    known = described(model)
    example = stacked(run_samples("trace", config, root, known)[: config.trace.batch])
    with tempfile.TemporaryDirectory(dir=folder) as temporary:
        trace(
            model.module,
            example,
            Path(temporary) / "model.onnx",
            Tracing(config.trace, config.trace.dynamic_axes),
            spec=spec_of(model, example, config.trace.dynamic_axes),
        )
        slim(Path(temporary) / "model.onnx", folder / f"{name}.onnx", repair=())
    calibration, verification = (
        run_samples("calibration", config, root, known),
        run_samples("verification", config, root, known),
    )
    checked = 32 if known.trained else 2  # detections of random weights say nothing
    samples = {"": calibration[:1], ".check": verification[:checked]}
    for suffix, chosen in samples.items():
        np.savez(folder / f"{name}{suffix}.npz", allow_pickle=False, **stacked(chosen))


def of_zoo(folder: Path, name: str) -> None:
    """A model of `transformers`, with random weights, on crops of photographs."""
    with tempfile.TemporaryDirectory(dir=folder) as root:
        write_configurations(Path(root) / FOLDER)
        write_pictures(Path(root) / PICTURES)
        detector(folder, name, next(entry.overrides for entry in ENTRIES if entry.name == name), Path(root))


def matmuls(folder: Path, name: str = "matmuls") -> None:
    """24 layers Relu(x W + b), 3.05 GB of random weights in <name>.onnx.data."""
    from onnx import TensorProto, checker, helper

    rng = np.random.default_rng(0)
    nodes, tensors, value = [], [], "x"
    with (folder / f"{name}.onnx.data").open("wb") as file:

        def stored(tensor_name: str, array: np.ndarray) -> str:
            tensor = TensorProto(name=tensor_name, data_type=TensorProto.FLOAT, dims=array.shape)
            tensor.data_location = TensorProto.EXTERNAL
            for key, entry in (("location", Path(file.name).name), ("offset", file.tell()), ("length", array.nbytes)):
                tensor.external_data.add(key=key, value=str(entry))
            tensors.append(tensor)
            array.tofile(file)
            return tensor_name

        for layer in range(_LAYERS):
            weight = rng.standard_normal((_WIDTH, _WIDTH), np.float32)
            weight *= np.float32((2 / _WIDTH) ** 0.5)  # keeps the mean square through Relu
            stored(f"w{layer}", weight)
            stored(f"b{layer}", np.zeros(_WIDTH, np.float32))
            outputs = [f"m{layer}", f"a{layer}", f"r{layer}" if layer + 1 < _LAYERS else "y"]
            nodes.append(helper.make_node("MatMul", [value, f"w{layer}"], outputs[:1], f"layer{layer}/MatMul"))
            nodes.append(helper.make_node("Add", [outputs[0], f"b{layer}"], outputs[1:2], f"layer{layer}/Add"))
            nodes.append(helper.make_node("Relu", outputs[1:2], outputs[2:], f"layer{layer}/Relu"))
            value = outputs[2]
    ends = [helper.make_tensor_value_info(end, TensorProto.FLOAT, ["batch", _WIDTH]) for end in ("x", "y")]
    graph = helper.make_graph(nodes, name, ends[:1], ends[1:], tensors)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    (folder / f"{name}.onnx").write_bytes(model.SerializeToString())
    checker.check_model(str(folder / f"{name}.onnx"), full_check=True)
    np.savez(folder / f"{name}.npz", x=rng.standard_normal((1, _WIDTH), np.float32))
    np.savez(folder / f"{name}.check.npz", x=rng.standard_normal((2, _WIDTH), np.float32))


MODELS: dict[str, Callable[[Path, str], None]] = {
    **dict.fromkeys(DETECTORS, detector),
    **dict.fromkeys(ZOO, of_zoo),
    "matmuls": matmuls,
}


def _composed(*overrides: str) -> dict[str, Any]:
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    with initialize_config_dir(str(CONF), version_base="1.3"):
        values = OmegaConf.to_container(compose("config", overrides=list(overrides)), resolve=True)
    assert isinstance(values, dict)
    return {str(key): value for key, value in values.items()}


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m benchmarks.models", description="Make the models to convert.")
    parser.add_argument("folder", type=Path)
    parser.add_argument("names", nargs="*", choices=[[], *MODELS], metavar="name", help=", ".join(MODELS))
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    for name in arguments.names or MODELS:
        MODELS[name](arguments.folder, name)
        print(arguments.folder / f"{name}.onnx", flush=True)


if __name__ == "__main__":
    main()
