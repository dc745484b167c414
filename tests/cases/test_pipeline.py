"""What people do between two runs of the pipeline."""

from __future__ import annotations

from pathlib import Path

from tests.conftest import in_workspace


def test_an_edited_configuration_is_not_ignored_by_dvc_repro(workspace: Path) -> None:
    """dvc 10750: `dvc repro` does not compose conf/."""
    assert in_workspace(workspace, "python", "-m", "pipeline", "--cfg", "job").returncode == 0
    file = workspace / "conf" / "precision" / "fp16.yaml"
    assert "data_max: null" in file.read_text()
    file.write_text(file.read_text().replace("data_max: null", "data_max: 100.0"))
    done = in_workspace(workspace, "dvc", "repro", "-s", "inputs")
    assert done.returncode != 0
    assert "conf/precision/fp16.yaml" in done.stdout + done.stderr
