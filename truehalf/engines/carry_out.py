"""An engine built from its plan: its layers, its outputs against the reference, and its latency."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, cast

import onnx_ir as ir

from truehalf.codes import coded, uncoded
from truehalf.config.engine import Backend, EngineConfig, LatencyConfig, WhenUnavailable
from truehalf.config.schema import LintConfig
from truehalf.data.samples import stacked
from truehalf.engines import ort_provider
from truehalf.engines.compiling.gates import half_share, unknown_share
from truehalf.engines.compiling.report import compiled_report, none_built, outcome_of
from truehalf.engines.engine_report import EngineGate, EnginePlan, EngineReport, Parity, PointLatency
from truehalf.engines.parity import EngineReference, Feeds, Point, Run, batch_of, feeds_of, measure_engine, points_of
from truehalf.engines.precision import precision_facts
from truehalf.engines.profiles import shape_inputs
from truehalf.errors import StageError, attempted, told
from truehalf.ir.facts import all_nodes
from truehalf.ir.model_forms import ModelFile
from truehalf.ir.selectors import scope_of
from truehalf.json_values import JsonObject
from truehalf.linting import Finding, lint
from truehalf.linting.plugin_ops import ASSUMED, ops_of_plugins
from truehalf.linting.report import failing, failure
from truehalf.runtime.device_lock import CPU, device_lock
from truehalf.runtime.machine import Machine
from truehalf.runtime.tensorrt.build import build
from truehalf.runtime.tensorrt.versions import RTX, BuildError, BuildPlan, EngineFacts, unavailable_reason
from truehalf.runtime.timing import Timing
from truehalf.verification.findings import FAILED, NOT_VERIFIED, VERIFIED

CPU_FP16 = "ONNX Runtime's CPU provider computes FP16 in FP32, so nothing here says what FP16 hardware does"


@dataclass(frozen=True)
class _Built:
    """An engine that runs.

    Attributes:
        facts: of the engine, for the report.
        run: outputs for feeds, at a profile.
        time: latency for feeds, at a profile, of so many samples.
        evaluation: what computes the outputs, as the table of stages calls it.
        computes_half: whether FP16 is computed as such; False where it is known that it is not.
        gates: of its layers.
        unknown: what else is unknown of it, each with the reason.
        stopped: where it cannot run on this machine at all, the state that this leaves its outputs in, and the reason.
    """

    facts: EngineFacts
    run: Run
    time: Callable[[Feeds, int, int, LatencyConfig], Timing]
    evaluation: str
    computes_half: bool
    gates: list[EngineGate]
    unknown: list[str]
    stopped: tuple[str, str] | None = None


def carry_out(
    plan: EnginePlan,
    file: ModelFile,
    out_dir: Path,
    evidence: Callable[[], EngineReference | str],
    probe: Machine,
    options: EngineConfig,
    chosen_lint: LintConfig,
) -> EngineReport:
    """Build what a plan says, or say why that is not done on this machine; see truehalf.engines.build.build_engine.

    Args:
        plan: of truehalf.engines.plan.make_plan.
        file: the plan's model.
        out_dir: where the engine goes.
        evidence: gives what its outputs are compared with, or why there is nothing.
        probe: facts of the machine.
        options: that the plan was made of.
        chosen_lint: findings that are not wanted, and those for which nothing is built.
    """
    model = file.typed
    on_tensorrt = plan["backend"] != Backend.onnxruntime.value
    by_tensorrt = on_tensorrt or plan["provider"] == "tensorrt"
    findings, assumed = _findings(model, plan, probe, options, chosen_lint) if by_tensorrt else ([], [])
    declared, graph = plan["declared"], plan["graph"]
    must_build = options.when_unavailable is WhenUnavailable.fail
    rows: Any = [finding.as_dict() for finding in findings]
    common = EngineReport(backend=plan["backend"], declared=declared, plan=plan, lint=rows)
    gate, reason = failing(findings, chosen_lint.fail_on.value), None
    if gate:
        message = f"lint.fail_on is {chosen_lint.fail_on.value}, and the file that is built has\n  {failure(gate)}"
        reason = coded("lint-fails", message)
    elif found := _unavailable(plan, probe):
        reason = f"engine.when_unavailable=fail, and {found}" if must_build else found
        if on_tensorrt and not must_build and probe.get(RTX) is not None:
            return compiled_report(common, file, out_dir, (found, assumed), options.gates)
    if reason:
        planned = none_built(common, plan, reason, assumed)
        return replace(planned, status="failed", reasons=[reason]) if gate or must_build else planned
    points = points_of(plan["profiles"], shape_inputs(model.graph)) or [_only_point(model)]
    given = evidence()  # before the build, which takes long: it may not be there
    with device_lock(CPU if plan.get("provider") == CPU else "cuda"):  # TensorRT chooses tactics by their time, too
        if on_tensorrt:
            share_less = options.gates.half_share_less if declared == "fp16" else None
            built = _built_by_tensorrt(plan, file, out_dir, findings, share_less)
        else:
            built = _served_by_onnxruntime(plan, file, _usual(model, points))
        parity = _parity(built, model, points, given)
        latency, untimed = _latency(built, model, points, given, options.latency) if not built.stopped else ([], [])
    reasons, unknown = outcome_of(built.gates)
    if parity["state"] == FAILED:
        reasons.append(f"the engine's outputs: {parity['reason']}")
    unknown += [*built.unknown, *untimed, *assumed]
    if parity["state"] == NOT_VERIFIED:
        unknown.append(f"the engine's outputs: {parity['reason']}")
    return replace(
        common.with_facts(built.facts),
        status="failed" if reasons else "built",
        reason="; ".join(reasons) or None,
        reasons=reasons,
        precision=precision_facts(graph, declared),
        gates=built.gates,
        parity=parity,
        latency=latency,
        not_verified=unknown,
    )


def _unavailable(plan: EnginePlan, probe: Machine) -> str | None:
    if plan["backend"] != Backend.onnxruntime.value:
        capability = probe["gpus"][0]["compute_capability"] if probe["gpus"] else None
        return unavailable_reason(capability, plan["backend"], probe.get(plan["backend"]))  # type: ignore[arg-type]
    return ort_provider.unavailable_reason(probe, plan["provider"])


def _usual(model: ir.Model, points: Sequence[Point]) -> Point:
    """The point to run first: an opt point that has samples, or another that has, for an empty run shows nothing."""
    with_samples = [point for point in points if batch_of(model, point)]
    return next((point for point in with_samples if "opt" in point.names), (*with_samples, points[0])[0])


def _only_point(model: ir.Model) -> Point:
    """Of a model whose shapes are all fixed, and which therefore needs no profile."""
    sides = {str(value.name): list(value.shape or ()) for value in model.graph.inputs}
    shapes = {name: [side for side in shape if isinstance(side, int)] for name, shape in sides.items()}
    return Point(0, ("min", "opt", "max"), shapes)


def _findings(
    model: ir.Model, plan: EnginePlan, probe: Machine, options: EngineConfig, chosen: LintConfig
) -> tuple[list[Finding], list[str]]:
    """TensorRT compatibility of the file, and what had to be assumed of its plugins."""
    plugins = [plugin["path"] for plugin in plan["plugins"]]
    ops, assumed = ops_of_plugins(model, plugins, options.plugin_ops)
    version = ".".join(probe["tensorrt"].split(".")[:2]) if probe["tensorrt"] else None
    search = partial(lint, model, tensorrt=version, ignore=chosen.ignore, plugin_ops=ops)
    missing: list[str] = []
    findings = attempted("lint of the file", missing.append, search)
    if missing and chosen.fail_on != "never":
        text = f"lint.fail_on is {chosen.fail_on}, and nothing is known: {uncoded(missing[0])}"
        raise StageError("lint-fails", text)
    return findings or [], [*([ASSUMED] if assumed else []), *missing]


def _built_by_tensorrt(
    plan: EnginePlan, file: ModelFile, out_dir: Path, findings: Sequence[Finding], share_less: float | None
) -> _Built:
    import torch

    from truehalf.runtime.tensorrt.latency import measure
    from truehalf.runtime.tensorrt.run import Engine

    stopped: tuple[str, str] | None = None
    try:
        facts = build(cast("BuildPlan", plan | {"onnx": str(file.path)}), out_dir, module=plan["backend"])
    except BuildError as error:
        if error.facts is None:
            raise StageError(error.code, explained(error, file.typed, findings)) from error
        facts, stopped = error.facts, (FAILED, str(error))
    except RuntimeError as error:  # as the bindings call much of what the library refuses
        raise StageError("runtime-refuses", f"{file.path}: TensorRT refuses: {error}") from error
    options = plan["builder"]
    engine: Any = None
    try:
        if not stopped:
            engine = Engine(
                out_dir / Path(plan["engine"]).name,
                [plugin["path"] for plugin in plan["plugins"]],
                weights=file.path if options["strip_weights"] else None,
                version_compatible=options["version_compatible"],
                module=plan["backend"],
            )
    except (StageError, RuntimeError) as error:  # the engine stays, for inspection or for another machine
        stopped = (FAILED if torch.cuda.is_available() else NOT_VERIFIED, f"the engine does not load here: {error}")
    return _Built(
        facts=facts | {"engine": plan["engine"], "provider": plan["backend"]},
        run=lambda feeds, profile: engine.run(feeds, profile),
        time=lambda feeds, profile, samples, options: measure(
            engine, feeds, profile=profile, samples=samples, options=options
        ),
        evaluation=plan["backend"],
        computes_half=True,
        gates=[half_share(plan, file.typed, facts, share_less)] if share_less is not None else [],
        unknown=[],
        stopped=stopped,
    )


def explained(error: BuildError, model: ir.Model, findings: Sequence[Finding]) -> str:
    """Why TensorRT refuses the file, with the module of each node that it names and the lint findings on that node."""
    nodes = {node.name: node for node in all_nodes(model)}
    lines = [str(error)]
    for name in dict.fromkeys(each["node"] for each in error.errors):
        if name not in nodes:
            continue
        scope = scope_of(nodes[name])
        lines.append(f"  {name}: {f'of the module {scope}' if scope else 'of no module that its name shows'}")
        for finding in findings:
            if finding.node == name:
                lines.append(f"    {finding.rule}: {finding.message} {finding.remedy} ({finding.link})")
    return "\n".join(lines)


def _served_by_onnxruntime(plan: EnginePlan, file: ModelFile, first: Point) -> _Built:
    try:
        served = ort_provider.Served(plan, file)
        served.run(feeds_of(file.typed, first, {}))  # what ran where is read from the first run
        facts = served.facts()
    except StageError:
        raise
    except Exception as error:  # whatever stops it is a verdict on the file
        raise StageError("runtime-refuses", told(error)) from error
    half, provider = plan["declared"] == "fp16", plan["provider"]
    unknown = []
    provider_decides = (
        "ONNX Runtime's TensorRT provider lets TensorRT choose the precision of each layer (trt_fp16_enable) and does "
        "not show it; engine=tensorrt builds what the graph says"
    )
    if plan["environment"]:
        named = " ".join(f"{name}={value}" for name, value in plan["environment"].items())
        unknown.append(
            f"TF32: ONNX Runtime's TensorRT provider has no option for it; {named} was set here, must be set where it "
            "is served, and nothing shows what TensorRT made of it"
        )
    if nodes := served.cpu_nodes:
        unknown.append(ort_provider.said_of_cpu_nodes(nodes))
    return _Built(
        facts=facts,
        run=lambda feeds, profile: served.run(feeds),
        time=lambda feeds, profile, samples, options: served.latency(feeds, samples=samples, options=options),
        evaluation=f"onnxruntime-{provider}",
        computes_half=not (half and provider == "cpu"),
        gates=[unknown_share(provider_decides)] if half and provider == "tensorrt" else [],
        unknown=unknown,
    )


def _parity(built: _Built, model: ir.Model, points: Sequence[Point], evidence: EngineReference | str) -> Parity:
    ran: Parity = {"evaluation": built.evaluation, "provider": built.facts["provider"]}
    if built.stopped:
        return {**ran, "state": built.stopped[0], "reason": built.stopped[1]}
    if isinstance(evidence, str):
        return {**ran, "state": NOT_VERIFIED, "reason": evidence}
    parity = measure_engine(built.run, model, points, evidence) | ran
    if built.computes_half or parity["state"] != VERIFIED:
        return parity
    open_ = {"state": NOT_VERIFIED, "reason": CPU_FP16}
    points_open: list[JsonObject] = [{**row, **open_} for row in parity["points"]]
    return parity | {"state": NOT_VERIFIED, "reason": CPU_FP16, "points": points_open}


def _latency(
    built: _Built, model: ir.Model, points: Sequence[Point], evidence: EngineReference | str, options: LatencyConfig
) -> tuple[list[PointLatency], list[str]]:
    """Latency by point, and what could not be timed."""
    rows: list[PointLatency] = []
    untimed = []
    for point in points:
        samples = batch_of(model, point)
        try:
            feeds = _feeds(model, point, evidence)
            rows.append({**point.facts, **built.time(feeds, point.profile, samples, options)})
        except Exception as error:  # what stops a timing must not lose the engine
            untimed.append(f"latency at {point.label}: {told(error)}")
    return rows, untimed


def _feeds(model: ir.Model, point: Point, evidence: EngineReference | str) -> Feeds:
    """Samples where they fit the point, and numbers drawn at random where they do not."""
    drawn = feeds_of(model, point, {})
    if isinstance(evidence, str):
        return drawn
    samples = evidence.reference.samples
    batch = batch_of(model, point)
    if not batch:
        return drawn
    taken = feeds_of(model, point, stacked([samples[i % len(samples)] for i in range(batch)]))
    fits = {name: value.shape for name, value in taken.items()} == {name: value.shape for name, value in drawn.items()}
    return taken if fits else drawn
