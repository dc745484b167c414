"""python -m pipeline [group=choice ...] [key=value ...]: compose, validate, write params.yaml, `dvc repro`."""

from __future__ import annotations

import os
import sys

import hydra
from hydra.core.hydra_config import HydraConfig
from hydra.errors import HydraException
from hydra.types import RunMode
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from pipeline.entry import execute, hydra_message, with_open_keys
from pipeline.redact import first_line
from pipeline.sweep import begin, end, run_job
from pipeline.workspace import CONF, SWEEP_VARIABLE, VERBOSE_VARIABLE, root
from truehalf.codes import coded
from truehalf.files import explain
from truehalf.report.terminal import run_program

VERBOSE = "--verbose"  # Hydra does not know it
_exit_codes: list[int] = []


@hydra.main(config_path=str(CONF), config_name="config", version_base="1.3")
def job(config: DictConfig) -> None:
    """One run. Failures are noted, not raised, so that a sweep goes on to its next job."""
    is_job_of_sweep = HydraConfig.get().mode == RunMode.MULTIRUN
    _exit_codes.append(run_job(config) if is_job_of_sweep else execute(config))
    if _exit_codes[-1] == 130:
        raise KeyboardInterrupt  # ends a sweep, too


def main() -> None:
    if VERBOSE in sys.argv[1:]:
        os.environ[VERBOSE_VARIABLE] = "1"
    sys.argv[1:] = with_open_keys([argument for argument in sys.argv[1:] if argument != VERBOSE])
    os.environ.setdefault("HYDRA_FULL_ERROR", "1")  # Hydra raises its errors, instead of printing them at length
    is_sweep = not {"-m", "--multirun"}.isdisjoint(sys.argv[1:])
    code = 0
    try:
        if is_sweep:
            begin(root(), sys.argv[1:])
        job()
    except KeyboardInterrupt:
        if is_sweep:
            print("sweep: stopped; the same sweep again runs what is missing", file=sys.stderr)
        code = 130
    except (HydraException, OmegaConfBaseException) as error:
        print(hydra_message(error), file=sys.stderr)
        code = 2
    except OSError as error:
        print(coded("file-unwritable", f"pipeline: {explain(error)}"), file=sys.stderr)
        code = 2
    except Exception as error:
        if not is_sweep:
            raise
        message = f"sweep: its launcher gave up: {type(error).__name__}: {first_line(error)}"  # joblib lost a process
        print(coded("jobs-failed", message), file=sys.stderr)
        code = 1
    if is_sweep:
        code = max(code, end(root()))
        del os.environ[SWEEP_VARIABLE]  # no job of it is left
    sys.exit(max(code, *_exit_codes, 0))


if __name__ == "__main__":
    run_program(main)
