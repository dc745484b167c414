"""Launchers of Hydra's plugins, when a process of theirs dies: the sweep ends with its table, whatever was lost.

joblib gives up every job that has not ended: that becomes a line, not a traceback. submitit asks its jobs in turn and
raises at the first that was lost, while others still run: here it goes on to the next, and notes which was lost.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import wraps
from typing import Any

from hydra.core.utils import JobReturn, JobStatus
from hydra.errors import CompactHydraException
from hydra.utils import get_class

from pipeline.sweep.sweep import Sweep
from pipeline.tracking.redact import redact_credentials
from truehalf.codes import coded


def patch_launcher(target: str, sweep: Sweep, jobs: list[list[str]]) -> None:
    """Have a launcher tell of a lost process so.

    Args:
        target: the launcher's class, dotted.
        sweep: where a lost job is noted.
        jobs: gets the overrides of each job that is launched.
    """
    launcher: Any = get_class(target)
    launch = launcher.launch
    if "submitit" in target:
        _ask_all(sweep)

    @wraps(launch)
    def guarded(self: Any, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Any:
        jobs.extend(map(list, job_overrides))
        try:
            return launch(self, job_overrides, initial_job_idx=initial_job_idx)
        except Exception as error:
            # Hydra prints such an error without a traceback, and with one where HYDRA_FULL_ERROR=1.
            message = f"sweep: {launcher.__name__} gave up: {type(error).__name__}: {redact_credentials(str(error))}"
            raise CompactHydraException(coded("launcher-failed", message)) from error

    launcher.launch = guarded


def _ask_all(sweep: Sweep) -> None:
    from submitit.core.core import Job
    from submitit.core.utils import FailedJobError, UncompletedJobError

    jobs: Any = Job
    original = jobs.results

    def results(job: Any) -> list[Any]:
        try:
            return list(original(job))
        except (FailedJobError, UncompletedJobError) as error:
            overrides, _, number, *_ = job.submission().args
            sweep.note_lost(number, list(overrides), _reason(job, error))
            return [JobReturn(overrides=overrides, status=JobStatus.COMPLETED)]

    jobs.results = results


def _reason(job: Any, error: Exception) -> str:
    """Slurm's state (TIMEOUT, PREEMPTED, OUT_OF_MEMORY, NODE_FAIL, ...) where there is no result, else the error."""
    if job.paths.result_pickle.exists():
        reason = redact_credentials(str(error)).strip(" \n-").rpartition("\n")[2]
    else:
        reason = f"ended without a result (state {job.state})"
    return f"submitit: job {job.job_id}: {reason}; see {job.paths.stderr}"
