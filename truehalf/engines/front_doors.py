"""Engines as the two front doors order them: of an ONNX file by itself, and of a workspace and its configuration."""

from __future__ import annotations

import contextlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from truehalf.config.engine import EngineConfig, TargetConfig
from truehalf.config.schema import Config
from truehalf.engines.build import REPORT_FILE, Order, build_engine
from truehalf.engines.engine_report import EngineReport
from truehalf.files import read_json, write_json
from truehalf.io_spec.in_file import read_spec
from truehalf.io_spec.profiles import completed, profile_of
from truehalf.ir.facts import model_facts
from truehalf.ir.model_forms import ModelFile
from truehalf.verification.chain.configured import read_frozen
from truehalf.verification.chain.stage import Judge


def engine_of_file(
    model_path: Path,
    out_dir: Path,
    shapes: Mapping[str, Mapping[str, Sequence[int]]],
    target: TargetConfig,
    options: EngineConfig,
) -> EngineReport:
    """Build a file's engine where the machine can, else compile it, and write plan.json and engine.json beside it.

    Args:
        model_path: ONNX file; one that holds FP16 nodes is declared fp16.
        shapes: as truehalf.io_spec.profiles.profile_of.
        target: GPUs that it is compiled for where there is none.

    Raises:
        StageError: as profile_of and build_engine.
    """
    file = ModelFile(model_path)
    declared = "fp16" if model_facts(file.typed)["fp16_nodes"] else "fp32"
    order = Order(declared=declared, profiles=[profile_of(file.written, shapes)], target=target)
    report = build_engine(file, out_dir, order, options)
    write_json(out_dir / REPORT_FILE, {"stage": "engine", **report.to_json()})
    return report


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
        lint=config.lint,
        target=config.target,
    )
    with contextlib.chdir(root):  # plugins and the timing cache, which the options name, lie there
        return build_engine(file, out, order, config.engine)


def evidence_of(config: Config, root: Path) -> Judge:
    """The reference that the stage of that name has frozen in a workspace, on the samples of its configuration.

    Raises:
        StageError: when it is missing, or its samples are others.
    """
    spec = read_spec(root / "artifacts" / "trace" / "io_spec.json")
    frozen = read_frozen(root / "artifacts" / "reference", config, root, spec)
    slim, judge = root / "artifacts" / "slim" / "model.onnx", Judge(frozen.reference, frozen.adversarial, config.verify)
    # A machine that builds engines may have pulled no more than it needs for that.
    return judge.beside(ModelFile(slim)) if slim.is_file() else judge
