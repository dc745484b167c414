"""Engine of a file: built where the machine can, else compiled by TensorRT for RTX, else recorded in plan.json.

`engine_of_file` builds from an ONNX file by itself, `build_configured` from a workspace and its configuration.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from truehalf.codes import coded, uncoded
from truehalf.config.engine import COMPILED_FOR, EngineConfig, TargetConfig
from truehalf.config.schema import Config, LintConfig
from truehalf.config.typed import plain
from truehalf.engines.compiled import attention_gate, compiler_facts, gate_sentence, half_gate
from truehalf.engines.engine_report import EngineReport, Layer, Parity
from truehalf.engines.layers import explained, is_shared, layers_of_inspector, layers_of_log, named_file, told_names
from truehalf.engines.outputs import compare_engine, latencies
from truehalf.engines.precision import contradiction, precision_facts
from truehalf.engines.trtexec import ENGINE_FILE, PLAN_FILE, plan_of
from truehalf.errors import StageError, attempted, refuse
from truehalf.files import check_outputs, destination, explain, read_json, write_json, written_whole
from truehalf.io_spec.in_file import read_spec
from truehalf.io_spec.profiles import Profile, completed, profile_of
from truehalf.ir.facts import model_facts
from truehalf.ir.model_forms import ModelFile, file_of
from truehalf.patterns import Finding, lint
from truehalf.patterns.operators import ASSUMED, ops_of_plugins
from truehalf.patterns.report import failing, failure
from truehalf.runtime import tensorrt
from truehalf.runtime.machine import Machine, device_lock, file_key
from truehalf.runtime.machine import probe as probe_machine
from truehalf.runtime.tensorrt import RTX, BuildFacts, BuildOrder, BuildRefusal
from truehalf.verification.chain.configured import read_frozen
from truehalf.verification.chain.stage import Judge
from truehalf.verification.findings import FAILED, NOT_VERIFIED

COMPILED_FILE, REPORT_FILE = "model.rtx.engine", "engine.json"
NO_EVIDENCE = "no reference was given to compare its outputs with"


@dataclass(frozen=True, kw_only=True)
class Order:
    """An engine that is asked for, beside its options.

    Attributes:
        declared: "fp16" or "fp32".
        profiles: optimization profiles.
        evidence: gives the reference of the outputs, or why there is none; called before an engine that runs is built.
        probe: facts of the machine (truehalf.runtime.machine.probe); by default of this one.
        lint: findings that are not wanted, and those of the file for which nothing is built.
        target: GPUs that the file is compiled for where there is none.
    """

    declared: str
    profiles: Sequence[Profile]
    evidence: Callable[[], Judge | str] = lambda: NO_EVIDENCE
    probe: Machine | None = None
    lint: LintConfig = field(default_factory=LintConfig)
    target: TargetConfig = field(default_factory=TargetConfig)


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
    judge = read_frozen(root / "artifacts" / "reference", config, root, spec)
    slim = root / "artifacts" / "slim" / "model.onnx"
    # A machine that builds engines may have pulled no more than it needs for that.
    return judge.beside(ModelFile(slim)) if slim.is_file() else judge


def build_engine(
    model: Path | str | ModelFile, out_dir: Path | str, order: Order, options: EngineConfig
) -> EngineReport:
    """Build an engine into `out_dir` where the machine can, prove it, and write plan.json there in any case.

    Args:
        model: the final ONNX file.
        options: but for its profiles, which `order` has as numbers that fit the file; names of files are relative to
            the current folder.

    Returns:
        the report; an engine that failed is kept for inspection.

    Raises:
        StageError: when the engine would be written over what it is made from, or an option is refused.
        RuntimeError: a defect of truehalf in the process that builds.
    """
    file, out = _beside_data(model), Path(out_dir)
    problems = [f"engine.plugins: {library} is missing" for library in options.plugins if not Path(library).is_file()]
    refuse("wrong-plan", f"the plan does not fit {file.path}", problems)
    written = (PLAN_FILE, REPORT_FILE, ENGINE_FILE, COMPILED_FILE)
    sources = [file.path, *file.data, *map(Path, options.plugins)]
    check_outputs({name: out / name for name in written}, {f"what it is made from ({path})": path for path in sources})
    machine = order.probe or probe_machine(options.plugins)
    precision, plan = precision_facts(file.typed, order.declared), plan_of(file, options, order.profiles)
    write_json(out / PLAN_FILE, plan)
    findings, assumed = _lint(file, order.lint, options, machine)
    report = EngineReport(
        declared=order.declared,
        plan=plan,
        precision=precision,
        gpu=machine["gpus"][0]["name"] if machine["gpus"] else None,
        lint=[finding.as_dict() for finding in findings],
    )
    if problem := contradiction(file, precision):
        return _none_built(report, problem, is_failed=True)
    if severe := failing(findings, order.lint.fail_on.value):
        what = f"lint.fail_on is {order.lint.fail_on.value}, and the file that is built has"
        return _none_built(report, coded("lint-fails", f"{what}\n  {failure(severe)}"), *assumed, is_failed=True)
    work = _Work(file, out, order, options, machine, findings, assumed)
    module = options.backend.value
    missing = tensorrt.unavailable_reason(module, machine)
    try:
        return work.built_and_run(report, module) if missing is None else work.compiled(report, missing)
    except BuildRefusal as error:
        is_judged = bool(error.errors or error.log)
        if not is_judged and error.code != "runtime-refuses":
            raise  # an option, a plugin or a package
        theirs, nodes = ops_of_plugins(file.typed, ["any"], options.plugin_ops)[0], told_names(file.typed)
        text = coded(error.code, f"{file.path}: {explained(error, nodes, findings)}")
        if is_shared(error, nodes, theirs) or (is_judged and (missing is None or module == RTX)):
            return _none_built(report, text, *assumed, is_failed=True)
        return _none_built(report, missing or text, f"not compiled: {text}", *assumed)


def _beside_data(model: Path | str | ModelFile) -> ModelFile:
    """The file, or the file that it is a link to, if that alone has external data beside it: there a parser looks."""
    file = file_of(model)
    beside = {file.path.parent / name for name in file.external}
    return ModelFile(file.path.resolve()) if beside and beside.isdisjoint(file.data) else file


def _lint(
    file: ModelFile, chosen: LintConfig, options: EngineConfig, machine: Machine
) -> tuple[list[Finding], list[str]]:
    """Findings of the file for the machine's TensorRT, and what had to be assumed of plugins, or is not known."""
    ops, is_assumed = ops_of_plugins(file.typed, options.plugins, options.plugin_ops)
    version = machine["tensorrt"]
    release = ".".join(version.split(".")[:2]) if version else None
    missing: list[str] = []
    search = partial(lint, file.typed, tensorrt=release, ignore=chosen.ignore, plugin_ops=ops)
    findings = attempted("lint of the file", missing.append, search)
    if missing and chosen.fail_on != "never":
        text = f"lint.fail_on is {chosen.fail_on}, and nothing is known: {uncoded(missing[0])}"
        raise StageError("lint-fails", text)
    return findings or [], [*([ASSUMED] if is_assumed else []), *missing]


@dataclass(frozen=True)
class _Work:
    """A file to build, with what is asked for, the machine, and the findings of lint."""

    file: ModelFile
    out: Path
    order: Order
    options: EngineConfig
    machine: Machine
    findings: Sequence[Finding]
    assumed: Sequence[str]

    def built_and_run(self, report: EngineReport, module: str) -> EngineReport:
        """The report of an engine that this machine builds and runs."""
        evidence = self.order.evidence()  # before the build, which takes long
        profiles, options = self.order.profiles, self.options
        with device_lock():  # TensorRT chooses tactics by their time, too
            facts = self._build(module, ENGINE_FILE, options.timing_cache)
            try:
                engine = tensorrt.EngineRunner(self.out / ENGINE_FILE, module, plain(options), profiles)
            except StageError as error:  # the engine stays, for inspection or for another machine
                parity: Parity = {"evaluation": module, "provider": module, "state": FAILED, "reason": str(error)}
                report = self._with_layers(report, module, ENGINE_FILE, facts, layers_of_log(facts["layer_log"]))
                return _concluded(replace(report, parity=parity), "built", None, self.assumed)
            layers = layers_of_log(facts["layer_log"])
            if module != RTX:
                with contextlib.suppress(StageError):  # layers that TensorRT does not tell are not verified
                    layers = layers_of_inspector(engine.layers_json())
            report = self._with_layers(report, module, ENGINE_FILE, facts, layers)
            parity = compare_engine(engine, self.file, profiles, evidence, module)
            samples = () if isinstance(evidence, str) else evidence.reference.samples
            timings, untimed = latencies(engine, self.file.typed, profiles, samples, options.latency)
            engine.close()
        report = replace(report, device_memory_mb=engine.device_memory_mb, parity=parity, latency=timings)
        return _concluded(report, "built", None, [*untimed, *self.assumed])

    def compiled(self, report: EngineReport, missing: str) -> EngineReport:
        """The report of a file that cannot be built here, compiled by TensorRT for RTX if that is there."""
        assumed = self.assumed
        if uncovered := self._targets(is_covered=False):
            known, plan = ", ".join(COMPILED_FOR), report.plan or {}
            text = f"no compiler here covers {', '.join(uncovered)}: TensorRT for RTX compiles for {known}. On the "
            text += f"device, run `truehalf engine {self.file.path.name}`, or: {plan['trtexec']}"
            if not self._targets(is_covered=True):
                return _none_built(report, text, *assumed)
            assumed = [*assumed, coded("not-supported", text)]
        if compiler := tensorrt.unavailable_reason(RTX, self.machine, has_to_run=False):
            reason = f"{missing}; without a GPU a file is compiled by TensorRT for RTX, and {compiler}"
            return _none_built(report, reason, *assumed)
        facts = self._build(RTX, COMPILED_FILE, timing_cache=None)
        report = self._with_layers(report, RTX, COMPILED_FILE, facts, layers_of_log(facts["layer_log"]))
        not_run = f"nothing was executed: {missing}"
        further = [f"the engine's outputs and latency: compiled, {not_run}", *assumed]
        return _concluded(report, "compiled", not_run, further)

    def _build(self, module: str, name: str, timing_cache: str | None) -> BuildFacts:
        """Build the engine `name` in the child process; one that was there is as it was if that fails.

        Args:
            timing_cache: folder; of TensorRT on a GPU alone.

        Raises:
            BuildRefusal: see truehalf.runtime.tensorrt.
            StageError: file-unwritable.
        """
        options, minutes = plain(self.options) | {"timing_cache": timing_cache}, self.options.build_minutes
        if timing_cache is not None:  # one file for each GPU and version
            versions: Mapping[str, Any] = self.machine
            gpu = file_key(self.machine["gpus"][0]["name"] if self.machine["gpus"] else "unknown gpu")
            folder = Path(timing_cache).resolve()
            folder.mkdir(parents=True, exist_ok=True)
            options["timing_cache"] = str(folder / f"{gpu}-tensorrt-{versions[module]}.cache")
        nodes, targets = told_names(self.file.typed), self._targets(is_covered=True)
        try:
            destination(self.out / name)
            with named_file(self.file, nodes) as path, written_whole(self.out / name) as building:
                order = BuildOrder(module, str(path), str(building), self.order.profiles, options, targets)
                return tensorrt.build(order, None if minutes is None else 60 * minutes)
        except OSError as error:
            raise StageError("file-unwritable", f"the engine, {self.out / name}: {explain(error)}") from error

    def _targets(self, is_covered: bool) -> list[str]:
        """Compute capabilities asked for that TensorRT for RTX compiles for, or the others."""
        asked = self.order.target.compute_capability
        return [capability.value for capability in asked if (capability in COMPILED_FOR) == is_covered]

    def _with_layers(
        self, report: EngineReport, module: str, name: str, facts: BuildFacts, layers: list[Layer] | None
    ) -> EngineReport:
        """The report with the facts, layers and gates of an engine that was built."""
        model, options, targets = self.file.typed, self.options, self._targets(is_covered=True)
        compiler = f"{tensorrt.NAMES[module]} {facts['tensorrt']}"
        compiled = compiler_facts(compiler, targets, model, told_names(model), layers, self.order.profiles)
        gates = half_gate(compiled, layers or [], options)
        if module == RTX and options.gates.fused_attention and compiled["attention_regions"]:
            gates.append(attention_gate(model, compiled, layers or [], self.findings))
        return replace(
            report,
            build_seconds=facts["build_seconds"],
            warnings=facts["warnings"],
            provider=module,
            engine=name,
            engine_mb=(self.out / name).stat().st_size / 1e6,
            layer_table=layers or [],
            compiled=compiled,
            gates=gates if self.order.declared == "fp16" else [],
        )


def _none_built(report: EngineReport, reason: str, *further: str, is_failed: bool = False) -> EngineReport:
    """The report of an engine that was not built, and why: "planned", or "failed"."""
    if is_failed:
        return replace(report, status=FAILED, reason=reason, reasons=[reason], not_verified=list(further))
    return replace(report, reason=reason, not_verified=[f"the engine: none was built: {reason}", *further])


def _concluded(report: EngineReport, good: str, why: str | None, further: Sequence[str]) -> EngineReport:
    """The report of an engine that was made: failed if its outputs or one of its gates failed.

    Args:
        good: status if nothing failed; `why`: its reason.
        further: what is not verified beside gates and outputs.
    """
    parts = [(gate["state"], gate_sentence(gate)) for gate in report.gates]
    if report.parity is not None:
        parts.append((report.parity["state"], f"the engine's outputs: {report.parity['reason']}"))
    reasons = [text for state, text in parts if state == FAILED]
    unknown = [text for state, text in parts if state == NOT_VERIFIED]
    status, reason = (FAILED, "; ".join(reasons)) if reasons else (good, why)
    return replace(report, status=status, reason=reason, reasons=reasons, not_verified=[*unknown, *further])
