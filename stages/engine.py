"""engine: the final file as a strongly typed TensorRT engine, or as ONNX Runtime will serve it, and the proof of it.

    python -m stages.engine                              the stage: artifacts/ -> artifacts/engine
    python -m stages.engine --plan plan.json --out engine

The graph's dtypes are the engine's precision, so a file whose dtypes contradict the declared precision is refused
(truehalf.engines.precision: what of a mixed file).
Where nothing can be built, the complete plan is written, and the second command carries it out elsewhere. An engine
that is not what was declared, or does not find what the FP32 model finds, is kept and marked failed: the stage `gate`
turns that into the exit code.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from stages.frame import Stage, load_params, run_door, run_stage, workspace
from truehalf.cli.engine_arguments import arguments
from truehalf.config.defaults import defaults
from truehalf.config.schema import Backend, Config, EngineConfig, FailOn
from truehalf.config.validate import ConfigErrors, check_engine
from truehalf.data.samples import adversarial_samples, readable, verification_samples
from truehalf.engines import ort_deploy as deploy
from truehalf.engines.carry_out import carry_out
from truehalf.engines.options import plain_options
from truehalf.engines.parity import Evidence
from truehalf.engines.plan import FILES_OF_A_PLAN, check_keys, check_plan, check_target
from truehalf.engines.plan_files import make_plan, write_plan
from truehalf.engines.precision import check_precision, typed_model
from truehalf.errors import StageError
from truehalf.files import read_json, write_json
from truehalf.io_spec.profile_shapes import completed
from truehalf.ir.model_file import external_files, load_model
from truehalf.runtime.machine import probe as probe_machine
from truehalf.runtime.tensorrt.build import BuildError, find_file, sha256
from truehalf.verification.chain.reference import read_reference

FILES = {Backend.tensorrt: "model.engine", Backend.onnxruntime: "model.optimized.onnx"}
REPORT_FILE = "engine.json"
NO_EVIDENCE = "no reference was given to hold its outputs against"


# --- the doors --------------------------------------------------------------------------------------------------------


def build_engine(
    model_path: Path | str,
    out_dir: Path | str,
    *,
    declared: str,
    profiles: Sequence[Mapping[str, Any]],
    evidence: Evidence | str | Callable[[], Evidence | str] = NO_EVIDENCE,
    probe: Mapping[str, Any] | None = None,
    plan_names: tuple[str, str] | None = None,
    lint_ignore: Sequence[str] = (),
    lint_fail_on: str = FailOn.never.value,
    **options: Any,
) -> dict[str, Any]:
    """Build an engine into `out_dir` where the machine can, prove it, and write its plan there in any case.

    Args:
        model_path: the final ONNX file.
        out_dir: gets the engine, plan.json, and what somebody needs to carry the plan out by hand.
        declared: "fp16" or "fp32".
        profiles: optimization profiles: [{input: {"min": shape, "opt": shape, "max": shape}}]; of a shape tensor the
            numbers are its values.
        evidence: what the engine's outputs are held against, or why there is nothing; or a function for it, called
            when there is an engine.
        probe: facts of the machine (truehalf.runtime.machine.probe); by default of this one.
        plan_names: how the plan calls the ONNX file and the engine; default: the path given, and the engine's file.
        lint_ignore: findings that are not wanted, see truehalf.linting.lint.
        lint_fail_on: "never", "error" or "warning": findings of the file for which nothing is built.
        options: the other keys of conf/engine/tensorrt.yaml (of onnxruntime.yaml, with backend="onnxruntime"), where
            what is left out has its default; names of files are relative to the current folder.

    Returns:
        status: "built"; "planned", with the machine's `reason`; or "failed", with `reasons`: the engine, where there is
        one, is then kept for inspection. plan; lint (findings); precision
        (truehalf.engines.precision.precision_facts); not_verified; of a built engine also provider, the facts of
        truehalf.runtime.tensorrt.build.build or truehalf.engines.ort_deploy.Deployed.facts, parity
        (truehalf.engines.parity) and latency by point of the profiles.

    Raises:
        StageError: when the file contradicts `declared`, a profile does not fit the graph, an option is wrong (all of
            them at once), the engine would be written over the model, or TensorRT or ONNX Runtime refuses the file.
    """
    model_path, out_dir = Path(model_path), Path(out_dir)
    check_precision(model_path, declared)
    section = _checked({"profiles": profiles} | options)
    names = plan_names or (str(model_path), FILES[section.backend])
    values = {
        "model_path": model_path,
        "names": names,
        "profiles": plain_options(section.profiles),
        "declared": declared,
    }
    if section.backend is Backend.tensorrt:
        plan = make_plan(options=plain_options(section), **values)
        write = write_plan
    else:
        plan = deploy.make_plan(options=plain_options(section), **values)
        write = deploy.write_plan
    plan |= {
        "backend": section.backend.value,
        "latency": plain_options(section.latency),
        "plugin_ops": list(section.plugin_ops),
        "lint": {"ignore": list(lint_ignore), "fail_on": lint_fail_on},
        "when_unavailable": section.when_unavailable.value,
    }
    check_keys(plan)  # make_plan has held the profiles against the model
    check_target(plan, model_path, out_dir, FILES_OF_A_PLAN)
    write(plan, out_dir)
    given = evidence if callable(evidence) else lambda: evidence
    with _environment(plan):
        return carry_out(plan, model_path, out_dir, given, probe or probe_machine(section.plugins))


def execute_plan(plan: Path | str, out: Path | str | None = None) -> dict[str, Any]:
    """Carry out a plan that was written on another machine.

    The model is looked for by its name in the plan from the current folder, then beside the plan. Where the current
    folder is a workspace with the reference of just this model, the engine is held against it.

    Args:
        plan: plan.json.
        out: folder for the engine and engine.json, the report; by default the plan's.

    Returns:
        as build_engine.

    Raises:
        StageError: as build_engine, when the file is no plan or one that does not fit its model, and when the model or
            a plugin is not the one that the plan was made for.
    """
    plan_path = Path(plan)
    content = read_json(plan_path)
    check_keys(content, str(plan_path))
    out_dir = Path(out) if out is not None else plan_path.parent
    folder, digest = plan_path.parent, content["onnx_sha256"]
    model_path = _found(content["onnx"], folder, "the model", digest, content["onnx_data"])
    plugins = [
        {**plugin, "path": str(_found(plugin["path"], folder, "the plugin", plugin["sha256"]))}
        for plugin in content["plugins"]
    ]
    check_plan(content, typed_model(model_path), str(plan_path))
    check_precision(model_path, content["declared"])
    content |= {"plugins": plugins}
    check_target(content, model_path, out_dir, [REPORT_FILE], plan_path)
    out_dir.mkdir(parents=True, exist_ok=True)
    with _environment(content):
        report = carry_out(
            content,
            model_path,
            out_dir,
            lambda: _evidence_of_workspace(digest),
            probe_machine([plugin["path"] for plugin in plugins]),
        )
    write_json(out_dir / REPORT_FILE, {"stage": "engine"} | report)
    return report


@contextlib.contextmanager
def _environment(plan: Mapping[str, Any]) -> Iterator[None]:
    """The plan's variables while it is carried out, from before the providers load: a library reads them as it starts,
    and whoever calls this has variables of their own.
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


def _found(name: str, folder: Path, what: str, expected: str, data: Sequence[str] = ()) -> Path:
    try:
        return find_file(name, folder, what, expected=expected, data=data)
    except BuildError as error:
        raise StageError(error.code, str(error)) from error


def _evidence_of_workspace(onnx_sha256: str) -> Evidence | str:
    """The reference of the workspace, where it belongs to this model; else why there is none."""
    root = workspace()
    final = root / "artifacts" / "cast_cleanup" / "model.onnx"
    if not final.is_file() or not (root / "artifacts" / "reference" / "samples.json").is_file():
        return "there is no workspace with artifacts/cast_cleanup and artifacts/reference here"
    if sha256(final, *(final.parent / name for name in external_files(load_model(final)))) != onnx_sha256:
        return "the reference in the workspace here belongs to another model"
    try:
        return evidence_of(load_params(root), root)
    except ConfigErrors as error:
        raise StageError("bad-options", f"{root / 'params.yaml'}: {error}") from error


def evidence_of(config: Config, root: Path) -> Evidence:
    """What verify has frozen in a workspace, on the samples of its configuration.

    Raises:
        StageError: when it is missing, or its samples are others.
    """
    folder = root / "artifacts" / "reference"
    spec = read_json(root / "artifacts" / "trace" / "io_spec.json")
    samples = verification_samples(config, root, spec)
    if config.verify.skip_corrupt:
        samples, _ = readable(samples)
    reference = read_reference(folder, "reference", samples, spec)
    if isinstance(reference, str):
        raise StageError("file-missing", f"{folder}: holds no reference ({reference}); run `dvc repro verify`")
    adversarial = adversarial_samples(config, spec)
    return Evidence(reference, read_reference(folder, "adversarial", adversarial, spec), config.verify)


def _checked(options: Mapping[str, Any]) -> EngineConfig:
    """The options of the door over the defaults of their backend."""
    backend = options.get("backend", Backend.tensorrt.value)
    choice = backend if backend in {member.value for member in Backend} else Backend.tensorrt.value
    try:
        return check_engine(defaults(f"engine/{choice}") | plain_options(options))
    except ConfigErrors as error:
        raise StageError("bad-options", "bad options:\n" + "\n".join(f"  - {line}" for line in error.errors)) from error


# --- the stage --------------------------------------------------------------------------------------------------------


def run(stage: Stage) -> dict[str, Any]:
    options, declared = stage.config.engine, stage.config.precision.dtype.value
    model_path = stage.artifact("cast_cleanup")
    check_precision(model_path, declared)
    verdict = read_json(stage.artifact("verify", "verdict.json"))["verdict"]
    if verdict == "failed" and not options.build_unverified:
        stage.out().joinpath("REFUSED").write_text("no engine: the model failed verify\n")
        reason = "the model failed verify; engine.build_unverified=true builds it all the same"
        return {"status": "refused", "reason": reason, "not_verified": [f"the engine: none was built: {reason}"]}
    spec = read_json(stage.artifact("trace", "io_spec.json"))
    keywords = {name: value for name, value in plain_options(options).items() if name != "profiles"}
    with contextlib.chdir(stage.root):  # what files the options name, plugins and the timing cache, lie there
        return build_engine(
            model_path,
            stage.out(),
            declared=declared,
            profiles=completed(options.profiles, spec["inputs"]),
            evidence=lambda: evidence_of(stage.config, stage.root),
            probe=read_json(stage.root / "reports" / "probe.json"),
            plan_names=("artifacts/cast_cleanup/model.onnx", f"artifacts/engine/{FILES[options.backend]}"),
            lint_ignore=stage.config.lint.ignore,
            lint_fail_on=stage.config.lint.fail_on.value,
            **keywords,
        )


def main() -> None:
    if len(sys.argv) == 1:
        run_stage("engine", run)
        return
    options, ended = arguments(sys.argv[1:]), dict[str, Any]()

    def door(**keywords: Any) -> dict[str, Any]:
        ended.update(execute_plan(**keywords))
        return {key: value for key, value in ended.items() if key != "layer_table"}  # engine.json has it

    run_door("engine", door, options)
    if ended.get("status") == "failed":
        sys.exit(1)


if __name__ == "__main__":
    main()
