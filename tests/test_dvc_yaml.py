"""dvc.yaml: each stage depends on all the code it runs, and on keys that exist."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.configurations import composed
from tests.conftest import ROOT
from truehalf.provenance.code import code_of, module_of

STAGES: dict[str, dict[str, Any]] = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
CACHED = [name for name, stage in STAGES.items() if not stage.get("always_changed")]
# How the code names what it reads of an earlier stage: stage.artifact("trace", "io_spec.json"), without a file for
# model.onnx; or as a path from the workspace.
ARTIFACT = re.compile(r'\.artifact\(\s*"(\w+)"(?:,\s*"([\w.]+)")?\s*\)')
PLACE = re.compile(r'"artifacts" / "(\w+)" / "([\w.]+)"')


def code(name: str) -> list[Path]:
    return code_of(module_of(STAGES[name]["cmd"]))


@pytest.mark.parametrize("name", CACHED)
def test_deps_are_the_code_as_one_file(name: str) -> None:
    deps = STAGES[name]["deps"]
    assert f"artifacts/inputs/code/{name}.json" in deps, f"{name}: an edit of its code would re-run nothing"
    assert all(dep.startswith(("artifacts/", "reports/")) for dep in deps)


@pytest.mark.parametrize("name", CACHED)
def test_deps_cover_the_files_of_earlier_stages(name: str) -> None:
    text = module_of(STAGES[name]["cmd"]).read_text()
    read = {f"artifacts/{stage}/{file or 'model.onnx'}" for stage, file in ARTIFACT.findall(text) + PLACE.findall(text)}
    missing = {each for each in read if not any(Path(each).is_relative_to(dep) for dep in STAGES[name].get("deps", []))}
    assert not missing, f"{name}: it reads them, and they may change without it"


def test_whatever_opens_the_model_depends_on_all_that_opening_reads() -> None:
    opening = [name for name in STAGES if ROOT / "truehalf/models/source.py" in code(name)]
    assert opening == ["trace", "fp16", "reference"]
    for name in opening:
        stage, keys = STAGES[name], set(STAGES["trace"]["params"])
        missing = {key for key in keys if key.startswith(("model.", "decoder.", "data.")) or key == "seed"}
        missing |= {"trace.batch"}  # the batch in which a module of the user's is asked for its outputs
        missing -= {key for key in missing for listed in stage["params"] if f"{key}.".startswith(f"{listed}.")}
        assert not missing, name
        assert {"artifacts/inputs/weights.json", "artifacts/inputs/trace.json"} <= set(stage["deps"]), name


@pytest.mark.parametrize("name", [name for name in CACHED if name != "report"])  # which reads them as a mapping
def test_params_are_read(name: str) -> None:
    text = "".join(path.read_text() for path in code(name))
    words = {key: key.rpartition(".")[2].replace("fp32_pins", "pins") for key in STAGES[name]["params"]}  # Config.pins
    idle = [key for key, word in words.items() if not re.search(rf"\.{word}\b", text)]
    assert not idle, f"{name}: lists keys that its code names nowhere"


def test_whatever_makes_samples_depends_on_all_that_says_which() -> None:
    which = {f"data.{key}" for key in composed()["data"] if not key.endswith("_samples")}
    for name, stage in STAGES.items():
        if "data.source" in stage.get("params", []):
            assert not which - set(stage["params"]), name


@pytest.mark.parametrize("name", STAGES)
def test_params_exist(name: str) -> None:
    for key in STAGES[name].get("params", []):
        value: Any = composed()
        for part in key.split("."):
            assert part in value, f"{name}: {key}"
            value = value[part]


def test_calibrate_reads_no_precision_key_and_trace_none_of_what_follows() -> None:
    lints = {"engine.plugins", "engine.plugin_ops"}  # which operators lint knows
    for name in ("trace", "slim", "calibrate"):
        keys = set(STAGES[name]["params"]) - (lints if name == "trace" else set())
        assert not [key for key in keys if key.startswith(("precision", "verify", "engine"))]


def test_the_reference_reads_no_precision_key() -> None:
    """A run with another precision, block list or gate takes the FP32 outputs that are there."""
    stage = STAGES["reference"]
    read = [key for key in stage["params"] if key.startswith(("precision", "verify", "engine"))]
    assert read == ["verify.batch", "verify.memory_gb", "verify.skip_corrupt"]
    assert not [dep for dep in stage["deps"] if "fp16" in dep or "cast_cleanup" in dep]


def test_a_file_of_the_same_bytes_is_not_verified_again() -> None:
    """An option that changes no file, such as a block list that matches nothing, changes nothing that verify reads."""
    read = [key for key in STAGES["verify"]["params"] if not key.startswith(("data.", "verify"))]
    assert read == ["model.image_size", "precision.dtype", "precision.node_block_list", "engine.profiles"]


def test_the_fp32_files_are_verified_without_a_precision_key() -> None:
    stage = STAGES["verify_fp32"]
    assert not [key for key in stage["params"] if key.startswith(("precision", "engine"))]
    assert not [dep for dep in stage["deps"] if dep.split("/")[1] in ("calibrate", "fp16", "cast_cleanup")]


def test_cached_outs_are_not_persistent() -> None:
    """A persistent out would take its stage out of DVC's run-cache."""
    for name, stage in STAGES.items():
        for out in [*stage.get("outs", []), *stage.get("metrics", [])]:
            assert isinstance(out, str) or next(iter(out.values())).get("cache") is False, name
