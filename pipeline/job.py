"""One job: a composed configuration, checked, and run in the project, or beside other jobs in a folder of its own."""

from __future__ import annotations

import os
import sys
import time
import traceback
from pathlib import Path

from hydra.core.hydra_config import HydraConfig
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pipeline.caveats import failures
from pipeline.compose import effective, resolved, sentence
from pipeline.forms import About, Outcome, Params
from pipeline.run import NOT_BEGUN, run
from pipeline.sweep import VARIABLE, JobResult, job_folder, log_of, note
from pipeline.track import NOT_LOGGED, without_address
from pipeline.tracking.record import commit_of, name_of
from pipeline.workspace import crash_of, json_of, problems_of_lock, read_reports, root, without_git
from truehalf.config.named_files import missing_files
from truehalf.config.params import read_params
from truehalf.config.schema import Config
from truehalf.config.typed import ConfigErrors
from truehalf.models.configuration import validated

_ONE_AFTER_ANOTHER = "hydra._internal.core_plugins.basic_launcher.BasicLauncher"


def execute(config: DictConfig) -> int:
    """Run a configuration; the exit code is 0, 1 for a failure, 2 for a bad configuration, 130 for Ctrl-C."""
    hydra = HydraConfig.get()
    number = 0 if OmegaConf.is_missing(hydra.job, "num") else int(hydra.job.num)
    result = JobResult(number, list(hydra.overrides.task))
    is_sweep = hydra.mode == RunMode.MULTIRUN and VARIABLE in os.environ
    is_beside = is_sweep and hydra.launcher["_target_"] != _ONE_AFTER_ANOTHER
    started = time.time()
    try:
        values = effective(_checked(resolved(config)))
        result.name = name_of(values)
        result.exit_code = _run_beside(values, result) if is_beside else _run_here(values, result, is_sweep)
    except (ConfigErrors, OmegaConfBaseException) as error:
        text = str(error) if isinstance(error, ConfigErrors) else sentence(error)
        print(text, file=sys.stderr)
        result.exit_code, result.reason = 2, text.strip().splitlines()[-1].removeprefix("  - ")
    except OSError as error:  # a full disk, a file that another has removed: other jobs go on
        traceback.print_exc()
        result.exit_code, result.reason = 1, f"{type(error).__name__}: {error}"
    if is_sweep:
        result.seconds = round(time.time() - started, 1)
        note(root(), result)
    return result.exit_code


def _run_here(values: Params, result: JobResult, is_sweep: bool) -> int:
    about: About = {"overrides": result.overrides}
    code = run(root(), values, about | {"sweep": os.environ[VARIABLE]} if is_sweep else about)
    result.reason = _reason(code)
    return code


def _run_beside(values: Params, result: JobResult) -> int:
    project = root()
    about: About = {"overrides": result.overrides, "sweep": os.environ[VARIABLE], "commit": commit_of(project)}
    log = log_of(project, result.number)
    with job_folder(project, str(result.name), values) as folder, log.open("w") as output:
        code = run(folder, values, about, project, output)
        result.reason = _reason(code, folder)
    state = f"failed ({code})" if code else "done"
    parts = [f"sweep: #{result.number} {' '.join(result.overrides)}", state, *filter(None, [result.reason])]
    print(": ".join(parts), flush=True)
    return code


def _checked(values: Params) -> Config:
    """The configuration, typed; or ConfigErrors with all that is wrong, files that are not there included."""
    errors: list[str] = []
    config: Config | None = None
    try:
        config = validated(values)
    except ConfigErrors as error:
        errors += error.errors
    keys = {error.partition(":")[0] for error in errors}
    errors += [error for error in missing_files(values, root()) if error.partition(":")[0] not in keys]
    if not keys:
        errors += without_address(values["tracking"])
    errors += [*problems_of_lock(root()), *without_git(root())]
    if errors or config is None:
        raise ConfigErrors(errors)
    return config


def _reason(code: int, folder: Path | None = None) -> str | None:
    """One line on why the run of a workspace, by default the project's, failed or was not logged; None otherwise."""
    place = folder or root()
    if code == 130:
        return None
    if code and (crash := crash_of(place)):
        if code == NOT_BEGUN:  # its reports are those of the run before
            (place / "reports" / "error.json").unlink()
        return f"{crash['stage']}: {crash['message']}".splitlines()[0]
    tracked: Outcome | None = json_of(place / "reports" / "track.json")
    unlogged = [tracked["message"]] if tracked and tracked["status"] == NOT_LOGGED else []
    failed = failures(read_reports(place), read_params(place)) or ["no stage says why"] if code else []
    return "; ".join([*failed, *unlogged]) or None
