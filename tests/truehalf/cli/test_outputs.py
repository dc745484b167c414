"""Every output of every command: what lies in its place, and what it must not be, found out before the work.

All nodes are made in the test's own folder: an output must never be a path under /dev.
"""

from __future__ import annotations

import itertools
import json
import shutil
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest

from tests.messages import expect
from tests.truehalf.test_files import made
from truehalf.cli.app import COMMANDS
from truehalf.cli.app import run as truehalf

MODEL = """<ir_version: 8, opset_import: ["" : 17]> g (float[n,4] x) => (float[n,4] y) {
    m = MatMul (x, w)  y = Relu (m) }"""
MODULE = """
import torch
def build():
    return torch.nn.Linear(4, 4)
"""
# By command its arguments; its outputs, each with the place that it has unless a test gives it another; and what it
# reads, models with the files of their weights among it.
ARGUMENTS = {
    "convert": "in.onnx --samples x.npz --no-slim",
    "convert with ranges": "in.onnx --samples x.npz --ranges ranges.json --no-slim",
    "calibrate": "in.onnx --samples x.npz",
    "verify": "in.onnx other.onnx --samples x.npz --spec spec.yaml",
    "export": "module_of_mine:build --samples x.npz --checkpoint w.safetensors",
    "clean-casts": "in.onnx",
    "repair": "in.onnx",
    "lint": "in.onnx",
    "inspect": "in.onnx --result result.json",
    "report": "result.json",
}
OUTPUTS = {
    "convert": {"-o": "o.onnx", "--json": "j.json"},
    "convert with ranges": {"-o": "o.onnx", "--json": "j.json"},
    "calibrate": {"-o": "o.json", "--json": "j.json"},
    "verify": {"--json": "j.json"},
    "export": {"-o": "o.onnx", "--json": "j.json"},
    "clean-casts": {"-o": "o.onnx", "--json": "j.json"},
    "repair": {"-o": "o.onnx", "--json": "j.json"},
    "lint": {"--json": "j.json"},
    "inspect": {"--json": "j.json"},
    "report": {"-o": "o.html", "--json": "j.json"},
}
_MODEL = ["in.onnx", "w.bin"]
READ = {
    "convert": [*_MODEL, "x.npz"],
    "convert with ranges": [*_MODEL, "x.npz", "ranges.json"],
    "calibrate": [*_MODEL, "x.npz"],
    "verify": [*_MODEL, "other.onnx", "v.bin", "x.npz", "spec.yaml"],
    "export": ["x.npz", "w.safetensors"],
    "clean-casts": _MODEL,
    "repair": _MODEL,
    "lint": _MODEL,
    "inspect": [*_MODEL, "result.json"],
    "report": ["result.json"],
}
DOORS = [(command, option) for command, options in OUTPUTS.items() for option in options]


@pytest.fixture(scope="module")
def template(tmp_path_factory: pytest.TempPathFactory) -> Path:
    import torch
    from safetensors.torch import save_file

    folder = tmp_path_factory.mktemp("template")
    for name, data in (("in", "w.bin"), ("other", "v.bin")):
        proto = onnx.parser.parse_model(MODEL)
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(4, dtype=np.float32), "w"))
        onnx.save(proto, folder / f"{name}.onnx", save_as_external_data=True, location=data, size_threshold=0)
    np.savez(folder / "x.npz", x=np.random.default_rng(0).random((4, 4), np.float32))
    (folder / "spec.yaml").write_text("{}")
    (folder / "module_of_mine.py").write_text(MODULE)
    linear = {name: value.detach() for name, value in torch.nn.Linear(4, 4).state_dict().items()}
    save_file(linear, folder / "w.safetensors")
    given = [str(folder / "in.onnx"), "--samples", str(folder / "x.npz")]
    assert truehalf(["calibrate", *given, "-o", str(folder / "ranges.json")]) == 0
    results = ["-o", str(folder / "made.onnx"), "--json", str(folder / "result.json")]
    assert truehalf(["convert", *given, "--no-slim", *results]) == 0
    return folder


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, template: Path) -> Path:
    folder = tmp_path / "files"
    shutil.copytree(template, folder)
    (folder / "other").mkdir()
    monkeypatch.chdir(folder)
    monkeypatch.syspath_prepend(folder)
    return folder


def arguments(command: str, **places: Path | str) -> list[str]:
    """A command line; `places` by option instead of its own."""
    outputs = {option: str(places.get(option, place)) for option, place in OUTPUTS[command].items()}
    given = ARGUMENTS[command].split()
    return [command.split()[0], *given, *itertools.chain.from_iterable(outputs.items())]


def content(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def refused(code: str, line: list[str], folder: Path, capsys: pytest.CaptureFixture[str], *facts: object) -> None:
    before = content(folder)
    capsys.readouterr()
    assert truehalf(line) == 2
    expect(capsys.readouterr().err, code, *facts)
    assert content(folder) == before, "nothing was written, and nothing changed"


def test_every_command_that_writes_a_file_is_here() -> None:
    assert {command.split()[0] for command in ARGUMENTS} | {"engine"} == {*COMMANDS}


@pytest.mark.parametrize("command", ARGUMENTS)
def test_they_do_their_work(command: str, folder: Path) -> None:
    assert truehalf(arguments(command)) in (0, 3)
    assert all((folder / place).is_file() for place in OUTPUTS[command].values())


@pytest.mark.parametrize("command", ARGUMENTS)
def test_json_to_stdout_is_all_there(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """For `| jq`; what is printed otherwise goes to stderr."""
    truehalf(arguments(command))
    said = capsys.readouterr()
    code = truehalf(arguments(command, **{"--json": "-"}))
    found = capsys.readouterr()
    assert code in (0, 3) and not (folder / "-").exists()
    assert said.out.splitlines()[0] in found.err
    assert json.loads(found.out) == json.loads((folder / "j.json").read_text())


FAULTS = [ZeroDivisionError("of ours"), KeyError("key"), ModuleNotFoundError("none", name="none"), RuntimeError()]


@pytest.mark.parametrize(("command", "error"), [(each, draw) for each in ARGUMENTS for draw in FAULTS])
def test_a_defect_is_neither_a_failed_model_nor_bad_input(
    command: str, error: Exception, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    for name in ("files.check_outputs", "ir.model_file.load_model"):
        monkeypatch.setattr(f"truehalf.{name}", fail)
    before = content(folder)
    assert truehalf(arguments(command)) == 70
    expect(capsys.readouterr().err, "internal-error", "Traceback", type(error).__name__)
    assert content(folder) == before


def test_a_subcommand_that_cannot_be_imported_is_a_defect(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "truehalf.cli.repair", None)
    assert truehalf(["repair", "--help"]) == 70
    expect(capsys.readouterr().err, "internal-error", "Traceback")


@pytest.mark.parametrize("command", ARGUMENTS)
def test_quiet_is_one_line_and_verbose_more(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    printed = []
    for flags in (["--quiet"], [], ["--verbose"], ["--quiet", "--verbose"]):
        assert truehalf([*arguments(command), *flags]) in (0, 3)
        printed.append(capsys.readouterr().out.splitlines())
    quiet, plain, verbose, both = printed
    assert quiet == both == plain[:1] and len(quiet) == 1
    words = [sum(len(line.split()) for line in lines) for lines in (plain, verbose)]  # lines wrap at other widths
    assert words[0] <= words[1]


@pytest.mark.parametrize("kind", ["folder", "fifo"])
@pytest.mark.parametrize(("command", "option"), DOORS)
def test_no_regular_file(
    command: str, option: str, kind: str, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place, facts = made(folder / "other", kind)
    before = facts()
    refused("file-unwritable", arguments(command, **{option: place}), folder, capsys, place)
    assert facts() == before


@pytest.mark.parametrize("is_linked", [False, True])
@pytest.mark.parametrize(("command", "option", "read"), [(*door, read) for door in DOORS for read in READ[door[0]]])
def test_no_output_is_an_input(
    command: str, option: str, read: str, is_linked: bool, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    place = folder / read
    if is_linked:
        place = folder / "other" / "link"
        place.symlink_to(folder / read)
    refused("would-overwrite", arguments(command, **{option: place}), folder, capsys)


@pytest.mark.parametrize("command", [command for command, options in OUTPUTS.items() if len(options) > 1])
def test_two_outputs_of_one_name(command: str, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    pair = dict.fromkeys(OUTPUTS[command], folder / "both")
    refused("would-overwrite", arguments(command, **pair), folder, capsys)  # type: ignore[arg-type]


@pytest.mark.parametrize("there", [True, False])
@pytest.mark.parametrize(("command", "option"), DOORS)
def test_a_link_is_followed(command: str, option: str, there: bool, folder: Path) -> None:
    link, target = folder / "link", folder / "other" / OUTPUTS[command][option]
    if there:
        target.write_text("old")
    link.symlink_to(target)
    before = content(folder)
    assert truehalf(arguments(command, **{option: link})) in (0, 3)
    assert link.is_symlink() and target.is_file() and not target.is_symlink() and target.read_bytes() != b"old"
    assert {path: data for path, data in content(folder).items() if path in before and path not in (link, target)} == {
        path: data for path, data in before.items() if path not in (link, target)
    }
