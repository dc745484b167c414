"""The packages that compute: what another version of one makes is another result, though code and configuration are the
same. `inputs` writes them for the stages to depend on.
"""

from __future__ import annotations

import importlib.metadata
from collections.abc import Iterable

from truehalf.config.schema import Config

# Those of pyproject.toml that have a part in what a stage writes; tests/truehalf/provenance/test_software.py has the
# others.
PACKAGES = (
    *("faster-coco-eval", "numpy", "onnx", "onnx-ir", "onnxruntime", "onnxscript", "onnxslim", "pillow"),
    *("scikit-image", "scikit-learn", "scipy", "torch", "transformers"),
)
OF_SOURCE = {
    "lightly_train": ("lightly-train", "torchvision"),
    "torch": ("timm", "torchvision"),
}  # sources of models with separate packages; modules of the user's are often made of these
_ALSO_CALLED = {"onnxruntime": "onnxruntime-gpu"}  # the same code, with more providers


def versions(config: Config) -> dict[str, str | None]:
    """The version of each package that a run computes with, without the build ("2.9.0+cu128" is "2.9.0"); None for one
    that is not installed.
    """
    return installed((*PACKAGES, *OF_SOURCE.get(config.model.source, ())))


def installed(packages: Iterable[str]) -> dict[str, str | None]:
    """The versions of packages, see `versions`."""
    known = {name: _version(name) or _version(_ALSO_CALLED.get(name, name)) for name in packages}
    return {name: version and version.partition("+")[0] for name, version in known.items()}


def tracing_device() -> str:
    """Where `fp16` traces a model in FP16: "cuda" where there is a GPU, else "cpu"."""
    import torch

    return "cuda" if torch.cuda.is_available() else "cpu"


def _version(name: str) -> str | None:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None
