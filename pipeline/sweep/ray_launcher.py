"""Hydra launcher on Ray's tasks, one for each job of a sweep.

hydra-ray-launcher (1.2.2) was not taken: it holds cloudpickle below 3, pickles the application into each task, and
needs the project's files on every node. Here a task is an archive of the sweep's snapshot and a command line.
"""

from __future__ import annotations

import socket
import sys
from collections.abc import Sequence
from types import ModuleType
from typing import Any

from hydra.core.plugins import Plugins
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig, open_dict
from omegaconf.errors import OmegaConfBaseException

from pipeline.compose import resolved
from pipeline.forms import Params

_PLUGINS = "hydra_plugins.truehalf"  # Hydra makes launchers only of the package hydra_plugins, registered ones, too
_REACHED_S = 10


class RayLauncher(Launcher):
    """See conf/hydra/launcher/ray.yaml for the options."""

    __module__ = _PLUGINS

    def __init__(
        self, address: str | None, cpus_per_job: float, gpus_per_job: float, retries: int, share_cache: bool
    ) -> None:
        self.address, self.retries, self.share_cache = address, retries, share_cache
        self.resources = {"num_cpus": cpus_per_job, "num_gpus": gpus_per_job}

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Workers compose the configuration themselves, from the command line; here it names its files."""
        self.compose, self.base = hydra_context.config_loader.load_sweep_config, config

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        import ray

        from pipeline.sweep import ray_worker
        from pipeline.sweep.remote_jobs import RemoteJobs

        _reach(self.address)
        remote = RemoteJobs.of_this_sweep(self.share_cache)
        ray.cloudpickle.register_pickle_by_value(ray_worker)  # type: ignore[no-untyped-call]
        try:
            ray.init(address=self.address, log_to_driver=False, logging_level="error")  # type: ignore[arg-type]
            archive = ray.put(remote.archive())
            task = ray.remote(**self.resources, max_retries=self.retries)(ray_worker.work)  # type: ignore[call-overload]
            jobs = dict(enumerate(map(list, job_overrides), initial_job_idx))
            waiting: dict[Any, int] = {}
            for number, overrides in jobs.items():
                values = self._values(overrides)
                if not remote.is_another(number, overrides, values):
                    brought = remote.brought(values, ray.put)
                    waiting[task.remote(archive, remote.order(number, overrides), *brought)] = number
            while waiting:
                (ended, *_), _ = ray.wait(list(waiting), num_returns=1)
                number = waiting.pop(ended)
                try:
                    remote.unpack(number, jobs[number], ray.get(ended))
                except ray.exceptions.RayError as error:
                    remote.lost(number, jobs[number], error)
        finally:
            ray.shutdown()
            remote.track()
        return [JobReturn(overrides=overrides, status=JobStatus.COMPLETED) for overrides in job_overrides]

    def _values(self, overrides: list[str]) -> Params:
        """A job's configuration as far as it can be resolved; its worker says what is wrong with it."""
        config = self.compose(self.base, overrides)
        with open_dict(config):
            del config["hydra"]
        try:
            return resolved(config)
        except OmegaConfBaseException:
            return {}


def register() -> None:
    """Tell Hydra of the launcher. Hydra finds a registered class by importing its name once more, so a module of that
    name stands in sys.modules; there is no folder hydra_plugins/.
    """
    Plugins.instance().register(RayLauncher)  # looks for installed plugins first, in a hydra_plugins with folders
    module = ModuleType(_PLUGINS)
    vars(module)["RayLauncher"] = RayLauncher
    sys.modules.setdefault("hydra_plugins", ModuleType("hydra_plugins"))
    sys.modules[_PLUGINS] = module


def _reach(address: str | None) -> None:
    """Raise ConnectionError where nothing answers at host:port: Ray would try for a quarter of an hour."""
    host, _, port = (address or "").removeprefix("ray://").rpartition(":")
    if not host or not port.isdigit():  # auto, or a cluster that it starts
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=_REACHED_S).close()
    except OSError as error:
        raise ConnectionError(f"no Ray cluster at {address} (hydra.launcher.address): {error}") from error
