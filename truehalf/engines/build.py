"""Engine of a file: built where the machine can, else compiled by TensorRT for RTX, else recorded in plan.json."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from truehalf.codes import coded, uncoded
from truehalf.config.engine import COMPILED_FOR, Backend, EngineConfig, Provider, TargetConfig, WhenUnavailable
from truehalf.config.schema import LintConfig
from truehalf.config.typed import plain
from truehalf.engines import provider
from truehalf.engines.compiled import Attentions, attention_gate, compiler_facts, half_gate, outcome_of
from truehalf.engines.engine_report import EngineGate, EngineReport, Parity
from truehalf.engines.layers import NodeNames, half_layers, half_share, layers_of, named_file
from truehalf.engines.outputs import Engine, EngineReference, compare_outputs, feeds_at, latencies
from truehalf.engines.precision import check_precision, precision_facts
from truehalf.engines.profiles import check_profiles, points_of
from truehalf.engines.refused import explained, is_shared
from truehalf.engines.trtexec import PLAN_FILE, check_places, plan_of
from truehalf.errors import StageError, attempted, refuse
from truehalf.files import destination, explain, write_json, written_whole
from truehalf.ir.model_forms import ModelFile, file_of
from truehalf.linting import Finding, lint
from truehalf.linting.plugin_ops import ASSUMED, ops_of_plugins
from truehalf.linting.report import failing, failure
from truehalf.runtime import ort, tensorrt
from truehalf.runtime.machine import CPU, Machine, device_lock, file_key
from truehalf.runtime.machine import probe as probe_machine
from truehalf.runtime.tensorrt import RTX, BuildFacts, BuildOrder, BuildRefusal, Profile
from truehalf.verification.findings import FAILED, NOT_VERIFIED, VERIFIED

ENGINE_FILE, COMPILED_FILE = "model.engine", "model.rtx.engine"
REPORT_FILE = "engine.json"
NO_EVIDENCE = "no reference was given to compare its outputs with"
CPU_FP16 = "ONNX Runtime's CPU provider computes FP16 in FP32, so nothing here says what FP16 hardware does"
# Options of the machine that builds, and those that TensorRT for RTX has for no engine that is built without a GPU.
_OF_MACHINE = {"timing_cache": None, "editable_timing_cache": False, "hardware_compatibility": "none"}
_OF_TENSORRT = {"version_compatible": False, "refit": False, "strip_weights": False}


@dataclass(frozen=True, kw_only=True)
class Order:
    """An engine that is asked for, beside its options.

    Attributes:
        declared: "fp16" or "fp32".
        profiles: optimization profiles.
        evidence: gives the reference of the outputs, or why there is none; called before an engine that runs is built.
        probe: facts of the machine (truehalf.runtime.machine.probe); by default of this one.
        plan_names: how the plan calls the ONNX file and the engine; default: the path given, and the engine's file.
        lint: findings that are not wanted, and those of the file for which nothing is built.
        target: GPUs that the file is compiled for where there is none.
    """

    declared: str
    profiles: Sequence[Profile]
    evidence: Callable[[], EngineReference | str] = lambda: NO_EVIDENCE
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
        options: but for its profiles, which `order` has as numbers; names of files are relative to the current folder.

    Returns:
        the report; an engine that failed is kept for inspection.

    Raises:
        StageError: when the file contradicts what is declared, a profile does not fit the graph, the engine would be
            written over the model, an option is refused, or ONNX Runtime refuses the file.
        RuntimeError: a defect of truehalf in the process that builds.
    """
    file, out_dir = _beside_data(model), Path(out_dir)
    check_precision(file, order.declared)
    problems = check_profiles(file.written.graph, order.profiles)
    problems += [f"engine.plugins: {library} is missing" for library in options.plugins if not Path(library).is_file()]
    refuse("wrong-plan", f"the plan does not fit {file.path}", problems)
    order = replace(order, plan_names=order.plan_names or (str(file.path), ENGINE_FILE))
    plan = plan_of(file, order.plan_names or ("", ""), options, order.profiles, order.declared)
    check_places(file, out_dir, [PLAN_FILE, REPORT_FILE, ENGINE_FILE, COMPILED_FILE], options)
    out_dir.mkdir(parents=True, exist_ok=True)
    write_json(out_dir / PLAN_FILE, plan)
    machine = order.probe or probe_machine(options.plugins)
    common = EngineReport(
        backend=options.backend.value,
        declared=order.declared,
        plan=plan,
        precision=precision_facts(file.typed, order.declared),
        gpu=machine["gpus"][0]["name"] if machine["gpus"] else None,
    )
    work = _Work(file, out_dir, order, options, machine)
    return work.served(common) if options.backend is Backend.onnxruntime else work.by_tensorrt(common)


def _beside_data(model: Path | str | ModelFile) -> ModelFile:
    """The file, or the file that it is a link to, if that alone has external data beside it: there a parser looks."""
    file = file_of(model)
    beside = {file.path.parent / name for name in file.external}
    return ModelFile(file.path.resolve()) if beside and beside.isdisjoint(file.data) else file


@dataclass(frozen=True)
class _Work:
    """One engine: the file, what is asked for, and the machine."""

    file: ModelFile
    out: Path
    order: Order
    options: EngineConfig
    machine: Machine

    def served(self, common: EngineReport) -> EngineReport:
        """The report of a file on an execution provider of ONNX Runtime."""
        options, is_half = self.options, self.order.declared == "fp16"
        if missing := provider.unavailable_reason(self.machine, str(options.provider)):
            return self._none_built(common, missing)
        evidence, on_cpu = self.order.evidence(), options.provider is Provider.cpu
        with device_lock(CPU if on_cpu else "cuda"):
            served = provider.Served(self.file, options)
            points = sorted(points_of(self.order.profiles), key=lambda point: "opt" not in point.kinds)
            full = [point.shapes for point in points if all(shape[:1] != [0] for shape in point.shapes.values())]
            served.run(feeds_at(self.file.typed, (full or [{}])[0]))  # what ran where is read from the first run
            version, counts = ort.runtime_version(), served.nodes_by_provider()
            report = replace(common, onnxruntime=version, nodes_by_provider=counts, cpu_nodes=served.cpu_nodes or [])
            report = replace(report, provider=served.provider, layers=sum(counts.values()))
            fell = [provider.cpu_nodes_sentence(served.cpu_nodes)] if served.cpu_nodes else []
            why_open = CPU_FP16 if is_half and on_cpu else ""
            return self._proven(report, served, evidence, f"onnxruntime-{options.provider}", (why_open, fell))

    def by_tensorrt(self, common: EngineReport) -> EngineReport:
        """The report of an engine of TensorRT or TensorRT for RTX: built, compiled, or recorded."""
        findings, assumed = self._findings()
        common = replace(common, lint=[finding.as_dict() for finding in findings])
        if severe := failing(findings, self.order.lint.fail_on.value):
            what = f"lint.fail_on is {self.order.lint.fail_on.value}, and the file that is built has"
            return self._none_built(common, coded("lint-fails", f"{what}\n  {failure(severe)}"), assumed, FAILED)
        module = self.options.backend.value
        capability = self.machine["gpus"][0]["compute_capability"] if self.machine["gpus"] else None
        missing = self._missing(module, capability)
        names = NodeNames.of(self.file.typed)
        try:
            if missing is None:
                evidence = self.order.evidence()  # before the build, which takes long
                with device_lock("cuda"):  # TensorRT chooses tactics by their time, too
                    facts = self._built(module, ENGINE_FILE, names, {}, is_inspected=True)
                    return self._run(common, facts, names, evidence, assumed)
            if self.options.when_unavailable is WhenUnavailable.fail:
                return self._none_built(common, missing, assumed)
            return self._compiled(common, missing, names, findings, assumed)
        except BuildRefusal as error:
            if not (error.errors or error.log) and error.code != "runtime-refuses":
                raise  # an option, a plugin or a package
            theirs = ops_of_plugins(self.file.typed, ["any"], self.options.plugin_ops)[0]
            is_own = missing is None or module == RTX
            nodes = names.nodes(self.file.typed)
            text = coded(error.code, f"{self.file.path}: {explained(error, nodes, findings)}")
            if is_shared(error, nodes, theirs) or (is_own and (error.errors or error.log)):
                return self._none_built(common, text, assumed, FAILED)
            return self._none_built(common, missing or text, [f"not compiled: {text}", *assumed])

    def _missing(self, module: str, capability: str | None) -> str | None:
        """Reason why a machine with such a GPU builds and runs no engine of a module."""
        versions: Mapping[str, Any] = self.machine
        return tensorrt.unavailable_reason(module, capability, versions.get(module), versions.get("polygraphy"))

    def _findings(self) -> tuple[list[Finding], list[str]]:
        """TensorRT compatibility of the file, and what had to be assumed of its plugins."""
        chosen, model, version = self.order.lint, self.file.typed, self.machine["tensorrt"]
        ops, is_assumed = ops_of_plugins(model, self.options.plugins, self.options.plugin_ops)
        release = ".".join(version.split(".")[:2]) if version else None
        missing: list[str] = []
        search = partial(lint, model, tensorrt=release, ignore=chosen.ignore, plugin_ops=ops)
        findings = attempted("lint of the file", missing.append, search)
        if missing and chosen.fail_on != "never":
            text = f"lint.fail_on is {chosen.fail_on}, and nothing is known: {uncoded(missing[0])}"
            raise StageError("lint-fails", text)
        return findings or [], [*([ASSUMED] if is_assumed else []), *missing]

    # --- building -------------------------------------------------------------------------------------------------

    def _built(
        self, module: str, name: str, names: NodeNames, changes: Mapping[str, Any], is_inspected: bool
    ) -> BuildFacts:
        """Build the engine `name` in the child process; one that was there is as it was if that fails.

        Raises:
            BuildRefusal: see truehalf.runtime.tensorrt.
            StageError: file-unwritable.
        """
        options, minutes, targets = plain(self.options) | changes, self.options.build_minutes, self._targets(True)
        if options["timing_cache"] is not None:  # one file for each GPU and version; editable ones have other entries
            versions: Mapping[str, Any] = self.machine
            gpu = self.machine["gpus"][0]["name"] if self.machine["gpus"] else "unknown gpu"
            kind = "-editable" if options["editable_timing_cache"] else ""
            folder = Path(options["timing_cache"]).resolve()
            folder.mkdir(parents=True, exist_ok=True)
            cache = f"{file_key(gpu)}-tensorrt-{versions.get(module)}{kind}.cache"
            options["timing_cache"] = str(folder / cache)
        try:
            destination(self.out / name)
            with named_file(self.file, names) as path, written_whole(self.out / name) as building:
                order = (module, str(path), str(building), self.order.profiles, options, targets, is_inspected)
                return tensorrt.build(BuildOrder(*order), None if minutes is None else 60 * minutes)
        except OSError as error:
            raise StageError("file-unwritable", f"the engine, {self.out / name}: {explain(error)}") from error

    def _targets(self, is_covered: bool) -> list[str]:
        """Compute capabilities asked for that TensorRT for RTX compiles for, or the others."""
        asked = self.order.target.compute_capability
        return [capability.value for capability in asked if (capability in COMPILED_FOR) == is_covered]

    def _with_facts(
        self, common: EngineReport, facts: BuildFacts, module: str, name: str, names: NodeNames
    ) -> EngineReport:
        """The report with the facts and layers of an engine that was built."""
        layers = layers_of(facts, names)
        half, fraction = half_layers(layers or [])
        unread = "the builder's log lists layers in a format that is not known" if layers is None else None
        return replace(
            common,
            tensorrt=facts["tensorrt"],
            build_seconds=facts["build_seconds"],
            warnings=facts["warnings"],
            device_memory_mb=facts.get("device_memory_mb"),
            inspection_fault=facts.get("inspection_fault") or unread,
            provider=module,
            engine=str(Path((self.order.plan_names or ("", ""))[1]).with_name(name)),
            engine_mb=(self.out / name).stat().st_size / 1e6,
            layers=None if layers is None else len(layers),
            half_layers=half,
            half_layers_fraction=fraction,
            layer_table=layers or [],
        )

    def _compiled(
        self, common: EngineReport, missing: str, names: NodeNames, findings: Sequence[Finding], assumed: list[str]
    ) -> EngineReport:
        """The report of a file that cannot be built here, compiled by TensorRT for RTX if that is there."""
        if uncovered := self._targets(False):
            known, plan = ", ".join(COMPILED_FOR), common.plan or {}
            text = f"no compiler here covers {', '.join(uncovered)}: TensorRT for RTX compiles for {known}. On the "
            text += f"device, run `truehalf engine {self.file.path.name}`, or: {plan['trtexec']}"
            assumed = [*assumed, coded("not-supported", text)]
            if not self._targets(True):
                return self._none_built(common, text, assumed[:-1])
        if compiler := self._missing(RTX, "8.6"):
            reason = f"{missing}; without a GPU a file is compiled by TensorRT for RTX, and {compiler}"
            return self._none_built(common, reason, assumed)
        changes = _OF_MACHINE | ({} if self.options.backend is Backend.tensorrt_rtx else _OF_TENSORRT)
        facts = self._built(RTX, COMPILED_FILE, names, changes, is_inspected=False)
        report, model = self._with_facts(common, facts, RTX, COMPILED_FILE, names), self.file.typed
        layers = None if report.layers is None else report.layer_table
        share = half_share(model, layers, self.order.profiles, names)
        attentions = Attentions.of(model, layers or [], names)
        compiled = compiler_facts(facts, layers, share, attentions, names, self._targets(True))
        gates: list[EngineGate] = []
        if self.order.declared == "fp16":
            gates = half_gate(share, layers or [], self.options, report.inspection_fault)
            if self.options.gates.fused_attention and compiled["attention_regions"]:
                gates.append(attention_gate(model, layers, attentions, findings))
        not_run = f"the engine's outputs and latency: compiled, nothing was executed: {missing}"
        report = replace(report, compiled=compiled, gates=gates)
        return _concluded(report, ("compiled", f"nothing was executed: {missing}"), [], [not_run], assumed)

    # --- proving --------------------------------------------------------------------------------------------------

    def _run(
        self,
        common: EngineReport,
        facts: BuildFacts,
        names: NodeNames,
        evidence: EngineReference | str,
        assumed: list[str],
    ) -> EngineReport:
        """The report of an engine that was built on this machine."""
        module, profiles = self.options.backend.value, self.order.profiles
        report = self._with_facts(common, facts, module, ENGINE_FILE, names)
        if self.order.declared == "fp16":
            share = half_share(self.file.typed, report.layer_table, profiles, names)
            gates = half_gate(share, report.layer_table, self.options, report.inspection_fault)
            report = replace(report, gates=gates)
        weights = self.file.path if self.options.strip_weights else None
        try:
            engine = tensorrt.EngineRunner(self.out / ENGINE_FILE, module, plain(self.options), profiles, weights)
        except StageError as error:  # the engine stays, for inspection or for another machine
            parity: Parity = {"evaluation": module, "provider": module, "state": FAILED, "reason": str(error)}
            return _proven(report, parity, assumed)
        return self._proven(report, engine, evidence, module, ("", assumed))

    def _proven(
        self,
        report: EngineReport,
        engine: Engine,
        evidence: EngineReference | str,
        evaluation: str,
        open_parts: tuple[str, list[str]],
    ) -> EngineReport:
        """The report with outputs and latency.

        Args:
            evaluation: what the outputs are called.
            open_parts: why good outputs prove nothing, or ""; and what else is not verified.
        """
        why_open, further = open_parts
        profiles, samples = self.order.profiles, () if isinstance(evidence, str) else evidence.reference.samples
        parity: Parity = {"evaluation": evaluation, "provider": engine.provider, "state": NOT_VERIFIED}
        if isinstance(evidence, str):
            parity["reason"] = evidence
        else:
            parity = compare_outputs(engine, self.file, profiles, evidence, evaluation)
        if why_open and parity["state"] == VERIFIED:
            parity |= {"state": NOT_VERIFIED, "reason": why_open}
        on_gpu = engine.provider != ort.CPU
        timings, untimed = latencies(engine, self.file.typed, profiles, samples, self.options.latency, on_gpu)
        engine.close()
        return _proven(replace(report, latency=timings), parity, [*untimed, *further])

    def _none_built(
        self, common: EngineReport, reason: str, further: Sequence[str] = (), status: str = "planned"
    ) -> EngineReport:
        """The report of an engine that was not built, and why: "planned", or "failed"."""
        if status != FAILED and self.options.when_unavailable is WhenUnavailable.fail:
            status, reason = FAILED, f"engine.when_unavailable=fail, and {reason}"
        reasons = [reason] if status == FAILED else []
        unknown = [] if reasons else [f"the engine: none was built: {reason}"]
        return replace(common, status=status, reason=reason, reasons=reasons, not_verified=[*unknown, *further])


def _proven(report: EngineReport, parity: Parity, further: Sequence[str]) -> EngineReport:
    """The report of an engine that was built, with what is known of its outputs."""
    sentences = {parity["state"]: [f"the engine's outputs: {parity['reason']}"]}
    report = replace(report, parity=parity)
    return _concluded(report, ("built", None), sentences.get(FAILED, []), further, sentences.get(NOT_VERIFIED, []))


def _concluded(
    report: EngineReport,
    good: tuple[str, str | None],
    failures: Sequence[str],
    first: Sequence[str],
    last: Sequence[str],
) -> EngineReport:
    """The report of an engine that was made, failed if one of its gates failed.

    Args:
        good: status and reason, if nothing failed.
        failures: reasons beside those of the gates.
        first, last: what is not verified, before the gates and after them.
    """
    failed, open_gates = outcome_of(report.gates)
    reasons = [*failed, *failures]
    status, reason = (FAILED, "; ".join(reasons)) if reasons else good
    not_verified = [*first, *open_gates, *last]
    return replace(report, status=status, reason=reason, reasons=reasons, not_verified=not_verified)
