"""What docs/ takes from the code is current, and what it names exists."""

from __future__ import annotations

import importlib.util
import re
import sys

from tests.conftest import ROOT
from truehalf.cli.app import run as truehalf


def generator():  # type: ignore[no-untyped-def]
    spec = importlib.util.spec_from_file_location("docs_generate", ROOT / "docs/generate.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def test_what_is_generated_is_current() -> None:
    for name, make in generator().GENERATED.items():
        assert (ROOT / "docs" / name).read_text() == make(), f"docs/{name}: make docs"


def test_the_picture_draws_every_room_once() -> None:
    module = generator()
    rooms = {path.name for path in (ROOT / "truehalf").iterdir() if path.is_dir() and path.name != "__pycache__"}
    assert rooms | {"api"} == set(module.FLOORS)
    assert all(module._place(other) < module._place(room) for room, other in module.direct(module.imports()))


def test_flags_of_other_tools_lead_to_flags_that_exist(capsys) -> None:  # type: ignore[no-untyped-def]
    text = (ROOT / "docs/how-to/coming-from.md").read_text()
    helps = {}
    for name in ("convert", "verify", "autocast"):
        truehalf([name, "--help"])
        helps[name] = capsys.readouterr().out
    table = text.partition("## onnxconverter")[0]
    left, ours = set(), set()
    for row in re.findall(r"^\|(.*?)\|(.*?)\|", table, re.MULTILINE)[2:]:
        left |= set(re.findall(r"`(--?[\w-]+)", row[0]))
        ours |= set(re.findall(r"`(--?[\w-]+)", row[1]))
    assert len(left) > 15 and all(flag in helps["autocast"] for flag in left)
    assert len(ours) > 10 and all(flag in helps["convert"] for flag in ours - {"--json"})
    for row in re.findall(r"^\|(.*?)\|(.*?)\|", text.partition("## onnxslim")[2], re.MULTILINE):
        for command in re.findall(r"`((?:convert|verify|inspect|lint|engine) [^`]*)`", row[1]):
            truehalf([command.split()[0], "--help"])
            shown = capsys.readouterr().out
            assert all(flag in shown for flag in re.findall(r"--[\w-]+", command)), command
    rest = set(re.findall(r"`(?:verify [^`]*)?(--[\w-]+)[^`]*` \|", text.partition("## Polygraphy")[2]))
    assert {"--samples", "--tolerance"} <= rest and all(
        flag in helps["verify"] for flag in rest if flag in ("--samples", "--tolerance")
    )
