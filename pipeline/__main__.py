"""python -m pipeline [group=choice ...] [key=value ...]: compose, validate, write params.yaml, `dvc repro`."""

from __future__ import annotations

import sys
from typing import Any

import hydra
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from conf.files import missing_files
from conf.schema import CONF
from conf.validate import ConfigErrors
from pipeline.compose import opened, resolved
from pipeline.run import run
from pipeline.workspace import root
from stages.configuration import validated

_exit_codes: list[int] = []


@hydra.main(config_path=str(CONF), config_name="config", version_base="1.3")
def job(config: DictConfig) -> None:
    """One run. Failures are noted, not raised, so that a sweep goes on to its next job."""
    try:
        values = resolved(config)
        _check(values)
    except (ConfigErrors, OmegaConfBaseException) as error:
        print(error, file=sys.stderr)
        _exit_codes.append(2)
        return
    _exit_codes.append(run(root(), values))
    if _exit_codes[-1] == 130:
        raise KeyboardInterrupt  # ends a sweep, too


def _check(values: dict[str, Any]) -> None:
    """Raise ConfigErrors with all that is wrong, files that are not there included."""
    errors: list[str] = []
    try:
        validated(values)
    except ConfigErrors as error:
        errors += error.errors
    keys = {error.partition(":")[0] for error in errors}
    errors += [error for error in missing_files(values, root()) if error.partition(":")[0] not in keys]
    if errors:
        raise ConfigErrors(errors)


def main() -> None:
    sys.argv[1:] = opened(sys.argv[1:])
    try:
        job()
    except KeyboardInterrupt:
        sys.exit(130)
    if len(_exit_codes) > 1 and any(_exit_codes):
        failed = [str(number) for number, code in enumerate(_exit_codes) if code]
        print(f"sweep: {len(failed)} of {len(_exit_codes)} jobs failed: #{', #'.join(failed)}", file=sys.stderr)
    sys.exit(max(_exit_codes, default=0))


if __name__ == "__main__":
    main()
