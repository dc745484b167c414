"""What DVC deleted before a stage that then fails comes back, from real DVC's lock and cache."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from stages.frame import restore_outs

DVC = [sys.executable, "-m", "dvc"]
CHAIN = f"""
stages:
  make:
    cmd: {sys.executable} make.py
    deps: [make.py]
    outs: [artifacts/make]
    metrics: [reports/make.json]
"""
MAKE = "from pathlib import Path\nfor f in ('artifacts/make/deep/model.onnx', 'reports/make.json'):\n"
MAKE += "    Path(f).parent.mkdir(parents=True, exist_ok=True); Path(f).write_text('good')\n"


@pytest.fixture(scope="module")
def reproduced(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A project of one stage that DVC has run. To be read only."""
    folder = tmp_path_factory.mktemp("reproduced")
    (folder / "dvc.yaml").write_text(CHAIN)
    (folder / "make.py").write_text(MAKE)
    subprocess.run([*DVC, "init", "-q", "--no-scm"], cwd=folder, check=True)
    (folder / ".dvc/config").write_text("[core]\n    no_scm = True\n    analytics = false\n")
    subprocess.run([*DVC, "repro", "-q"], cwd=folder, check=True)
    return folder


@pytest.fixture
def project(reproduced: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(reproduced, tmp_path / "project", symlinks=True))


def test_dvc_deletes_outs_before_a_failing_stage_and_they_come_back(project: Path) -> None:
    (project / "make.py").write_text("raise SystemExit(1)")
    assert subprocess.run([*DVC, "repro", "-q"], cwd=project, capture_output=True).returncode != 0
    assert not (project / "artifacts/make").exists(), "otherwise this module is not needed"
    assert restore_outs(project, "make") == ["artifacts/make", "reports/make.json"]
    assert (project / "artifacts/make/deep/model.onnx").read_text() == "good"
    assert (project / "reports/make.json").read_text() == "good"
    assert restore_outs(project, "make") == []


def test_what_exists_is_left_alone(project: Path) -> None:
    (project / "reports/make.json").write_text("newer")
    assert restore_outs(project, "make") == []
    assert (project / "reports/make.json").read_text() == "newer"


def test_a_cache_elsewhere_is_found(project: Path) -> None:
    (project / ".dvc/cache").rename(project / "elsewhere")
    subprocess.run([*DVC, "cache", "dir", "--local", str(project / "elsewhere")], cwd=project, check=True)
    (project / "reports/make.json").unlink()
    assert restore_outs(project, "make") == ["reports/make.json"]


def test_without_lock_or_cache_nothing_happens(project: Path, tmp_path_factory: pytest.TempPathFactory) -> None:
    assert restore_outs(tmp_path_factory.mktemp("empty"), "make") == []
    assert restore_outs(project, "no_such_stage") == []
    (project / ".dvc/cache").rename(project / "gone")
    (project / "reports/make.json").unlink()
    assert restore_outs(project, "make") == []
