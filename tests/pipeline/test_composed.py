"""The section of params.yaml that says what a configuration was composed from."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import yaml

from tests.conftest import ROOT
from truehalf.provenance.composed import digest_of_file

JOB = f"""
import json
from pathlib import Path
import hydra
from pipeline.composed import composed_section

@hydra.main(config_path={str(ROOT / "conf")!r}, config_name="config", version_base="1.3")
def job(config):
    print(json.dumps(composed_section(Path({str(ROOT)!r}))))

job()
"""


def section(folder: Path, *arguments: str) -> list[dict]:  # type: ignore[type-arg]
    (folder / "job.py").write_text(JOB)
    command = [sys.executable, str(folder / "job.py"), *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, env={"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_it_holds_choices_overrides_and_the_files_that_were_read(tmp_path: Path) -> None:
    (tmp_path / "elsewhere/model").mkdir(parents=True)
    mine = tmp_path / "elsewhere/model/mine.yaml"
    mine.write_text("defaults: [onnx, _self_]\nname: mine\n")
    told = ["model=mine", "verify=smoke", "seed=3"]
    (found,) = section(tmp_path, "--config-dir", str(tmp_path / "elsewhere"), *told)
    assert found["overrides"] == told
    assert (found["choices"]["model"], found["choices"]["verify"]) == ("mine", "smoke")
    read = {
        str(mine),
        "conf/model/onnx.yaml",
        "conf/verify/smoke.yaml",
        "conf/verify/detection.yaml",
        "conf/config.yaml",
    }
    assert read <= set(found["files"]) and not any("hydra" in name or "nano" in name for name in found["files"])
    assert all(digest == digest_of_file(ROOT / name) for name, digest in found["files"].items())


def test_each_job_of_a_sweep_has_its_own(tmp_path: Path) -> None:
    found = section(tmp_path, "-m", "precision=fp32,fp16", f"hydra.sweep.dir={tmp_path}/sweep")
    assert [each["choices"]["precision"] for each in found] == ["fp32", "fp16"]


def test_the_committed_params_yaml_holds_it(tmp_path: Path) -> None:
    (found,) = section(tmp_path)
    assert yaml.safe_load((ROOT / "params.yaml").read_text())["composed"] == found
