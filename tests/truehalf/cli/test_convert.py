"""truehalf convert, and what stands around it: one file, in one command."""

from __future__ import annotations

import io
import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
from PIL import Image

from tests.conftest import ROOT
from tests.messages import expect
from truehalf.cli.app import COMMANDS
from truehalf.cli.app import run as truehalf
from truehalf.cli.form import FILE_OF_JSON, QUIET, VERBOSE
from truehalf.codes import codes_in
from truehalf.report.result import WORDS

TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,3,8,8] images) => (float[N,4,8,8] y)
{ ["conv"] c = Conv<pads = [1,1,1,1]>(images, w) ["relu"] y = Relu(c) }"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "80")
    proto = onnx.parser.parse_model(TEXT)
    weight = np.random.default_rng(0).standard_normal((4, 3, 3, 3)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    onnx.save(proto, "model.onnx")
    (tmp_path / "images").mkdir()
    for i in range(5):
        pixels = np.random.default_rng(i).integers(0, 255, (10, 12, 3), np.uint8)
        Image.fromarray(pixels).save(tmp_path / "images" / f"{i}.png")
    np.savez("one.npz", images=np.ones((1, 3, 8, 8), np.float32))
    return tmp_path


SIZE = ("--size", "8x8")


def types(path: str) -> set[str]:
    proto = onnx.shape_inference.infer_shapes(onnx.load(path))
    return {onnx.TensorProto.DataType.Name(value.type.tensor_type.elem_type) for value in proto.graph.value_info}


CLASSES = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,3,8,8] images) => (float[N,4] y)
{ c = Conv<pads = [1,1,1,1]>(images, w) m = GlobalAveragePool(c) y = Flatten(m) }"""


def test_outputs_are_verified_as_the_spec_declares_them(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    proto = onnx.parser.parse_model(CLASSES)
    proto.graph.initializer.extend(onnx.load("model.onnx").graph.initializer)
    onnx.save(proto, "classes.onnx")
    command = ["convert", "classes.onnx", "--samples", "images", *SIZE, "--json", "r.json", "--spec", "s.json"]
    for kind, code in (("classes", 0), ("boxes", 2)):
        Path("s.json").write_text(json.dumps({"outputs": [{"name": "y", "kind": kind}]}))
        assert truehalf(command) == code, kind
    expect(capsys.readouterr().err, "wrong-spec", "boxes")
    assert json.loads(Path("r.json").read_text())["comparison"]["task"] == "classification"
    for idle in (["--no-verify"], []):
        samples = [] if not idle else ["--samples", "images", *SIZE]
        assert truehalf(["convert", "classes.onnx", *samples, *idle, "--spec", "s.json"]) == 2
        expect(capsys.readouterr().err, "in-conflict", "--spec")


def test_a_check_that_could_not_run_is_a_note(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = TEXT.replace("g (", "g (string[N] text, ").replace(" y)", " y, string[N] t)")
    proto = onnx.parser.parse_model(text.replace("y = Relu(c)", "y = Relu(c) t = Identity(text)"))
    proto.graph.initializer.extend(onnx.load("model.onnx").graph.initializer)
    onnx.save(proto, "text.onnx")
    assert truehalf(["convert", "text.onnx", "--json", "r.json"]) == 3
    notes = json.loads(Path("r.json").read_text())["notes"]
    expect(next(note for note in notes if "needs-value" in codes_in(note)), "needs-value", "'text'", "a drawn input")


def test_the_whole_way(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert truehalf(["convert", "model.onnx", "--samples", "images", *SIZE, "-o", "out.onnx", "--json", "r.json"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("passed: out.onnx: ") and max(map(len, lines)) <= 80 and len(lines) <= 25
    assert "FLOAT16" in types("out.onnx")
    content = json.loads((folder / "r.json").read_text())
    assert (content["verdict"], content["comparison"]["samples"]) == ("passed", 3)
    assert (content["samples"]["calibration"], content["samples"]["verification"]) == ([2, 4], [3, 0, 1])
    assert content["precision"]["data_max"] is None and len(content["decisions"]) == 2


def test_what_tensorrt_refuses_is_not_verified(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = TEXT.replace(" y)", " y, float[N,4] d)").replace("y = Relu(c)", 'y = Relu(c) ["/head/Det"] d = Det(c)')
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.extend(onnx.load("model.onnx").graph.initializer)
    onnx.save(proto, "refused.onnx")
    assert truehalf(["convert", "refused.onnx", "--samples", "images", *SIZE, "-o", "out.onnx"]) == 3
    expect(capsys.readouterr().out, "lint-fails", "not verified", "/head/Det")
    assert Path("out.onnx").exists()


def test_without_samples_it_is_not_verified_and_the_first_line_says_so(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert truehalf(["convert", "model.onnx", "-o", "out.onnx"]) == 3
    first = capsys.readouterr().out.splitlines()[0]
    assert first.startswith("not verified: out.onnx: ")
    expect(first, "not-asked-for")
    assert (folder / "out.onnx").exists()


def test_one_sample_proves_nothing_of_others(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert truehalf(["convert", "model.onnx", "--samples", "one.npz", "-o", "out.onnx"]) == 3
    text = capsys.readouterr().out
    assert text.startswith("not verified: ")


def test_rows_of_one_file_are_samples(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Whether the batch varies or is fixed: no row is calibrated with and verified with."""
    np.savez("rows.npz", images=np.random.default_rng(0).random((5, 3, 8, 8)).astype(np.float32))
    arguments = ["convert", "model.onnx", "--samples", "rows.npz", "-o", "out.onnx", "--json", "r.json"]
    assert truehalf(arguments) == 0
    content = json.loads((folder / "r.json").read_text())
    assert content["samples"] == {"calibration": [2, 4], "verification": [3, 0, 1], "total": 5}
    assert content["comparison"]["samples"] == 3
    fixed = """<ir_version: 8, opset_import: ["" : 17]> g (float[5,3,8,8] images) => (float[5,3,8,8] y)
        { a = Abs(images) y = MatMul(a, images) }"""
    onnx.save(onnx.parser.parse_model(fixed), "five.onnx")
    assert truehalf(["convert", "five.onnx", "--samples", "rows.npz", "-o", "o.onnx", "--json", "r.json"]) == 0
    assert json.loads((folder / "r.json").read_text())["samples"] == content["samples"]


@pytest.mark.parametrize("flags", [["--op-block-list", "Conv"], ["--node-block-list", "."], ["--data-max", "0.001"]])
def test_a_file_of_which_nothing_is_fp16_is_not_verified(
    flags: list[str], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--samples", "images", *SIZE, "--json", "r.json", *flags]
    assert truehalf(["convert", "model.onnx", "-o", "out.onnx", *flags]) == 3
    text = capsys.readouterr().out
    assert text.startswith("not verified: out.onnx") and "FLOAT16" not in types("out.onnx")
    expect(text, "nothing-in-fp16")
    content = json.loads((folder / "r.json").read_text())
    assert content["verdict"] == "not verified" and content["comparison"]["verdict"] == "passed"


@pytest.mark.parametrize("count", range(2, 8))
def test_a_verdict_on_few_samples_says_so(count: int, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A third of them calibrates; from three that verify on nothing is said."""
    np.savez("rows.npz", images=np.random.default_rng(count).random((count, 3, 8, 8)).astype(np.float32))
    flags = ["--samples", "rows.npz", "--quiet", "--json", "r.json"]
    code = truehalf(["convert", "model.onnx", *flags])
    assert code in (0, 3), "of one verified sample alone it may be open whether the outputs react"
    first = capsys.readouterr().out
    notes = json.loads((folder / "r.json").read_text())["notes"]
    is_few = count < 4 and code == 0
    assert ("too-few-samples" in codes_in(first)) is is_few is ("too-few-samples" in codes_in(" ".join(notes)))


@pytest.mark.parametrize("place", ["model.onnx", "here/model.onnx", "a.b.onnx", "here/model.ONNX", "noext"])
def test_without_out_the_file_lies_beside_the_model(place: str, folder: Path) -> None:
    (folder / "here").mkdir()
    if place != "model.onnx":
        (folder / "model.onnx").rename(place)
    before = {path for path in folder.rglob("*") if path.is_file()}
    made = folder / Path(place).with_name(f"{Path(place).stem}_fp16.onnx")
    for _ in range(2):  # a file that is there already is replaced, as with -o
        assert truehalf(["convert", place]) == 3
        assert {path for path in folder.rglob("*") if path.is_file()} - before == {made}
    assert "FLOAT16" in types(str(made))


def test_what_is_fp16_already_is_skipped(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    truehalf(["convert", "model.onnx"])
    assert truehalf(["convert", "model_fp16.onnx", "--json", "r.json"]) == 3
    content = json.loads((folder / "r.json").read_text())
    assert content["conversion"]["fp16"]["status"] == "skipped" and content["conversion"]["fp16"]["reason"]


def test_no_verify_and_quiet(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--samples", "images", *SIZE, "--no-verify", "--quiet"]
    assert truehalf(["convert", "model.onnx", "-o", "out.onnx", *flags]) == 3
    (line,) = capsys.readouterr().out.splitlines()
    assert line.startswith("not verified: out.onnx")


SQUARES = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,3,8,8] images) => (float[N,3,8,8] y)
{ ["a"] a = Mul(images, k) ["it's"] b = Mul(a, a) ["c"] y = Mul(b, l) }"""
FORCED = ("--rules", "autocast", "--data-max", "off", "--placement", "eager")


@pytest.mark.parametrize("samples", [("--samples", "images", *SIZE, "--no-verify"), ("--no-verify",), ()])
def test_what_is_wrong_is_a_warning_with_the_pins_where_nothing_is_verified(
    samples: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    proto = onnx.parser.parse_model(SQUARES)
    for name, value in (("k", 1e3), ("l", 1e-6)):
        proto.graph.initializer.append(onnx.numpy_helper.from_array(np.float32(value), name))
    onnx.save(proto, "wrong.onnx")
    line = ["convert", "wrong.onnx", *samples, *FORCED, "--quiet", "--json", "r.json"]
    assert truehalf(line) == 3
    (warning,) = capsys.readouterr().out.splitlines()
    content = json.loads((folder / "r.json").read_text())
    expect(warning, "not-finite", "it's", *content["conversion"]["check"]["node_block_list"][1:])
    assert content["conversion"]["check"]["state"] == "failed" and content["verdict"] == "not verified"
    pins = shlex.split(warning)[shlex.split(warning).index("--node-block-list") + 1 :: 2]
    pins = pins[: len(content["conversion"]["check"]["node_block_list"])]
    for more in ([text for pin in pins for text in ("--node-block-list", pin)], ["--no-check"]):
        assert truehalf([*line, *more]) == 3
        expect(capsys.readouterr().out, "not-asked-for")
    assert "check" not in json.loads((folder / "r.json").read_text())["conversion"]


@pytest.mark.parametrize("flags", [("--samples", "images", *SIZE, "--no-verify"), (), ("--keep-io-types", "none")])
def test_a_good_file_has_no_warning(flags: tuple[str, ...], folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert truehalf(["convert", "model.onnx", *flags, "--json", "r.json"]) == 3
    expect(capsys.readouterr().out.splitlines()[0], "not-asked-for")
    assert json.loads((folder / "r.json").read_text())["conversion"]["check"]["state"] == "verified"


def test_a_file_is_checked_on_samples_of_calibration_unless_that_is_not_wanted(folder: Path) -> None:
    command = ["convert", "model.onnx", "--samples", "images", *SIZE, "--json", "r.json"]
    assert truehalf(command) == 0
    assert json.loads((folder / "r.json").read_text())["conversion"]["check"]["state"] == "verified"
    assert truehalf([*command, "--no-check"]) == 0
    assert "check" not in json.loads((folder / "r.json").read_text())["conversion"]


def test_options_reach_the_conversion(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--op-block-list", "Relu", "--data-max", "off", "--keep-io-types", "none", "--no-masks", "--verbose"]
    flags += ["--fp16-ops", "Relu", "--fp16-ops", "Conv"]
    assert truehalf(["convert", "model.onnx", "-o", "out.onnx", "--json", "r.json", *flags]) == 3
    told = json.loads((folder / "r.json").read_text())["precision"]
    assert (told["op_block_list"], told["data_max"], told["keep_io_types"], told["masks"], told["fp16_ops"]) == (
        ["Relu"],
        None,
        False,
        False,
        ["Relu", "Conv"],
    )
    assert onnx.load("out.onnx").graph.input[0].type.tensor_type.elem_type == onnx.TensorProto.FLOAT16
    expect(capsys.readouterr().out, None, "relu", "op_block_list")


def shared_out(flags: list[str]) -> tuple[list[int], list[int]]:
    truehalf(["convert", "model.onnx", "--samples", "images", *SIZE, "-o", "out.onnx", "--json", "r.json", *flags])
    found = json.loads(Path("r.json").read_text())["samples"]
    return found["calibration"], found["verification"]


def test_all_samples_serve_the_one_purpose_that_is_left(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert truehalf(["calibrate", "model.onnx", "--samples", "images", *SIZE, "-o", "ranges.json"]) == 0
    assert json.loads((folder / "ranges.json").read_text())["samples"] == 5
    assert shared_out(["--ranges", "ranges.json"]) == ([], [2, 4, 3, 0, 1])
    text = capsys.readouterr().out
    expect(text, None, "0 calibrated, 5 verified, of 5", "--ranges")
    assert "passed: out.onnx" in text and "none in both" not in text
    assert shared_out(["--no-verify"]) == ([2, 4, 3, 0, 1], [])
    assert shared_out(["--no-verify", "--calibration-samples", "2"]) == ([2, 4], [])
    assert shared_out(["--calibration-samples", "1", "--verification-samples", "1"]) == ([2], [4])


def test_ranges_without_samples(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    truehalf(["calibrate", "model.onnx", "--samples", "images", *SIZE, "-o", "ranges.json"])
    capsys.readouterr()
    assert truehalf(["convert", "model.onnx", "--ranges", "ranges.json", "-o", "out.onnx", "--json", "r.json"]) == 3
    expect(capsys.readouterr().out.splitlines()[0], "not-asked-for", "given ranges")
    assert not json.loads((folder / "r.json").read_text())["conversion"]["fp16"].get("not_done")


def test_what_the_conversion_could_not_do_is_printed(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--samples", "images", *SIZE, "--op-block-list", "Nope", "--opset", "7"]
    assert truehalf(["convert", "model.onnx", "-o", "out.onnx", *flags]) == 0
    expect(capsys.readouterr().out, None, "notes:", "Nope", "opset 17")
    assert truehalf(["convert", "out.onnx", "-o", "again.onnx", "--samples", "images", *SIZE]) == 0
    expect(capsys.readouterr().out, None, "notes:", "converted before")


def test_slimming_is_reported(folder: Path) -> None:
    for flags, is_slimmed in (([], True), (["--no-slim"], False)):
        truehalf(["convert", "model.onnx", "-o", "out.onnx", "--json", "r.json", *flags])
        assert ("slim" in json.loads((folder / "r.json").read_text())["conversion"]) is is_slimmed


def test_corrupt_images(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "images" / "9.png").write_bytes(b"none")
    for line in (["convert", "model.onnx", "-o", "out.onnx"], ["calibrate", "model.onnx", "-o", "ranges.json"]):
        assert truehalf([*line, "--samples", "images", *SIZE]) == 2
        expect(capsys.readouterr().err, "file-unreadable", "9.png")


@pytest.mark.parametrize(
    ("flags", "code", "facts"),
    [
        (["model.onnx", "-o", "model.onnx"], "would-overwrite", ["model.onnx"]),
        (["absent.onnx", "-o", "out.onnx"], "file-missing", ["absent.onnx"]),
        (["model.onnx", "-o", "out.onnx", "--samples", "absent"], "file-missing", ["absent"]),
        (["model.onnx", "-o", "out.onnx", "--samples", "images"], "needs-value", ["preprocessing"]),
        (["model.onnx", "-o", "out.onnx", "--data-max", "-1"], "bad-options", ["data_max"]),
        (["model.onnx", "-o", "images"], "file-unwritable", ["images"]),
        (["model.onnx", "-o", "-"], "file-unwritable", ["--out"]),
        (["model.onnx", "-o", "out.onnx", "--size", "8x8"], "needs-value", ["--samples"]),
        (["model.onnx", "-o", "out.onnx", "--samples", "nan.npz"], "not-finite", ["'images'", "1 of 192"]),
    ],
)
def test_bad_input_is_2_and_writes_nothing(
    folder: Path, flags: list[str], code: str, facts: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    samples = np.ones((4, 1, 3, 8, 8), np.float32)
    samples[3, 0, 0, 0, 0] = np.nan
    np.savez("nan.npz", images=samples)
    before = sorted(path.name for path in folder.iterdir())
    assert truehalf(["convert", *flags]) == 2
    said = capsys.readouterr()
    assert said.err.startswith("truehalf convert: ") and not said.out
    expect(said.err, code, *facts)
    assert sorted(path.name for path in folder.iterdir()) == before


def test_inspect_says_what_stays_fp32_and_why(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    truehalf(["convert", "model.onnx", "-o", "out.onnx", "--op-block-list", "Relu", "--json", "r.json"])
    capsys.readouterr()
    assert truehalf(["inspect", "out.onnx", "--result", "r.json", "--json", "i.json"]) == 0
    found = json.loads((folder / "i.json").read_text())
    assert [each["nodes"] for each in found["islands"]] == [["relu"]]
    assert found["islands"][0]["why"][0].startswith("op_block_list") and found["facts"]["casts"] == 2
    expect(capsys.readouterr().out, None, "images", "[N, 3, 8, 8]", "FP32 islands: 1", "op_block_list")
    assert truehalf(["inspect", "model.onnx"]) == 0 and "island" not in capsys.readouterr().out
    (folder / "x.json").write_text("{}")
    assert truehalf(["inspect", "out.onnx", "--result", "x.json"]) == 2


def test_the_page_of_a_result(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    truehalf(["convert", "model.onnx", "--samples", "images", *SIZE, "-o", "out.onnx", "--json", "r.json"])
    truehalf(["verify", "model.onnx", "out.onnx", "--samples", "images", *SIZE, "--json", "v.json"])
    for result in ("r.json", "v.json"):
        assert truehalf(["report", result, "-o", f"{result}.html"]) == 0
        page = (folder / f"{result}.html").read_text()
        assert WORDS["passed"] in page and "<code>y</code>" in page and "http" not in page
    (folder / "x.json").write_text("[]")
    assert truehalf(["report", "x.json", "-o", "x.html"]) == 2 and not (folder / "x.html").exists()


def test_clean_casts_and_repair(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    truehalf(["convert", "model.onnx", "-o", "out.onnx"])
    capsys.readouterr()
    assert truehalf(["clean-casts", "out.onnx", "-o", "clean.onnx", "--json", "c.json"]) == 0
    report = json.loads((folder / "c.json").read_text())
    assert report["casts_before"] == report["casts_after"] == 2
    assert truehalf(["repair", "model.onnx", "-o", "repaired.onnx", "--only", "allowzero"]) == 0
    assert onnx.load("repaired.onnx").graph.node[0].op_type == "Conv"


def test_export(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (folder / "nets.py").write_text(
        "import torch\n\n\ndef build():\n    return torch.nn.Sequential(torch.nn.Linear(4, 2))\n"
    )
    np.savez("batch.npz", input=np.ones((3, 4), np.float32))
    assert truehalf(["export", "nets:build", "-o", "net.onnx", "--samples", "batch.npz", "--output", "y"]) == 0
    assert [each.name for each in onnx.load("net.onnx").graph.output] == ["y"]
    assert truehalf(["export", "nets:build", "-o", "noise.onnx", "--shape", "input:2x4"]) == 0
    for flags in ([], ["--shape", "input:2x4", "--samples", "batch.npz"], ["--shape", "input"]):
        assert truehalf(["export", "nets:build", "-o", "none.onnx", *flags]) == 2
    assert truehalf(["export", "nets:nothing", "-o", "none.onnx", "--shape", "input:2x4"]) == 2
    expect(capsys.readouterr().err, "function-fails", "nets", "nothing")
    assert not (folder / "none.onnx").exists()


# --- the command as a whole -------------------------------------------------------------------------------------------


def command(*words: str, **variables: str) -> subprocess.CompletedProcess[str]:
    environment = os.environ | {"PYTHONPATH": str(ROOT)} | variables
    line = [sys.executable, "-m", "truehalf", *words]
    return subprocess.run(line, capture_output=True, text=True, env=environment, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("name", COMMANDS)
def test_help_has_examples_first_then_what_people_need(
    name: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert truehalf([name, "--help"]) == 0
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= 80
    assert text.index("Examples:") < text.index("Options:") and "Exit codes:" in text
    needed = text[text.index("Options:") :].split("\n\n")[0]
    assert len(re.findall(r"^  -", needed, re.MULTILINE)) <= 7, "six, and --help"


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_has_the_same_words_for_its_output(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert truehalf([name, "--help"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    for flag, meaning in (("--json FILE", FILE_OF_JSON), ("--quiet", QUIET), ("--verbose", VERBOSE)):
        assert f"{flag} {meaning}" in shown


def test_help_loads_nothing_heavy() -> None:
    code = (
        "import sys\nfrom truehalf.cli.app import run\n"
        "for words in (['--help'], ['convert', '--help'], ['verify', '--help']): run(words)\n"
        "print([n for n in ('numpy', 'onnx', 'onnxruntime', 'torch') if n in sys.modules], file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stderr.strip() == "[]"


def test_help_of_the_command_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert truehalf(["--help"]) == 0
    text = capsys.readouterr().out
    assert text.index("Examples:") < text.index("Commands:") < text.index("Options:") < text.index("Exit codes:")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("variables", "has_colour"), [({}, True), ({"NO_COLOR": "1"}, False), ({"TERM": "dumb"}, False)]
)
def test_colour_on_a_terminal(
    folder: Path, variables: dict[str, str], has_colour: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for name, value in ({"TERM": "xterm"} | variables).items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "stdout", Terminal())
    assert truehalf(["convert", "model.onnx", "-o", "out.onnx"]) == 3
    shown = sys.stdout.getvalue()
    assert ("\x1b[" in shown) is has_colour and "not verified" in shown.splitlines()[0]
    assert shown.startswith("\x1b[33m") is has_colour


def test_no_colour_in_a_pipe(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    truehalf(["convert", "model.onnx", "--samples", "images", *SIZE, "-o", "out.onnx"])
    assert "\x1b" not in capsys.readouterr().out


def test_bare_and_wrong_words(capsys: pytest.CaptureFixture[str]) -> None:
    bare = command()
    assert "Commands:" in bare.stdout + bare.stderr
    assert truehalf(["convrt"]) == 2
    expect(capsys.readouterr().err, None, "'convrt'", "'convert'")
    assert truehalf(["convert", "model.onnx", "-o", "x.onnx", "--op-blok-list", "Relu"]) == 2
    expect(capsys.readouterr().err, None, "--op-blok-list", "--op-block-list")
    assert re.fullmatch(r"truehalf, version \d+\.\d+\.\d+\n", command("--version").stdout)


def test_shell_completion() -> None:
    done = command("con", _TRUEHALF_COMPLETE="bash_complete", COMP_WORDS="truehalf con", COMP_CWORD="1")
    assert "convert" in done.stdout
    done = command("--q", _TRUEHALF_COMPLETE="bash_complete", COMP_WORDS="truehalf convert --q", COMP_CWORD="2")
    assert "--quiet" in done.stdout
    words = {"COMP_WORDS": "truehalf verify --samples im", "COMP_CWORD": "3"}
    assert "file,im" in command("x", _TRUEHALF_COMPLETE="bash_complete", **words).stdout, "completed like a file"


def test_a_share_below_all_is_not_rounded_up_to_it(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[1,2048] x) => (float[1,2048] y)
    { h = MatMul(x, w) y = Abs(h) }"""
    proto = onnx.parser.parse_model(text)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(2048, dtype=np.float32), "w"))
    onnx.save(proto, "wide.onnx")
    assert truehalf(["convert", "wide.onnx", "--op-block-list", "Abs"]) == 3
    (share,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("in FP16")]
    assert share.split()[2:4] == ["99.9", "%"]
