"""Shared fixtures: workspaces in which the real chain runs."""

from __future__ import annotations

import fcntl
import functools
import gc
import json
import os
import random
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import settings

from tests.tiers import ALL_EXAMPLES
from truehalf.io_spec.spec import IoSpec

ROOT = Path(__file__).resolve().parent.parent

# Workers of pytest-xdist, one a core, do not take each other's: set before torch is imported.
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OMP_NUM_THREADS", "1")

# Examples of a property that states no number of its own: `make test` draws half of them, `make test-all` all.
settings.register_profile("sample", max_examples=ALL_EXAMPLES // 2, deadline=None, derandomize=True)
settings.register_profile("all", max_examples=ALL_EXAMPLES, deadline=None)
settings.load_profile("sample")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests on a GPU are skipped where there is none; to ask for them alone there is an error, not a success.

    Workers of pytest-xdist take file by file: the longest files come first, lest one be left at the end, and those that
    wait for a chain which another file makes come after it (a random order is drawn after that).
    """
    if not shutil.which("nvidia-smi"):
        if config.option.markexpr == "gpu":
            raise pytest.UsageError("-m gpu: no NVIDIA GPU here (nvidia-smi is missing), so nothing would be tested")
        for item in items:
            if item.get_closest_marker("gpu"):
                item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU here (nvidia-smi is missing)"))
    if "PYTEST_XDIST_WORKER" in os.environ:
        items.sort(key=_place)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup() -> None:
    """Each test and each fixture begins with the same random numbers, whatever ran before."""
    random.seed(0)
    np.random.seed(0)
    if "torch" in sys.modules:
        sys.modules["torch"].manual_seed(0)


def pytest_collection_finish() -> None:
    """As `collect_garbage_less` of stages/frame.py: what was imported is not looked at again and again."""
    gc.freeze()
    gc.set_threshold(100_000, 50, 50)


def _place(item: pytest.Item) -> int:
    file = item.nodeid.partition("::")[0]
    first = (file == "tests/test_chain.py", file.startswith("tests/pipeline/"), file.count("/") == 1, True)
    return first.index(True)


# The one input of the embedded detectors, as their I/O spec has it.
PICTURES = [
    {
        **{"name": "images", "dtype": "float32", "shape": ["batch", 3, 128, 128], "kind": "images"},
        **{"size": [128, 128], "channels": "RGB", "range": [0, 1], "resize": "stretch", "layout": "NCHW"},
    }
]
SPEC = IoSpec.from_json({"inputs": PICTURES, "class_names": [str(digit) for digit in range(10)]})
# Of 12 verification samples one box near an IoU of 0.95 moves average precision by more than its gate allows, and CPUs
# differ in which one it is; of 32 the drop is a fifth of the gate. verify takes as long for both.
FEWER_SAMPLES = {
    "calibration_samples: 64": "calibration_samples: 4",
    "verification_samples: 500": "verification_samples: 32",
}


def make_workspace(folder: Path) -> Path:
    """A copy of the project's files (committed or not) as a git repository of its own, with fewer samples.

    What nobody writes into, git's objects, DVC's cache and the weights, are hard links to one copy of the session.
    """
    shutil.copytree(_template(), folder, copy_function=_linked_or_copied)
    return folder


def _linked_or_copied(source: str, target: str) -> None:
    if "/.git/objects/" in source or "/.dvc/cache/files/" in source or source.endswith(".safetensors"):
        os.link(source, target)
    else:
        shutil.copy2(source, target)


_FOLDERS: list[tempfile.TemporaryDirectory[str]] = []  # deleted when the process ends


@functools.cache
def _template() -> Path:
    _FOLDERS.append(tempfile.TemporaryDirectory(prefix="truehalf-workspace-"))
    folder = Path(_FOLDERS[-1].name) / "workspace"
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    for name in listed.stdout.splitlines():
        source = ROOT / name
        if source.is_file() and name != "dvc.lock":
            target = folder / name
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(source, target)
    digits = folder / "conf/data/digits.yaml"
    for shipped, fewer in FEWER_SAMPLES.items():
        assert shipped in digits.read_text()
        digits.write_text(digits.read_text().replace(shipped, fewer))
    git = ["git", "-c", "user.name=test", "-c", "user.email=test@example.invalid"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "a workspace"]):
        subprocess.run([*git, *command], cwd=folder, check=True)
    return folder


def in_workspace(folder: Path, *command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command in a workspace with this environment's python first on the path."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    environment |= options.pop("env", {})
    return subprocess.run(command, cwd=folder, env=environment, text=True, **({"capture_output": True} | options))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return make_workspace(tmp_path / "workspace")


SWEEP = "python -m pipeline -m precision=fp32,fp16 decoder=dfine,rtdetrv2"  # the README's
Run = tuple[Path, subprocess.CompletedProcess[str]]


@pytest.fixture(scope="session")
def chain(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A workspace in which one run of the embedded detector has ended, and what it printed. To be read only."""
    return _ran_once(tmp_path_factory, "chain", "python -m pipeline")


@pytest.fixture(scope="session")
def swept(tmp_path_factory: pytest.TempPathFactory) -> Run:
    """A workspace in which the sweep of four has run, and what it printed. To be read only."""
    return _ran_once(tmp_path_factory, "swept", f"{SWEEP} --verbose")


def _ran_once(factory: pytest.TempPathFactory, name: str, command: str) -> Run:
    """A command in a workspace, run by the first process that needs it; those beside it wait for that one."""
    base = factory.getbasetemp()
    folder = (base.parent if "PYTEST_XDIST_WORKER" in os.environ else base) / name
    folder.mkdir(exist_ok=True)
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        result = folder / "result.json"
        if not result.exists():
            done = in_workspace(make_workspace(folder / "workspace"), *command.split())
            result.write_text(json.dumps([done.args, done.returncode, done.stdout, done.stderr]))
    return folder / "workspace", subprocess.CompletedProcess(*json.loads(result.read_text()))


@pytest.fixture
def after_chain(chain: Run, tmp_path: Path) -> Path:
    """A workspace of the test's own in which that run has ended, DVC's cache and MLflow's runs included."""
    source, done = chain
    assert done.returncode == 0, done.stdout[-3000:] + done.stderr[-3000:]
    workspace = tmp_path / "workspace"
    shutil.copytree(source, workspace, symlinks=True, copy_function=_linked_or_copied)
    with sqlite3.connect(workspace / "mlflow.db") as database:  # it has the place of its artifacts, not one beside it
        for table, column in (("experiments", "artifact_location"), ("runs", "artifact_uri")):
            database.execute(f"update {table} set {column} = replace({column}, ?, ?)", (str(source), str(workspace)))
    return workspace
