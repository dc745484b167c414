"""python -m pipeline [group=choice ...] [key=value ...]: compose, validate, write params.yaml, `dvc repro`."""

from __future__ import annotations

import os
import sys

import hydra
from hydra.core.hydra_config import HydraConfig
from omegaconf import DictConfig, OmegaConf

from pipeline.compose import mistyped, opened
from pipeline.help import all_keys, page
from pipeline.job import execute
from pipeline.sweep import ray_launcher
from pipeline.sweep.hook import finish, push
from pipeline.workspace import CONF, VERBOSE_VARIABLE
from truehalf.codes import coded
from truehalf.report.terminal import run_program, show, terminal_width

VERBOSE = "--verbose"  # Hydra does not know it
_HELP = {"--help-all": all_keys, "--help": page, "-h": page}
_exit_codes: list[int] = []
_begun: list[int] = []  # numbers of jobs


@hydra.main(config_path=str(CONF), config_name="config", version_base="1.3")
def job(config: DictConfig) -> None:
    """One run. Failures are noted, not raised, so that a sweep goes on to its next job."""
    hydra = HydraConfig.get()
    number = 0 if OmegaConf.is_missing(hydra.job, "num") else hydra.job.num
    _begun.append(number)
    _exit_codes.append(execute(config, number, list(hydra.overrides.task)))
    if _exit_codes[-1] == 130:
        raise KeyboardInterrupt  # ends a sweep, too


def main() -> None:
    if errors := mistyped(sys.argv[1:]):
        print("\n".join(errors), file=sys.stderr)
        sys.exit(2)
    if pages := [page for name, page in _HELP.items() if name in sys.argv[1:]]:
        show(pages[0](terminal_width()))
        sys.exit(0)
    if VERBOSE in sys.argv[1:]:
        os.environ[VERBOSE_VARIABLE] = "1"
    sys.argv[1:] = opened([argument for argument in sys.argv[1:] if argument != VERBOSE])
    ray_launcher.register()
    try:
        job()
    except KeyboardInterrupt:
        finish()
        sys.exit(130)
    except SystemExit as stop:  # Hydra has printed why; what had ended stands in the sweep's table all the same
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
        # Where no job has begun it is the command line that is wrong; in a sweep a launcher may have given up, too.
        if code and not _begun and not {"-m", "--multirun"}.intersection(sys.argv[1:]):
            print(coded("bad-syntax", f"configuration: {' '.join(sys.argv[1:])}: see above"), file=sys.stderr)
            code = 2
        _exit_codes.append(code)
    code = max(finish(), *_exit_codes, 0)
    push()
    sys.exit(code)


if __name__ == "__main__":
    run_program(main)
