"""Reference of a workspace that an engine's outputs are compared with."""

from __future__ import annotations

from pathlib import Path

from truehalf.config.schema import Config
from truehalf.engines.parity import EngineReference
from truehalf.io_spec.in_file import read_spec
from truehalf.ir.model_forms import ModelFile
from truehalf.verification.chain.configured import read_frozen


def evidence_of(config: Config, root: Path) -> EngineReference:
    """What the stage reference has frozen in a workspace, on the samples of its configuration.

    Raises:
        StageError: when it is missing, or its samples are others.
    """
    spec = read_spec(root / "artifacts" / "trace" / "io_spec.json")
    frozen = read_frozen(root / "artifacts" / "reference", config, root, spec)
    slim, images = root / "artifacts" / "slim" / "model.onnx", frozen.adversarial
    # A machine that builds engines may have pulled no more than it needs for that.
    file = ModelFile(slim) if slim.is_file() else None
    images = images if isinstance(images, str) else images.beside(file)
    return EngineReference(frozen.reference.beside(file), images, config.verify)
