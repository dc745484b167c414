"""Counting what ran, and how many different inputs there were."""

import json
import os
import subprocess
import sys
from pathlib import Path

import yaml

from tests.conftest import ROOT
from tests.measuring.observed import ALWAYS, OBSERVER, distinct, executed, read


def lock(path: Path, data_max: int, slim: str = "1", trace: str = "python -m stages.trace") -> Path:
    path.parent.mkdir(parents=True)
    stages = {
        "inputs": {"cmd": "python -m stages.inputs", "params": {"params.yaml": {"data_max": data_max}}},
        "trace": {"cmd": trace, "deps": [{"path": "a", "md5": "1", "size": 3}]},
        "fp16": {
            "cmd": "python -m stages.fp16",
            "deps": [{"path": "artifacts/slim", "md5": slim}],
            "params": {"params.yaml": {"precision": {"data_max": data_max}}},
        },
    }
    path.write_text(yaml.safe_dump({"schema": "2.0", "stages": stages}))
    return path


def test_inputs_are_distinct_by_command_dependencies_and_params(tmp_path: Path) -> None:
    locks = [
        lock(tmp_path / "a/dvc.lock", 128),
        lock(tmp_path / "b/dvc.lock", 128),
        lock(tmp_path / "c/dvc.lock", 512),
        lock(tmp_path / "d/dvc.lock", 512, slim="2"),
        lock(tmp_path / "e/dvc.lock", 512, slim="2", trace="python -m stages.other"),
    ]
    assert distinct(locks) == {"trace": 2, "fp16": 3}, "stages that run always are not counted"


def test_stages_that_run_always_are_those_of_dvc_yaml() -> None:
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    assert {name for name, stage in stages.items() if stage.get("always_changed")} == set(ALWAYS)


def test_the_observer_notes_processes_that_end_well_and_that_fail(tmp_path: Path) -> None:
    notes = tmp_path / "notes"
    environment = os.environ | {"PYTHONPATH": f"{OBSERVER}{os.pathsep}{ROOT}", "OBSERVED_PROCESSES": str(notes)}
    for arguments in (["-m", "stages.probe", "--help"], ["-m", "stages.fp16", "--nonsense"], ["-c", "pass"]):
        subprocess.run([sys.executable, *arguments], cwd=tmp_path, env=environment, capture_output=True)
    lines = notes.read_text().splitlines()
    assert len(lines) == 3 and json.loads(lines[2])["command"] == ["-c", "pass"]
    processes = read(lines)
    assert executed(processes) == {"probe": 1, "fp16": 1}
    assert all(process.folder == str(tmp_path) and process.wall_s > 0 for process in processes)


def test_without_being_asked_the_observer_does_nothing(tmp_path: Path) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "OBSERVED_PROCESSES"}
    said = "import sys; sys.exit('resource' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", said], cwd=tmp_path, env=environment | {"PYTHONPATH": str(OBSERVER)})
    assert done.returncode == 0 and not list(tmp_path.iterdir())
