"""Engine of the configured model: the configuration and the frozen reference of a workspace, as an order."""

from __future__ import annotations

import contextlib
from pathlib import Path

from truehalf.config.schema import Config
from truehalf.engines.build import ENGINE_FILE, Order, build_engine
from truehalf.engines.engine_report import EngineReport
from truehalf.engines.outputs import EngineReference
from truehalf.files import read_json
from truehalf.io_spec.in_file import read_spec
from truehalf.io_spec.profile_shapes import completed
from truehalf.ir.model_forms import ModelFile
from truehalf.verification.chain.configured import read_frozen


def build_configured(file: ModelFile, out: Path, config: Config, root: Path) -> EngineReport:
    """Build the engine of a workspace's final file for the machine of artifacts/inputs/machine.json.

    Raises:
        StageError: as truehalf.engines.build.build_engine.
    """
    spec = read_spec(root / "artifacts" / "trace" / "io_spec.json")
    order = Order(
        declared=config.precision.dtype.value,
        profiles=completed(config.engine.profiles, spec.inputs),
        evidence=lambda: evidence_of(config, root),
        probe=read_json(root / "artifacts" / "inputs" / "machine.json"),
        plan_names=("artifacts/cast_cleanup/model.onnx", f"artifacts/engine/{ENGINE_FILE}"),
        lint=config.lint,
        target=config.target,
    )
    with contextlib.chdir(root):  # plugins and the timing cache, which the options name, lie there
        return build_engine(file, out, order, config.engine)


def evidence_of(config: Config, root: Path) -> EngineReference:
    """The reference that the stage of that name has frozen in a workspace, on the samples of its configuration.

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
