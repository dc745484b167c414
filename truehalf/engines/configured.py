"""Engine of the configured model: what the configuration of a workspace says, as an order."""

from __future__ import annotations

import contextlib
from pathlib import Path

from truehalf.config.schema import Config
from truehalf.engines.build import ENGINE_FILE, Order, build_engine
from truehalf.engines.engine_report import EngineReport
from truehalf.engines.evidence import evidence_of
from truehalf.files import read_json
from truehalf.io_spec.in_file import read_spec
from truehalf.io_spec.profile_shapes import completed
from truehalf.ir.model_forms import ModelFile
from truehalf.runtime.machine import Machine


def build_configured(file: ModelFile, out: Path, config: Config, root: Path) -> EngineReport:
    """Build the engine of a workspace's final file for the machine of artifacts/inputs/machine.json.

    Raises:
        StageError: as truehalf.engines.build.build_engine.
    """
    order = _order(config, root, read_json(root / "artifacts" / "inputs" / "machine.json"))
    with contextlib.chdir(root):  # what files the options name, plugins and the timing cache, lie there
        return build_engine(file, out, order, config.engine)


def _order(config: Config, root: Path, probe: Machine) -> Order:
    return Order(
        declared=config.precision.dtype.value,
        profiles=completed(config.engine.profiles, read_spec(root / "artifacts" / "trace" / "io_spec.json").inputs),
        evidence=lambda: evidence_of(config, root),
        probe=probe,
        plan_names=("artifacts/cast_cleanup/model.onnx", f"artifacts/engine/{ENGINE_FILE}"),
        lint=config.lint,
        target=config.target,
    )
