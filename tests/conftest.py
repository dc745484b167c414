"""Shared fixtures: a composed configuration, and workspaces in which the real chain runs."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

ROOT = Path(__file__).resolve().parent.parent


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Tests on a GPU are skipped where there is none; to ask for them alone there is an error, not a success."""
    if shutil.which("nvidia-smi"):
        return
    if config.option.markexpr == "gpu":
        raise pytest.UsageError("-m gpu: no NVIDIA GPU here (nvidia-smi is missing), so nothing would be tested")
    for item in items:
        if item.get_closest_marker("gpu"):
            item.add_marker(pytest.mark.skip(reason="no NVIDIA GPU here (nvidia-smi is missing)"))


def composed(*overrides: str) -> dict[str, Any]:
    """conf/ composed with overrides, fully resolved."""
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        values = OmegaConf.to_container(compose("config", overrides=list(overrides)), resolve=True)
    assert isinstance(values, dict)
    return values


# The one input of the embedded detectors, as their I/O spec has it.
PICTURES = [
    {
        **{"name": "images", "dtype": "float32", "shape": ["batch", 3, 128, 128], "kind": "images"},
        **{"size": [128, 128], "channels": "RGB", "range": [0, 1], "resize": "stretch", "layout": "NCHW"},
    }
]
SPEC = {"inputs": PICTURES, "class_names": [str(digit) for digit in range(10)]}
SAMPLES = "samples: {calibration: 64, verification: 500}"
FEWER_SAMPLES = "samples: {calibration: 16, verification: 60}"


def make_workspace(folder: Path) -> Path:
    """A copy of the project's files (committed or not) as a git repository of its own, with fewer samples."""
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
    nano = folder / "conf/model/ltdetr_nano.yaml"
    assert SAMPLES in nano.read_text()
    nano.write_text(nano.read_text().replace(SAMPLES, FEWER_SAMPLES))
    git = ["git", "-c", "user.name=test", "-c", "user.email=test@example.invalid"]
    for command in (["init", "-q"], ["add", "-A"], ["commit", "-q", "-m", "a workspace"]):
        subprocess.run([*git, *command], cwd=folder, check=True)
    return folder


def in_workspace(folder: Path, *command: str, **options: Any) -> subprocess.CompletedProcess[str]:
    """Run a command in a workspace with this environment's python first on the path."""
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    environment |= options.pop("env", {})
    return subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, **options)


def write_params(folder: Path, *overrides: str) -> None:
    """params.yaml of a scratch workspace, without the pipeline."""
    (folder / "params.yaml").write_text(yaml.safe_dump(composed(*overrides)))


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return make_workspace(tmp_path / "workspace")


@pytest.fixture(scope="session")
def swept(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess[str]]:
    """A workspace in which the sweep of four has run, and what it printed.

    The tests that share it run other configurations in it, too; what one of them made, the next finds in DVC's cache.
    """
    workspace = make_workspace(tmp_path_factory.mktemp("chain") / "workspace")
    sweep = ("-m", "precision=fp32,fp16", "decoder=rtdetrv2,dfine")
    return workspace, in_workspace(workspace, "python", "-m", "pipeline", *sweep)
