"""From Hydra's composed configuration to a run: plain values, checked, and run in the project or in a job's folder."""

from __future__ import annotations

import os
import re
import sys
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hydra.core.hydra_config import HydraConfig
from hydra.errors import MissingConfigException, OverrideParseException
from hydra.types import RunMode
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from pipeline.composed import composed_section
from pipeline.run import NOT_BEGUN, STOPPED, run
from pipeline.run_record import Run, read_json_or_none, slug_of
from pipeline.sweep import JobResult, job_folder, log_of, note
from pipeline.track import NOT_LOGGED, missing_address
from pipeline.workspace import SWEEP_VARIABLE, git_problems, lock_problems, root
from truehalf.codes import coded
from truehalf.config.params import COMPOSED
from truehalf.config.precision import Precision, PrecisionName
from truehalf.config.schema import Config
from truehalf.config.typed import ConfigErrors, plain
from truehalf.models.configuration import validated

# Mappings whose keys the user defines: Hydra wants `++` before a key that may be new.
_OPEN_KEYS = re.compile(r"(model\.options\.kwargs|trace\.dynamic_axes|engine\.memory_pools_gb)(\.[^=]+)?=")
_SERIAL_LAUNCHER = "hydra._internal.core_plugins.basic_launcher.BasicLauncher"
# Lines of OmegaConf's errors about its insides, and Hydra's advice to append a key, which no run would read.
_NOISE = ("full_key:", "object_type=", "reference_type=", "To append to your config", "See https:")


def with_open_keys(arguments: Sequence[str]) -> list[str]:
    """The command line with `++` before keys of open mappings: model.options.kwargs.classes=5 gets it."""
    return [f"++{each}" if _OPEN_KEYS.match(each) else each for each in arguments]


def hydra_message(error: Exception) -> str:
    """One line for an error of Hydra's or OmegaConf's: an unknown key or choice, or an argument that is no override."""
    lines: list[str] = []
    for each in (error, error.__cause__):
        text = "" if each is None or str(each) == "None" else str(each).partition("Config search path")[0]
        lines += [
            line for part in text.splitlines() if (line := " ".join(part.split())) and not line.startswith(_NOISE)
        ]
    code = "unknown-key"
    if isinstance(error, OverrideParseException):
        code = "bad-syntax"
    elif isinstance(error, MissingConfigException):
        code = "unknown-choice"
    if (override := getattr(error, "override", None)) and override not in lines[0]:
        lines.insert(0, f"{override}:")
    return coded(code, f"configuration: {' '.join(dict.fromkeys(lines))}")


def execute(config: DictConfig) -> int:
    """Run a configuration; return the exit code: 0, 1 for a failure, 2 for bad input, 130 for Ctrl-C."""
    hydra = HydraConfig.get()
    number = 0 if OmegaConf.is_missing(hydra.job, "num") else int(hydra.job.num)
    result = JobResult(number, list(hydra.overrides.task))
    is_sweep = hydra.mode == RunMode.MULTIRUN and SWEEP_VARIABLE in os.environ
    is_parallel = is_sweep and hydra.launcher["_target_"] != _SERIAL_LAUNCHER
    started = time.time()
    try:
        values = effective_values(checked(plain_values(config)))
        values[COMPOSED] = composed_section(root())
        if is_parallel:  # conf/ is not whole in a copy of the project
            values[COMPOSED]["files"] = {}
        result.name = slug_of(values)
        if is_parallel:
            result.exit_code = _run_beside(values, result)
        else:
            result.exit_code = run(root(), values)
            result.reason = _reason(result.exit_code, root())
    except (ConfigErrors, OmegaConfBaseException) as error:
        text = str(error) if isinstance(error, ConfigErrors) else hydra_message(error)
        print(text, file=sys.stderr)
        result.exit_code, result.reason = NOT_BEGUN, text.strip().splitlines()[-1].removeprefix("  - ")
    except OSError as error:  # a full disk, a file that another process has removed: other jobs go on
        traceback.print_exc()
        result.exit_code, result.reason = 1, f"{type(error).__name__}: {error}"
    if is_sweep:
        result.seconds = round(time.time() - started, 1)
        note(root(), result)
    return result.exit_code


def plain_values(config: DictConfig) -> dict[str, Any]:
    """The configuration as dicts, lists and scalars, every interpolation resolved.

    Raises:
        OmegaConfBaseException: an interpolation that cannot be resolved.
    """
    values: Any = OmegaConf.to_container(config, resolve=True)
    return dict(values)


def checked(values: dict[str, Any]) -> Config:
    """The configuration, typed.

    Raises:
        ConfigErrors: every error of it, missing files included.
    """
    surroundings = [*lock_problems(root()), *git_problems(root())]
    try:
        config = validated(values, root())
    except ConfigErrors as error:
        raise ConfigErrors([*error.errors, *surroundings]) from error
    if errors := [*missing_address(values["tracking"]), *surroundings]:
        raise ConfigErrors(errors)
    return config


def effective_values(config: Config) -> dict[str, Any]:
    """A checked configuration as params.yaml holds it: numbers as their types have them, since DVC, MLflow and
    comparisons take 512 and 512.0 for different values; in FP32 nothing of `precision` but its dtype, since stages list
    that section as a whole and would verify the same FP32 file once for each of its values.
    """
    values: dict[str, Any] = plain(config)
    if config.precision.dtype is PrecisionName.fp32:
        values["precision"] = plain(Precision(dtype=PrecisionName.fp32))
    return values


def _run_beside(values: dict[str, Any], result: JobResult) -> int:
    """Run a job of a parallel sweep in a folder of its own."""
    project = root()
    log = log_of(project, result.number)
    with job_folder(project, str(result.name), values) as folder, log.open("w") as output:
        code = run(folder, values, project, output)
        result.reason = _reason(code, folder)
    state = f"failed ({code})" if code else "done"
    parts = [f"sweep: #{result.number} {' '.join(result.overrides)}", state, *filter(None, [result.reason])]
    print(": ".join(parts), flush=True)
    return code


def _reason(code: int, folder: Path) -> str | None:
    """One line on why the run of a workspace failed or was not logged; None otherwise."""
    if code == STOPPED:
        return None
    record = Run.read(folder)
    if code and record.crash:
        if code == NOT_BEGUN:  # the reports are those of the run before
            (folder / "reports" / "error.json").unlink()
        return f"{record.crash.stage}: {record.crash.message}".splitlines()[0]
    outcome = read_json_or_none(folder / "reports" / "track.json")
    unlogged = [outcome["message"]] if outcome and outcome["status"] == NOT_LOGGED else []
    failed = record.failures or ["no stage says why"] if code else []
    return "; ".join([*failed, *unlogged]) or None
