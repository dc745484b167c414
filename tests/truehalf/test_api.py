"""Eight names, on paths and on models in memory alike."""

from __future__ import annotations

import inspect
import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest
import torch

import truehalf
from tests.conftest import ROOT
from tests.messages import expect, raises
from truehalf import Precision, api, calibrate, clean_casts, compare, convert, export, lint, repair
from truehalf.config.verification import GatesConfig, VerifyConfig
from truehalf.ir.model_forms import ModelFile

NAMES = ["Precision", "calibrate", "clean_casts", "compare", "convert", "export", "lint", "repair"]
TEXT = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,8] x) => (float[N,8] y)
{ ["m"] h = MatMul(x, w) ["e"] r = Relu(h) ["s"] y = Softmax(r) }"""
RNG = np.random.default_rng(0)
SAMPLES = [{"x": RNG.standard_normal((2, 8)).astype(np.float32)} for _ in range(4)]


def model() -> onnx.ModelProto:
    proto = onnx.parser.parse_model(TEXT)
    weight = np.random.default_rng(1).standard_normal((8, 8)).astype(np.float32)
    proto.graph.initializer.append(onnx.numpy_helper.from_array(weight, "w"))
    return proto


def forms(folder: Path) -> dict[str, Any]:
    onnx.save(model(), folder / "model.onnx")
    path = folder / "model.onnx"
    return {"path": path, "text": str(path), "proto": model(), "ir": ir.from_proto(model())}


def digest(found: ir.Model) -> bytes:
    return bytes(ir.to_proto(found).SerializeToString(deterministic=True))


def test_the_names_are_functions_whatever_was_imported() -> None:
    code = (
        "import truehalf.conversion.rules, truehalf.calibration, truehalf.patterns, truehalf.patterns\n"
        f"import truehalf, inspect\nprint([inspect.isroutine(getattr(truehalf, n)) for n in {NAMES!r}[1:]])"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == str([True] * 7)
    assert sorted(truehalf.__all__) == sorted(NAMES) == sorted(api.__all__)


def test_importing_it_loads_no_runtime() -> None:
    heavy = ("numpy", "onnx", "onnx_ir", "onnxruntime", "onnxslim", "scipy", "torch", "rich", "jinja2", "PIL")
    code = f"import truehalf, sys; print([name for name in {heavy!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("name", NAMES[1:])
def test_widths_and_docstrings(name: str) -> None:
    function = getattr(truehalf, name)
    parameters = [each for each in inspect.signature(function).parameters if each not in ("precision", "options")]
    assert len(parameters) <= 6
    assert all(f"{each}" in function.__doc__ for each in parameters) and "Raises:" in function.__doc__


def test_every_form_of_a_model_gives_the_same_file(tmp_path: Path) -> None:
    made = {name: convert(each, samples=SAMPLES) for name, each in forms(tmp_path).items()}
    assert len({digest(each.model) for each in made.values()}) == 1
    written = convert(model(), tmp_path / "out.onnx", samples=SAMPLES)
    assert digest(ir.load(tmp_path / "out.onnx")) == digest(written.model) == digest(made["path"].model)
    assert {row["node"]: row["precision"] for row in written.decisions} == {"m": "fp16", "e": "fp16", "s": "fp16"}
    assert not made["proto"].report.fp16.not_done


def test_what_is_given_stays_as_it_is(tmp_path: Path) -> None:
    proto, graph = model(), ir.from_proto(model())
    before = proto.SerializeToString(deterministic=True), digest(graph)
    for function in (convert, clean_casts, repair):
        function(proto)
        function(graph)
    assert (proto.SerializeToString(deterministic=True), digest(graph)) == before


def test_options_are_those_of_precision(tmp_path: Path) -> None:
    found = convert(model(), samples=SAMPLES, precision=Precision(op_block_list=["Softmax"], placement="eager"))
    assert {row["node"]: row["rule"] for row in found.decisions}["s"] == "op_block_list"
    assert "s" in [row["node"] for row in found.decisions if row["precision"] == "fp32"]


def test_what_asks_for_no_conversion_gets_none() -> None:
    found = convert(model(), precision=Precision(dtype="fp32"))
    assert found.report.fp16.status == "skipped"
    assert {tensor.dtype for tensor in found.model.graph.initializers.values()} == {ir.DataType.FLOAT}
    for method in ("half", "autocast"):
        with raises("not-supported", method):
            convert(model(), precision=Precision(method=method))


@pytest.mark.parametrize("function", [convert, lint, repair, clean_casts])
@pytest.mark.parametrize("given", [5, b"model"])
def test_what_is_no_model_is_refused(function: Any, given: object) -> None:
    with raises("wrong-type", type(given).__name__):
        function(given)


def test_steps_that_are_left_out_are_named() -> None:
    with raises("unknown-choice", "skip", "slimming", "slim", "check"):
        convert(model(), skip=["slimming"])


@pytest.mark.parametrize("limit", [-5, -1, 0])
def test_a_limit_of_bytes_below_one(limit: int) -> None:
    with raises("out-of-range", "fold_max_bytes", limit):
        clean_casts(model(), fold_max_bytes=limit)


def test_an_axis_below_zero_of_an_export_is_refused() -> None:
    samples: Any = {"x": np.ones((2, 4), np.float32)}
    with raises("out-of-range", "dynamic_axes.x", -1):
        export(torch.nn.ReLU(), samples=samples, dynamic_axes={"x": {-1: "n"}})


def test_ranges_serve_many_conversions(tmp_path: Path) -> None:
    ranges = calibrate(model(), SAMPLES)
    (tmp_path / "ranges.json").write_text(json.dumps(ranges))
    assert ranges["samples"] == 4
    first, second = (convert(model(), ranges=each) for each in (ranges, tmp_path / "ranges.json"))
    assert digest(first.model) == digest(second.model) == digest(convert(model(), samples=SAMPLES, skip=["slim"]).model)
    with raises("in-conflict", "samples", "ranges"):
        convert(model(), samples=SAMPLES, ranges=ranges)
    with raises("needs-value", "preprocessing", "samples"):
        convert(model(), ranges=ranges, preprocessing={"size": [8, 8]})


def feeds() -> Iterator[Mapping[str, np.ndarray]]:
    yield from SAMPLES


@pytest.mark.parametrize("kind", ["list", "iterator", "stack", "npz", "folder"])
def test_samples_in_every_form(kind: str, tmp_path: Path) -> None:
    stack = np.stack([sample["x"] for sample in SAMPLES])
    np.savez(tmp_path / "stack.npz", x=stack)
    (tmp_path / "folder").mkdir()
    for i, sample in enumerate(SAMPLES):
        np.savez(tmp_path / "folder" / f"{i}.npz", **sample)
    given = {"list": SAMPLES, "iterator": feeds(), "stack": {"x": stack}, "npz": tmp_path / "stack.npz"}
    assert calibrate(model(), given.get(kind, tmp_path / "folder"))["samples"] == 4


def test_compare_says_what_it_found() -> None:
    made = convert(model(), samples=SAMPLES[:2]).model
    report = compare(model(), made, SAMPLES)
    assert (report.verdict, report.samples) == ("passed", 4)
    strict = VerifyConfig(gates=GatesConfig(tensor_rms_max=0.0))
    assert compare(model(), made, SAMPLES, options=strict, locate=False).verdict == "failed"


def test_a_file_that_is_open_and_was_converted_is_compared_as_it_is_on_disk(tmp_path: Path) -> None:
    file = ModelFile(forms(tmp_path)["path"])
    convert(file, tmp_path / "fp16.onnx", samples=SAMPLES[:2], skip=("slim", "check"))
    report = compare(file, tmp_path / "fp16.onnx", SAMPLES)
    assert report.verdict == "passed" and report.reference_evaluation == "fp32-cpu"


def test_casts_and_repairs_and_lint(tmp_path: Path) -> None:
    text = """<ir_version: 8, opset_import: ["" : 17]> g (float[N,8] x) => (float[N,8] y)
    { ["a"] h = Cast<to = 10>(x) ["b"] f = Cast<to = 1>(h) ["r"] y = Relu(f) }"""
    cleaned = clean_casts(onnx.parser.parse_model(text), tmp_path / "clean.onnx")
    assert (cleaned.report.casts_before, cleaned.report.casts_after) == (2, 0)
    assert clean_casts(onnx.parser.parse_model(text), strict=True).report.casts_after == 2
    where = """<ir_version: 8, opset_import: ["" : 17]> g (bool[4] c, float[4] a, float[4] b) => (float[4] y)
    { y = Where(c, a, b) }"""
    proto = onnx.parser.parse_model(where)
    assert "empty-node-name" in [each.rule for each in lint(proto).findings]
    assert "empty-node-name" not in [each.rule for each in lint(repair(proto).model).findings]
    assert repair(proto, passes=["allowzero"]).report.counts == {"allowzero": 0}


class Scaled(torch.nn.Module):
    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        return torch.relu(x) * scale, x + scale


def build() -> torch.nn.Module:
    return Scaled().eval()


@pytest.mark.parametrize("module", [Scaled().eval(), f"{__name__}:build"])
def test_export(module: Any, tmp_path: Path) -> None:
    feed = {"scale": np.ones((2, 1), np.float32), "x": np.ones((2, 3), np.float32)}  # not in the order of forward
    found = export(module, tmp_path / "m.onnx", samples=[feed, {name: 2 * each[:1] for name, each in feed.items()}])
    assert [value.name for value in found.model.graph.inputs] == ["x", "scale"]
    assert [value.name for value in found.model.graph.outputs] == ["output_0", "output_1"]
    assert found.report.parity["status"] == "verified" and found.report.parity["samples"] == 3
    named = export(module, samples=feed, outputs=["a", "b"]).model
    assert [value.name for value in named.graph.outputs] == ["a", "b"]
    with raises("wrong-name", "2", "1"):
        export(module, samples=feed, outputs=["a"])
    with raises("wrong-name", "y", "x, scale"):
        export(module, samples={"x": feed["x"], "y": feed["scale"]})


def test_an_axis_that_varies_and_has_one_size_in_all_samples_is_not_verified() -> None:
    axes = {"x": {0: "n", 1: "width"}}
    feeds = [{"x": np.ones((2, side), np.float32)} for side in (8, 9)]
    for samples, status in ((feeds[:1], "not verified"), (feeds, "verified")):
        found = export(torch.nn.ReLU(), samples=samples, dynamic_axes=axes).report.parity
        assert found["status"] == status
        expect(found.get("reason", "trace-open axis 1"), None, "axis", "1")


def test_a_fault_leaves_no_file(tmp_path: Path) -> None:
    onnx.save(model(), tmp_path / "model.onnx")
    before = (tmp_path / "model.onnx").read_bytes()
    with raises("would-overwrite"):
        convert(tmp_path / "model.onnx", tmp_path / "model.onnx", samples=SAMPLES)
    with raises("wrong-feeds", "'z'"):
        convert(tmp_path / "model.onnx", tmp_path / "out.onnx", samples={"z": SAMPLES[0]["x"]})
    assert (tmp_path / "model.onnx").read_bytes() == before and list(tmp_path.iterdir()) == [tmp_path / "model.onnx"]


@pytest.mark.parametrize("made_by", [convert, clean_casts, repair, "export", "lint", "compare"])
def test_every_report_is_typed_and_says_itself_in_json(made_by: Any) -> None:
    """As keys of JSON it has the names of its attributes; what is None may be left out."""
    given: Any = {
        "export": lambda: export(torch.nn.ReLU(), samples={"x": np.ones((2, 3), np.float32)}).report,
        "lint": lambda: lint(model()),
        "compare": lambda: compare(model(), model(), SAMPLES),
    }
    report = given[made_by]() if isinstance(made_by, str) else made_by(model()).report
    assert is_dataclass(report) and report.__dataclass_params__.frozen  # type: ignore[attr-defined]
    content = report.to_json()
    assert json.loads(json.dumps(content)) and all(isinstance(name, str) for name in content)
    stated = {each.name for each in fields(report) if getattr(report, each.name) is not None}
    assert stated - {"findings", "comparison"} <= set(content)  # of a comparison its measures


def test_what_was_not_slimmed_has_no_report_of_it() -> None:
    assert convert(model(), skip=["slim"]).report.slim is None
    assert "slim" not in convert(model(), skip=["slim"]).report.to_json()
    assert convert(model()).report.to_json()["slim"]["simplified"] is True


DONE: dict[str, Callable[[onnx.ModelProto], Any]] = {
    "convert": lambda model: convert(model, samples=SAMPLES),
    "convert what is not slimmed": lambda model: convert(model, samples=SAMPLES, skip=("slim",)),
    "convert without samples": convert,
    "calibrate": lambda model: calibrate(model, SAMPLES),
    "clean_casts": clean_casts,
    "compare": lambda model: compare(model, convert(model, samples=SAMPLES).model, SAMPLES, locate="always"),
    "lint": lint,
    "repair": repair,
}


@pytest.mark.parametrize("name", DONE)
def test_nodes_may_stand_in_any_order(name: str) -> None:
    unsorted = model()
    nodes = list(unsorted.graph.node)
    del unsorted.graph.node[:]
    unsorted.graph.node.extend(reversed(nodes))
    assert DONE[name](unsorted) is not None
