"""What a wheel holds, read from the configuration of setuptools; tests/test_wheel.py builds one."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from setuptools import find_packages

from tests.conftest import ROOT
from tests.truehalf.conftest import BLOCKED

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
PACKAGES = set(find_packages(str(ROOT), **PROJECT["tool"]["setuptools"]["packages"]["find"]))
DATA = {
    file.relative_to(ROOT).as_posix()
    for pattern in PROJECT["tool"]["setuptools"]["package-data"]["truehalf"]
    for file in (ROOT / "truehalf").glob(pattern)
}


def committed() -> set[str]:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "truehalf"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return {name for name in listed.stdout.splitlines() if (ROOT / name).is_file()}


def test_every_folder_of_code_is_a_package_and_nothing_else_is() -> None:
    folders = {str(Path(name).parent).replace("/", ".") for name in committed() if name.endswith(".py")}
    assert folders == PACKAGES
    assert {name.partition(".")[0] for name in PACKAGES} == {"truehalf"}


def test_every_other_file_is_package_data() -> None:
    assert {name for name in committed() if not name.endswith(".py")} == DATA
    assert {"truehalf/py.typed", "truehalf/report/templates/page.html.j2"} <= DATA


def test_the_command_is_a_function_of_the_package() -> None:
    module, _, name = PROJECT["project"]["scripts"]["truehalf"].partition(":")
    assert module.rpartition(".")[0] in PACKAGES
    __import__(module)
    assert callable(getattr(sys.modules[module], name))


@pytest.mark.parametrize("name", BLOCKED)
def test_what_the_library_does_without_is_blocked_here(name: str) -> None:
    for module in (name, f"{name}.compose"):
        with pytest.raises(ModuleNotFoundError):
            __import__(module)
