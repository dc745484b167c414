"""Engine of a file: built where the machine can, else planned; a plan carried out on another machine."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from truehalf.config.engine import NO_GATES, Backend, EngineConfig, TargetConfig
from truehalf.config.schema import LintConfig
from truehalf.config.typed import plain
from truehalf.engines import ort_plan
from truehalf.engines.carry_out import carry_out, is_compiled
from truehalf.engines.compiling.ahead import compile_and_keep
from truehalf.engines.compiling.report import ahead_folder, compiled_plan
from truehalf.engines.engine_report import EnginePlan, EngineReport
from truehalf.engines.evidence import evidence_of_workspace
from truehalf.engines.parity import EngineReference
from truehalf.engines.plan import FILES_OF_A_PLAN, check_keys, check_plan, check_target
from truehalf.engines.plan_files import make_plan, write_plan
from truehalf.engines.precision import check_precision
from truehalf.errors import StageError
from truehalf.files import read_json, write_json
from truehalf.ir.model_forms import ModelFile, file_of
from truehalf.runtime.machine import Machine
from truehalf.runtime.machine import probe as probe_machine
from truehalf.runtime.tensorrt.plan_content import checked_model, checked_plugin
from truehalf.runtime.tensorrt.versions import BuildError, Plugin, Profile

FILES = {
    Backend.tensorrt: "model.engine",
    Backend.tensorrt_rtx: "model.engine",
    Backend.onnxruntime: "model.optimized.onnx",
}
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
    """Build an engine into `out_dir` where the machine can, prove it, and write its plan there in any case.

    Args:
        model: the final ONNX file.
        out_dir: gets the engine, plan.json, and what is needed to carry the plan out by hand.
        options: but for its profiles, which `order` has as numbers; names of files are relative to the current folder.

    Returns:
        the report; an engine that failed is kept for inspection.

    Raises:
        StageError: when the file contradicts what is declared, a profile does not fit the graph, the engine would be
            written over the model, or TensorRT or ONNX Runtime refuses the file.
    """
    file, out_dir = _beside_data(model), Path(out_dir)
    plan = _plan(file, order, options)
    check_target(plan, file.path, out_dir, FILES_OF_A_PLAN)
    (write_plan if plan["backend"] != Backend.onnxruntime.value else ort_plan.write_plan)(plan, out_dir)
    evidence = order.evidence
    found = evidence if callable(evidence) else lambda: evidence
    with _environment(plan):
        return carry_out(plan, file, out_dir, found, order.probe or probe_machine(options.plugins))


def compile_ahead(model: Path | str | ModelFile, order: Order, options: EngineConfig) -> None:
    """Where `build_engine` will have the engine compiled, compile it now; it is kept for it beside the timing caches.

    Raises:
        StageError: as build_engine.
        BuildError, RuntimeError: the compiler refuses the file.
    """
    file = _beside_data(model)
    plan = _plan(file, order, options)
    folder = ahead_folder(plan)
    if folder is not None and is_compiled(plan, order.probe or probe_machine(options.plugins)):
        compile_and_keep(compiled_plan(plan, file.path), folder)


def _beside_data(model: Path | str | ModelFile) -> ModelFile:
    """The file, or what it is a link to where that alone has external data beside it: there a parser looks."""
    file = file_of(model)
    beside = {file.path.parent / name for name in file.external}
    return ModelFile(file.path.resolve()) if beside and beside.isdisjoint(file.data) else file


def _plan(file: ModelFile, order: Order, options: EngineConfig) -> EnginePlan:
    check_precision(file, order.declared)
    names = order.plan_names or (str(file.path), FILES[options.backend])
    make = ort_plan.make_plan if options.backend is Backend.onnxruntime else make_plan
    plan = make(file, names=names, options=plain(options), profiles=order.profiles, declared=order.declared)
    plan |= {
        "backend": options.backend.value,
        "target": {"compute_capability": list(order.target.compute_capability)},
        "latency": plain(options.latency),
        "gates": plain(options.gates),
        "plugin_ops": list(options.plugin_ops),
        "lint": {"ignore": list(order.lint.ignore), "fail_on": order.lint.fail_on.value},
        "when_unavailable": options.when_unavailable.value,
    }
    check_keys(plan)  # make_plan has checked the profiles against the model
    return plan


def execute_plan(
    plan: Path | str, out: Path | str | None = None, *, workspace: Path | str = ".", with_gates: bool = True
) -> EngineReport:
    """Carry out a plan that was written on another machine.

    The model is looked for by its name in the plan from the current folder, then beside the plan.

    Args:
        plan: plan.json.
        out: folder for the engine and engine.json, the report; by default the plan's.
        workspace: folder of a project; where it holds the reference of just this model, the engine is compared with it.
        with_gates: whether the plan's gates count.

    Returns:
        as build_engine.

    Raises:
        StageError: as build_engine, when the file is no plan or one that does not fit its model, and when the model or
            a plugin is not the one that the plan was made for.
    """
    plan_path = Path(plan)
    content: EnginePlan = read_json(plan_path)
    check_keys(content, str(plan_path))
    if not with_gates:
        content["gates"] = plain(NO_GATES)
    out_dir = Path(out) if out is not None else plan_path.parent
    folder = plan_path.parent
    try:
        file = ModelFile(checked_model(content, folder))
        plugins: list[Plugin] = [{**each, "path": str(checked_plugin(each, folder))} for each in content["plugins"]]
    except BuildError as error:
        raise StageError(error.code, str(error)) from error
    check_plan(content, file.typed, str(plan_path))
    check_precision(file, content["declared"])
    content |= {"plugins": plugins}
    check_target(content, file.path, out_dir, [REPORT_FILE], plan_path)
    out_dir.mkdir(parents=True, exist_ok=True)
    with _environment(content):
        report = carry_out(
            content,
            file,
            out_dir,
            lambda: evidence_of_workspace(Path(workspace), content["onnx_sha256"]),
            probe_machine([plugin["path"] for plugin in plugins]),
        )
    write_json(out_dir / REPORT_FILE, {"stage": "engine", **report})
    return report


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
