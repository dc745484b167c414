"""dvc.yaml: a stage re-runs when something changes that it reads, and not for anything else."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.configurations import composed
from tests.conftest import ROOT
from tests.in_process import run_stages
from truehalf.provenance.code import code_of

STAGES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
CACHED = [name for name, stage in STAGES.items() if not stage.get("always_changed")]
# How the code names what it reads of an earlier stage: stage.artifact("trace", "io_spec.json"), without a file for
# model.onnx; or as a path from the workspace.
ARTIFACT = re.compile(r'\.artifact\(\s*"(\w+)"(?:,\s*"([\w.]+)")?\s*\)')
PLACE = re.compile(r'artifacts / "(\w+)" / "([\w.]+)"')
RUN = (f"model.checkpoint={ROOT}/examples/digits/weights/dfine.safetensors", "data.verification_samples=4")
FROM_TRACE = {"trace", "reference"}
FROM_SAMPLES = {"slim", "calibrate", "fp16", "reference", "verify", "engine"}
# What each change begins with; all that follows from it DVC finds by the files that change.
BEGINS = [
    ("precision.op_block_list=[Softmax]", {"fp16", "cast_cleanup"}),
    ("precision.node_block_list=[head]", {"fp16", "cast_cleanup", "verify"}),
    ("precision.method=half", {"fp16", "cast_cleanup"}),
    ("verify=smoke", {"verify", "engine"}),
    ("verify.gates.box_shift_max=0.5", {"verify", "engine"}),
    ("verify.batch=5", {"reference", "verify", "engine"}),
    ("engine.latency.runs=99", {"engine"}),
    ("target.compute_capability=[sm86]", {"engine"}),
    ("tracking.experiment=mine", set()),
    ("model.name=mine", set()),
    ("decoder=rtdetrv2", FROM_TRACE),
    ("seed=1", FROM_TRACE),
    ("trace.atol=0.1", {"trace"}),
    ("slim.atol=0.1", {"slim"}),
    ("data.seed=1", {"trace"} | FROM_SAMPLES),
    ("data.verification_samples=5", {"reference", "verify", "engine"}),
]


def stages_that_read(changed: set[str], kind: str) -> set[str]:
    """Stages that list one of these keys under `params`, or one of these files under `deps`."""
    return {name for name in CACHED if not changed.isdisjoint(STAGES[name].get(kind, []))}


def written(folder: Path) -> dict[str, bytes]:
    return {f"artifacts/inputs/{file.relative_to(folder)}": file.read_bytes() for file in folder.rglob("*.json")}


def code(name: str) -> list[Path]:
    return code_of(STAGES[name]["cmd"])


def keys_of(values: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every key by its dotted name, sections among them."""
    for key, value in values.items():
        yield f"{prefix}{key}", value
        if isinstance(value, dict):
            yield from keys_of(value, f"{prefix}{key}.")


@pytest.fixture(scope="module")
def before(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("before")
    run_stages(folder, *RUN, stages=("inputs",))
    return written(folder / "artifacts/inputs")


@pytest.mark.parametrize(("change", "stages"), BEGINS, ids=[change for change, _ in BEGINS])
def test_a_change_begins_with_the_stages_that_read_it(
    change: str, stages: set[str], before: dict[str, bytes], tmp_path: Path
) -> None:
    run_stages(tmp_path, *RUN, change, stages=("inputs",))
    after, old = written(tmp_path / "artifacts/inputs"), dict(keys_of(composed(*RUN)))
    files = {name for name in before.keys() | after.keys() if before.get(name) != after.get(name)}
    keys = {key for key, value in keys_of(composed(*RUN, change)) if old.get(key) != value}
    assert stages_that_read(files, "deps") | stages_that_read(keys, "params") == stages


def test_two_stages_run_every_time() -> None:
    assert set(STAGES) - set(CACHED) == {"inputs", "finish"} and list(STAGES)[-1] == "gate"


@pytest.mark.parametrize("name", CACHED)
def test_deps_are_the_code_as_one_file(name: str) -> None:
    deps = STAGES[name]["deps"]
    assert f"artifacts/inputs/code/{name}.json" in deps, f"{name}: an edit of its code would re-run nothing"
    assert all(dep.startswith(("artifacts/", "reports/")) for dep in deps)


@pytest.mark.parametrize("name", CACHED)
def test_deps_cover_the_files_of_earlier_stages(name: str) -> None:
    text = "".join(path.read_text() for path in code(name) if path.name in (f"{name}.py", f"{name}_configured.py"))
    read = {f"artifacts/{stage}/{file or 'model.onnx'}" for stage, file in ARTIFACT.findall(text) + PLACE.findall(text)}
    missing = {each for each in read if not any(Path(each).is_relative_to(dep) for dep in STAGES[name].get("deps", []))}
    assert not missing, f"{name}: it reads them, and they may change without it"


def test_whatever_opens_the_model_depends_on_all_that_opening_reads() -> None:
    opening = [name for name in CACHED if ROOT / "truehalf/models/source.py" in code(name)]
    assert opening == ["trace", "fp16", "reference"]
    inputs = {"artifacts/inputs/model.json", "artifacts/inputs/trace.json"}
    assert inputs <= set(STAGES["trace"]["deps"]) and inputs <= set(STAGES["reference"]["deps"])
    assert "artifacts/inputs/retrace.json" in STAGES["fp16"]["deps"], "which holds both where they are read"


@pytest.mark.parametrize("name", STAGES)
def test_params_are_few_and_exist(name: str) -> None:
    params = STAGES[name].get("params", [])
    assert len(params) <= 5 and not set(params) - {key for key, _ in keys_of(composed())}


def test_cached_outs_are_not_persistent() -> None:
    """A persistent out would take its stage out of DVC's run-cache."""
    for name, stage in STAGES.items():
        for out in [*stage.get("outs", []), *stage.get("metrics", [])]:
            assert isinstance(out, str) or next(iter(out.values())).get("cache") is False, name
