"""A stage depends on the versions of what it computes with."""

import re
import tomllib
from importlib.metadata import version

import pytest
import yaml

from tests.configurations import composed
from tests.conftest import ROOT
from truehalf.config.validate import validate
from truehalf.provenance import software

# Of pyproject.toml, what configures, runs, draws or logs, and what reads and writes weights as they are.
COMPUTE_NOTHING = {
    *("click", "dvc", "hydra-core", "jinja2", "mlflow", "omegaconf", "pyyaml", "rich"),
    *("ruamel.yaml.clib", "safetensors"),
}


def test_every_package_that_computes_is_looked_at() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras = project["optional-dependencies"]
    listed = [*project["dependencies"], *extras["torch"], *extras["pipeline"]]
    names = {re.split(r"[ ;>=<\[]", each)[0].replace("-gpu", "") for each in listed} - {"truehalf"}
    assert names == {*software.PACKAGES} | COMPUTE_NOTHING
    assert not {*software.PACKAGES} & COMPUTE_NOTHING


def test_versions_are_those_installed_and_say_nothing_of_the_build(monkeypatch: pytest.MonkeyPatch) -> None:
    config = validate(composed())
    found = software.versions(config)
    assert found["onnx"] == version("onnx") and set(found) == {*software.PACKAGES, *software.OF_SOURCE["torch"]}
    assert found["torch"] == version("torch").partition("+")[0] and found["onnxruntime"]
    real = software.importlib.metadata.version

    def of_a_gpu(name: str) -> str:
        if name == "onnxruntime":
            raise software.importlib.metadata.PackageNotFoundError(name)
        return {"torch": "9.9.9+cu128", "onnxruntime-gpu": "8.8.8"}.get(name) or real(name)

    monkeypatch.setattr(software.importlib.metadata, "version", of_a_gpu)
    assert software.installed(["torch", "onnxruntime", "not-there"]) == {
        "torch": "9.9.9",
        "onnxruntime": "8.8.8",
        "not-there": None,
    }


def test_a_source_brings_its_packages() -> None:
    config = validate(composed("model=timm", "data.folder=pictures"))
    assert set(software.versions(config)) - {*software.PACKAGES} == {"timm", "torchvision"}
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    for extra, source in (("lightly", "lightly_train"), ("timm", "torch")):
        packages = software.OF_SOURCE[source]
        assert {re.split("[>=]", each)[0] for each in extras[extra]} == {*packages}, source
    sources = {path.stem for path in (ROOT / "truehalf/models/sources").glob("*.py")}
    assert {*software.OF_SOURCE} <= sources


def test_every_stage_that_computes_depends_on_them() -> None:
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    of = {name for name, stage in stages.items() if "artifacts/inputs/software.json" in stage.get("deps", [])}
    assert of == {"trace", "slim", "calibrate", "fp16", "cast_cleanup", "reference", "verify", "engine"}
