"""Sweeps: jobs one after another or side by side, the table at the end, folders of jobs."""

import fcntl
import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser

from pipeline.entry import effective_values
from pipeline.run_record import Run
from pipeline.sweep import _FOLDERS, _LOCK, JobResult, begin, end, job_folder, note
from pipeline.workspace import SWEEP_VARIABLE
from tests.configurations import composed
from tests.conftest import ROOT, in_workspace
from tests.messages import expect
from tests.pipeline.small_project import Ran, git, line_with, make, make_chain
from truehalf.models.configuration import validated

JOBLIB = ("hydra/launcher=joblib", "hydra.launcher.n_jobs=2")


def results(project: Path) -> list[dict]:
    found = [json.loads(path.read_text()) for path in project.glob("runs/.sweeps/*/*.json")]
    return sorted(found, key=lambda result: result["number"])


@pytest.mark.parametrize("launcher", [(), JOBLIB])
def test_jobs_are_collected_and_the_table_says_which_failed(tmp_path: Path, launcher: tuple[str, ...]) -> None:
    project, ran = make_chain(tmp_path / "project", tracked=True), Ran(tmp_path / "ran")
    (project / "edited").write_text("not committed")
    before = (project / "params.yaml").read_bytes()
    told = ("precision.data_max=1,2", "verify.batch=0,2", *launcher)
    done = in_workspace(project, "python", "-m", "pipeline", "-m", *told, env={"RAN": str(ran.path)})
    said = done.stdout + done.stderr
    assert done.returncode == 2 and "Traceback" not in said, said
    assert [result["exit_code"] for result in results(project)] == [2, 0, 2, 0], said
    expect(line_with("jobs-failed", done.stderr), None, "2 of 4", "#0", "#2")
    assert {*ran.names()} == {"common-0", "own-1", "own-2"}
    names = {result["name"] for result in results(project) if result["exit_code"] == 0}
    kept = {path.parent.name: path for path in (project / "runs").glob("*/params.yaml")}
    assert kept.keys() == names
    assert {yaml.safe_load(path.read_text())["precision"]["data_max"] for path in kept.values()} == {1.0, 2.0}
    if launcher:
        assert (project / "params.yaml").read_bytes() == before and not (project / "artifacts").exists()
        assert not list((project / _FOLDERS).iterdir())
    ran.forget()
    again = in_workspace(project, "python", "-m", "pipeline", "-m", *told, env={"RAN": str(ran.path)})
    assert again.returncode == 2 and not ran.names(), "all comes from DVC's cache"


@pytest.mark.parametrize("wrong", [("decoder=dfine,nobody",), ("precison=fp32,fp16",), ("hydra.launcher.njobs=2",)])
def test_a_sweep_that_hydra_refuses_is_one_sentence(tmp_path: Path, wrong: tuple[str, ...]) -> None:
    project = make_chain(tmp_path / "project")
    done = in_workspace(project, "python", "-m", "pipeline", "-m", "hydra/launcher=joblib", *wrong)
    assert done.returncode == 2 and len(done.stderr.splitlines()) == 1 and not done.stdout, done.stderr


def test_where_runs_is_no_folder_it_says_so(tmp_path: Path) -> None:
    workspace = make_chain(tmp_path / "workspace")
    (workspace / "runs").touch()
    done = in_workspace(workspace, "python", "-m", "pipeline", "-m", "seed=1,2")
    assert done.returncode == 2 and "Traceback" not in done.stdout + done.stderr
    expect(line_with("file-unwritable", done.stderr), None, "runs")


def test_the_exit_code_is_the_largest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SWEEP_VARIABLE, "")
    begin(tmp_path, ["-m", "a=1,2"])
    assert end(tmp_path) == 0
    for number, code in enumerate((0, 2, 1)):
        note(tmp_path, JobResult(number, [f"a={number}"], "x", code))
    assert end(tmp_path) == 2


def test_the_nightly_sweep_is_eight_runs() -> None:
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        config = compose("config", overrides=["experiment=nightly"], return_hydra_config=True)
        told = [f"{key}={value}" for key, value in config.hydra.sweeper.params.items()]
        jobs = BasicSweeper.split_arguments(OverridesParser.create().parse_overrides(told), None)[0]
    runs = [effective_values(validated(values)) for values in (composed(*overrides) for overrides in jobs)]
    points = [(each["decoder"]["name"], each["precision"]["dtype"], each["precision"]["data_max"]) for each in runs]
    assert len(jobs) == 12 and list(dict.fromkeys(points)) == [
        (decoder, *precision)
        for decoder in ("dfine", "rtdetrv2")
        for precision in (("fp32", None), ("fp16", 128.0), ("fp16", 512.0), ("fp16", None))
    ]
    assert len({Run(Path(), each).slug for each in runs}) == 8


# --- folders of jobs --------------------------------------------------------------------------------------------------


def test_a_job_has_the_files_as_they_are_and_the_cache_of_the_project(tmp_path: Path) -> None:
    project = make(tmp_path / "project")
    (project / "work.py").write_text("changed = True\n")
    (project / "new.py").write_text("new = True\n")
    (project / ".dvc/config.local").write_text("[cache]\n    dir = ../../cache\n['remote \"far\"']\n    key = k%y\n")
    with pytest.raises(RuntimeError), job_folder(project, "one", {}) as place:
        (project / "work.py").write_text("changed again, meanwhile\n")
        assert (place / "work.py").read_text() == "changed = True\n" and (place / "new.py").exists()
        assert (place / ".dvc/config.local").stat().st_mode & 0o077 == 0
        assert "key = k%y" in (place / ".dvc/config.local").read_text()
        asked = subprocess.run([sys.executable, "-m", "dvc", "cache", "dir"], cwd=place, capture_output=True, text=True)
        assert Path(asked.stdout.strip()).resolve() == tmp_path / "cache"
        assert not git(project, "status", "--porcelain", "--", ".dvc")
        raise RuntimeError
    assert not place.exists()


def test_what_the_configuration_names_comes_along(tmp_path: Path) -> None:
    project = make(tmp_path / "project")
    for name in ("ignored/pictures/1.png", "model.pt", "ignored/fp32.onnx", "ignored/fp32.onnx.data", "pics/a.pt"):
        (project / name).parent.mkdir(parents=True, exist_ok=True)
        (project / name).write_text(name)
    (project / "pics/labels.json").write_text("listed by git")
    (tmp_path / "sets").mkdir()
    (project / "linked").symlink_to("../sets")
    values = {
        "data": {"folder": "ignored/pictures", "file": "pics", "seed": 1},
        "model": {"checkpoint": "ignored/fp32.onnx", "names": ["model.pt", "", ".", "../outside", "missing.pt"]},
        "tracking": {"experiment": "ignored"},
    }
    with job_folder(project, "one", values) as place:
        assert (place / "ignored/pictures").is_symlink() and (place / "ignored/pictures/1.png").exists()
        assert (place / "model.pt").is_symlink() and (place / "pics/a.pt").is_symlink()
        assert not (place / "ignored").is_symlink() and not (place / "ignored/fp32.onnx.data").is_symlink()
        assert (place / "pics/labels.json").read_text() == "listed by git"
        assert (place / "linked").resolve() == tmp_path / "sets"


def test_what_killed_jobs_left_is_removed_and_what_works_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SWEEP_VARIABLE, "")
    for name in ("dead", "alive"):
        (tmp_path / _FOLDERS / name).mkdir(parents=True)
        (tmp_path / _FOLDERS / name / _LOCK).touch()
    with (tmp_path / _FOLDERS / "alive" / _LOCK).open() as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        begin(tmp_path, [])
    assert [path.name for path in (tmp_path / _FOLDERS).iterdir()] == ["alive"]
