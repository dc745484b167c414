"""Engine of a file: built where the machine can, else compiled or planned."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from truehalf.config.engine import EngineConfig, TargetConfig
from truehalf.config.schema import LintConfig
from truehalf.config.typed import plain
from truehalf.engines.carry_out import carry_out
from truehalf.engines.engine_report import EnginePlan, EngineReport
from truehalf.engines.parity import EngineReference
from truehalf.engines.plan import PLAN_FILE, check_target, make_plan
from truehalf.engines.precision import check_precision
from truehalf.files import write_json
from truehalf.ir.model_forms import ModelFile, file_of
from truehalf.runtime.machine import Machine
from truehalf.runtime.machine import probe as probe_machine
from truehalf.runtime.tensorrt.versions import Profile

ENGINE_FILE = "model.engine"
REPORT_FILE = "engine.json"
NO_EVIDENCE = "no reference was given to compare its outputs with"


@dataclass(frozen=True, kw_only=True)
class Order:
    """What is built beside the options of the engine.

    Attributes:
        declared: "fp16" or "fp32".
        profiles: optimization profiles: [{input: {"min": shape, "opt": shape, "max": shape}}]; of a shape tensor the
            numbers are its values.
        evidence: what the engine's outputs are compared with, or why there is nothing; or a function for it, called
            when there is an engine.
        probe: facts of the machine (truehalf.runtime.machine.probe); by default of this one.
        plan_names: how the plan calls the ONNX file and the engine; default: the path given, and the engine's file.
        lint: findings that are not wanted, and those of the file for which nothing is built.
        target: GPUs that the file is compiled for where there is none.
    """

    declared: str
    profiles: Sequence[Profile]
    evidence: EngineReference | str | Callable[[], EngineReference | str] = NO_EVIDENCE
    probe: Machine | None = None
    plan_names: tuple[str, str] | None = None
    lint: LintConfig = field(default_factory=LintConfig)
    target: TargetConfig = field(default_factory=TargetConfig)


def build_engine(
    model: Path | str | ModelFile, out_dir: Path | str, order: Order, options: EngineConfig
) -> EngineReport:
    """Build an engine into `out_dir` where the machine can, prove it, and write plan.json there in any case.

    Args:
        model: the final ONNX file.
        out_dir: gets the engine and plan.json.
        options: but for its profiles, which `order` has as numbers; names of files are relative to the current folder.

    Returns:
        the report; an engine that failed is kept for inspection.

    Raises:
        StageError: when the file contradicts what is declared, a profile does not fit the graph, the engine would be
            written over the model, or TensorRT or ONNX Runtime refuses the file.
    """
    file, out_dir = _beside_data(model), Path(out_dir)
    check_precision(file, order.declared)
    names = order.plan_names or (str(file.path), ENGINE_FILE)
    plan = make_plan(file, names=names, options=plain(options), profiles=order.profiles, declared=order.declared)
    plan["target"] = {"compute_capability": list(order.target.compute_capability)}
    check_target(plan, file.path, out_dir, [PLAN_FILE, REPORT_FILE])
    out_dir.mkdir(parents=True, exist_ok=True)
    write_json(out_dir / PLAN_FILE, plan)
    evidence = order.evidence
    found = evidence if callable(evidence) else lambda: evidence
    with _environment(plan):
        probe = order.probe or probe_machine(options.plugins)
        return carry_out(plan, file, out_dir, found, probe, options, order.lint)


def _beside_data(model: Path | str | ModelFile) -> ModelFile:
    """The file, or what it is a link to where that alone has external data beside it: there a parser looks."""
    file = file_of(model)
    beside = {file.path.parent / name for name in file.external}
    return ModelFile(file.path.resolve()) if beside and beside.isdisjoint(file.data) else file


@contextlib.contextmanager
def _environment(plan: EnginePlan) -> Iterator[None]:
    """The plan's variables while it is carried out, from before the providers load: a library reads them as it starts,
    and the variables of the caller are restored.
    """
    variables: Mapping[str, str] = plan.get("environment", {})
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value
