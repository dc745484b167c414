"""ONNX files as models: FP32 alone, fed and read as they say or as is declared, passed on with their I/O spec."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
import torch

from tests.configurations import composed
from tests.messages import expect, raises
from tests.truehalf.models.refusing import in_order, refuses
from truehalf.config.schema import Config
from truehalf.exporting.configured import export_configured
from truehalf.exporting.trace import PASSED_ON
from truehalf.io_spec.in_file import SPEC_KEY
from truehalf.ir.model_file import load_model
from truehalf.models.configuration import validated
from truehalf.models.source import described, dynamic_axes_of, open_model, spec_of
from truehalf.models.sources.onnx import files
from truehalf.runtime.ort import Session

HEAD = '<ir_version: 8, opset_import: ["" : 17]>'
POOLED = """ g (float[{ends}] images) => (float[{batch}, 3] classes) {{
    pooled = ReduceMean <axes = [2, 3], keepdims = 0> (images)
    weight = Constant <value = float[3, 3] {{1, 2, 3, 4, 5, 6, 7, 8, 9}}> ()
    classes = MatMul (pooled, weight)
}}"""
SPEC = {
    "inputs": [
        {
            **{"name": "images", "dtype": "float32", "shape": ["n", 3, 32, 32], "kind": "images", "size": [32, 32]},
            **{"channels": "BGR", "range": [0, 255], "resize": "letterbox", "layout": "NCHW", "resample": "bilinear"},
            "normalization": {"mean": [1.0, 2.0, 3.0], "std": [4.0, 5.0, 6.0], "where": "before the graph"},
        }
    ],
    "outputs": [{"name": "classes", "dtype": "float32", "shape": ["n", 3], "kind": "classes"}],
    "class_names": ["cat", "dog", "emu"],
    "trained": False,
}


def write(path: Path, ends: str = "n, 3, 32, 32", batch: str = "n", text: str = POOLED, spec: Any = None) -> Path:
    model = onnx.parser.parse_model(HEAD + (text.format(ends=ends, batch=batch) if text is POOLED else text))
    if spec is not None:
        onnx.helper.set_model_props(model, {SPEC_KEY: spec if isinstance(spec, str) else json.dumps(spec)})
    onnx.save(model, path)
    return path


def values(*overrides: str) -> dict[str, Any]:
    return composed("model=onnx", "model.checkpoint=m.onnx", "data=random", *overrides)


def config(*overrides: str, **model: Any) -> Config:
    found = values(*overrides)
    found["model"] |= model
    return validated(found)


def traced(folder: Path, *overrides: str) -> tuple[dict[str, Any], Path]:
    return export_configured(config(*overrides), folder, folder / "out" / "model.onnx").to_json(), folder / "out"


def test_a_file_is_passed_on_with_its_spec_and_computes_the_same(tmp_path: Path) -> None:
    write(tmp_path / "m.onnx")
    report, out = traced(tmp_path)
    assert report["exporter"] == PASSED_ON and report["opset"] == 17
    assert report["parity"]["status"] == "not verified"
    expect(report["parity"]["reason"], None, "torch")
    assert (report["parity"]["samples"], report["parity"]["batch_sizes"]) == (4, [1, 3])
    spec = json.loads((out / "io_spec.json").read_text())
    assert json.loads(load_model(out / "model.onnx").metadata_props[SPEC_KEY]) == spec
    assert [entry["shape"] for entry in (*spec["inputs"], *spec["outputs"])] == [["n", 3, 32, 32], ["n", 3]]
    assert spec["inputs"][0]["size"] == [32, 32] and "kind" not in spec["outputs"][0] and spec["trained"] is True
    feed = {"images": np.random.default_rng(0).random((2, 3, 32, 32), np.float32)}
    given, passed = (Session(path).run(feed)["classes"] for path in (tmp_path / "m.onnx", out / "model.onnx"))
    assert np.array_equal(given, passed)
    model = open_model(config(), tmp_path)
    assert torch.equal(model.module(torch.from_numpy(feed["images"]))[0], torch.from_numpy(given))
    assert model.file == tmp_path / "m.onnx" and model.trained and report["notes"] == []


def test_the_spec_in_the_file_says_what_model_does_not(tmp_path: Path) -> None:
    write(tmp_path / "m.onnx", spec=SPEC)
    model = open_model(config(), tmp_path)
    (entry,) = described(model).to_json()["inputs"]
    assert entry == SPEC["inputs"][0] | {"shape": ["batch", 3, 32, 32]}  # type: ignore[index, operator]
    assert [(each.name, each.kind) for each in model.outputs] == [("classes", "classes")]
    assert list(model.class_names) == SPEC["class_names"] and not model.trained
    (note,) = model.notes
    expect(note, None, "I/O spec", SPEC_KEY)
    changed = ("model.preprocessing.channels=RGB", "model.preprocessing.mean=[0,0,0]", "model.classes=[a,b,c]")
    model = open_model(config(*changed), tmp_path)
    (entry,) = described(model).to_json()["inputs"]
    assert (entry["channels"], entry["normalization"]["mean"], entry["resize"]) == ("RGB", [0.0, 0.0, 0.0], "letterbox")
    assert list(model.class_names) == ["a", "b", "c"]


def test_what_is_traced_here_can_be_given_again(tmp_path: Path) -> None:
    write(tmp_path / "m.onnx", spec=SPEC)
    _, out = traced(tmp_path)
    first = json.loads((out / "io_spec.json").read_text())
    (out / "model.onnx").replace(tmp_path / "m.onnx")
    _, out = traced(tmp_path)
    assert json.loads((out / "io_spec.json").read_text()) == first == SPEC


def test_normalisation_inside_the_graph_stays_there(tmp_path: Path) -> None:
    inside = {"mean": [1.0, 2.0, 3.0], "std": [4.0, 5.0, 6.0], "where": "inside the graph"}
    spec = SPEC | {"inputs": [SPEC["inputs"][0] | {"normalization": inside}]}  # type: ignore[index, operator]
    write(tmp_path / "m.onnx", spec=spec)
    (entry,) = open_model(config(), tmp_path).inputs
    assert entry.to_json()["normalization"] == inside


@pytest.mark.parametrize(
    ("spec", "facts"),
    [
        ("no json", [f"'{SPEC_KEY}'", "JSONDecodeError"]),
        ({"inputs": [{}]}, [f"'{SPEC_KEY}'", "inputs[0].name"]),
        (SPEC | {"outputs": [{"name": "other"}]}, ["images, other", "images, classes"]),
    ],
)
def test_a_spec_that_does_not_fit_the_file(spec: Any, facts: list[str], tmp_path: Path) -> None:
    write(tmp_path / "m.onnx", spec=spec)
    with raises("wrong-spec") as error:
        open_model(config(), tmp_path)
    in_order(str(error.value), "model.checkpoint", tmp_path / "m.onnx", *facts)


def test_axes_that_vary_are_the_files_own(tmp_path: Path) -> None:
    path = write(tmp_path / "m.onnx", "batch, 3, height, width", "batch")
    with raises("needs-value", "model.image_size", "'images'", "[height, width]"):
        open_model(config(), tmp_path)
    sized = ("model.image_size=[64,96]",)
    model = open_model(config(*sized), tmp_path)
    axes = {"images": {0: "batch", 2: "height", 3: "width"}, "classes": {0: "batch"}}
    assert dynamic_axes_of(config(*sized), model) == axes
    spec = spec_of(model, {"images": np.zeros((2, 3, 64, 96), np.float32)}, axes).to_json()
    assert spec["inputs"][0]["shape"] == ["batch", 3, "height", "width"] and spec["inputs"][0]["size"] == [64, 96]
    unnamed = onnx.load(path)
    for side in unnamed.graph.input[0].type.tensor_type.shape.dim:
        side.ClearField("dim_param")
    unnamed.graph.output[0].type.tensor_type.shape.dim[0].ClearField("dim_param")
    onnx.save(unnamed, path)
    report, out = traced(tmp_path, *sized)
    spec = json.loads((out / "io_spec.json").read_text())
    assert spec["inputs"][0]["shape"] == ["batch", 3, "images_2", "images_3"]
    assert spec["outputs"][0]["shape"] == ["batch", 3]
    assert str(load_model(out / "model.onnx").graph.inputs[0].shape) == "[batch,3,images_2,images_3]"
    assert report["parity"]["batch_sizes"] == [1, 3]


def test_a_batch_that_the_file_fixes_is_filled_up_and_cut(tmp_path: Path) -> None:
    write(tmp_path / "m.onnx", "2, 3, 32, 32", "2")
    model = open_model(config(), tmp_path)
    images = torch.rand(5, 3, 32, 32)
    (found,) = model.module(images)
    weight = torch.arange(1.0, 10.0).reshape(3, 3)
    assert found.shape == (5, 3) and torch.allclose(found, images.mean((2, 3)) @ weight, atol=1e-5)
    report, out = traced(tmp_path)
    assert report["parity"]["batch_sizes"] == [2]
    assert json.loads((out / "io_spec.json").read_text())["inputs"][0]["shape"] == [2, 3, 32, 32]


def test_weights_outside_the_file_travel(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        HEAD + " g (float[n, 3, 8, 8] images) => (float[n, 64] y) { flat = Flatten (images)  y = MatMul (flat, w) }"
    )
    weights = np.random.default_rng(0).random((192, 64), np.float32)
    model.graph.initializer.append(onnx.numpy_helper.from_array(weights, "w"))
    (tmp_path / "given").mkdir()
    path = tmp_path / "given" / "m.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin")
    placed = "model.checkpoint=given/m.onnx"
    assert files(config(placed), tmp_path) == [path, path.parent / "weights.bin"]
    report, out = traced(tmp_path, placed)
    assert report["parameters"] == weights.size
    path.with_name("weights.bin").unlink()
    feed = np.random.default_rng(1).random((1, 3, 8, 8), np.float32)
    found = Session(out / "model.onnx").run({"images": feed})["y"]
    assert np.allclose(found, feed.reshape(1, -1) @ weights, atol=1e-4)


TWO = """ g (float[n, 3, 32, 32] images, int64[n, 2] sizes) => (float[n, 3] pooled, int64[n, 2] doubled) {
    pooled = ReduceMean <axes = [2, 3], keepdims = 0> (images)
    doubled = Add (sizes, sizes)
}"""
DECLARED = [
    {"name": "sizes", "kind": "picture_size", "dtype": "int64", "shape": None},
    {"name": "images", "kind": "images", "dtype": "float32", "shape": None},
]


def test_a_size_beside_images_is_known_by_its_name_or_declared(tmp_path: Path) -> None:
    write(tmp_path / "m.onnx", text=TWO)
    expected = [("images", "images", ("batch", 3, 32, 32)), ("sizes", "picture_size", ("batch", 2))]
    for model in (open_model(config(inputs=DECLARED), tmp_path), open_model(config(), tmp_path)):
        assert [(each.name, each.kind, each.shape) for each in model.inputs] == expected
    with torch.no_grad():
        pooled, doubled = model.module(torch.ones(2, 3, 32, 32), torch.full((2, 2), 32))
    assert pooled.shape == (2, 3) and doubled.tolist() == [[64, 64]] * 2


@pytest.mark.parametrize(
    ("changed", "code", "facts"),
    [
        (
            {"inputs": DECLARED[1:]},
            *("wrong-name", ["model.inputs", "images float32 [n, 3, 32, 32]", "sizes int64 [n, 2]", "images"]),
        ),
        (
            {"inputs": [DECLARED[0] | {"kind": "images"}, DECLARED[1]]},
            *("wrong-shape", ["model.inputs", "[N, 3, H, W]", "[N, H, W, 3]", "sizes int64 [n, 2]"]),
        ),
        (
            {"inputs": DECLARED, "image_size": [64, 64]},
            *("in-conflict", ["model.image_size", "images float32 [n, 3, 32, 32]", "[64, 64]"]),
        ),
    ],
)
def test_declarations_that_do_not_fit_the_file(
    changed: dict[str, Any], code: str, facts: list[str], tmp_path: Path
) -> None:
    write(tmp_path / "m.onnx", text=TWO)
    found = values(*(["model.image_size=[64,64]"] if "image_size" in changed else []))
    found["model"] |= changed
    with raises(code) as error:
        open_model(validated(found), tmp_path)
    in_order(str(error.value), *facts)


def output(name: str, kind: str = "classes", **layout: Any) -> dict[str, Any]:
    keys = ("take", "activation", "format", "normalized", "no_object")
    return {"name": name, "kind": kind} | dict.fromkeys(keys) | layout


def test_declared_outputs_go_before_the_spec_in_the_file_and_the_others_are_tensors(tmp_path: Path) -> None:
    write(tmp_path / "m.onnx", text=TWO)
    model = open_model(config(inputs=DECLARED, outputs=[output("pooled")]), tmp_path)
    assert [(each.name, each.kind) for each in model.outputs] == [("pooled", "classes"), ("doubled", None)]
    with raises("wrong-name", "model.outputs", tmp_path / "m.onnx", "logits", "pooled, doubled"):
        open_model(config(inputs=DECLARED, outputs=[output("logits")]), tmp_path)
    write(tmp_path / "m.onnx", spec=SPEC)
    model = open_model(config(outputs=[output("classes", "tensor")]), tmp_path)
    assert [(each.name, each.kind) for each in model.outputs] == [("classes", None)]


def test_channels_last_pictures(tmp_path: Path) -> None:
    write(tmp_path / "m.onnx", text=" g (float[n, 32, 64, 3] x) => (float[n, 32, 64, 3] y) { y = Relu (x) }")
    (entry,) = open_model(config(), tmp_path).inputs
    assert (entry.name, entry.layout, entry.size) == ("x", "NHWC", (32, 64))
    with raises("in-conflict", "model.preprocessing.layout", "x float32 [n, 32, 64, 3]", "NCHW"):
        open_model(config("model.preprocessing.layout=NCHW"), tmp_path)


@pytest.mark.parametrize(
    ("text", "code", "facts"),
    [
        (
            " g (float16[n, 3, 8, 8] x) => (float16[n, 3, 8, 8] y) { y = Relu (x) }",
            *("wrong-dtype", ["model.checkpoint", "half precision", "FP32"]),
        ),
        (
            " g (float[n, 3, 8, 8] x) => (float[n, 3, 8, 8] y) "
            "{ h = Cast <to = 10> (x)  [relu] r = Relu (h)  y = Cast <to = 1> (r) }",
            *("wrong-dtype", ["model.checkpoint", "half precision", "FP32"]),
        ),
        (
            " g (float[n, 3, 8, 8] x) => (float[n, 3, 8, 8] y) <float16[1] w = {1}> "
            "{ f = Cast <to = 1> (w)  y = Mul (x, f) }",
            *("wrong-dtype", ["model.checkpoint", "half precision", "FP32"]),
        ),
        (
            " g (bfloat16[n, 3, 8, 8] x) => (bfloat16[n, 3, 8, 8] y) { y = Relu (x) }",
            *("wrong-dtype", ["model.checkpoint", "half precision", "FP32"]),
        ),
        (
            " g (double[n, 3, 8, 8] x) => (double[n, 3, 8, 8] y) { y = Relu (x) }",
            *("wrong-dtype", ["model.checkpoint", "'x'", "DOUBLE", "FP32"]),
        ),
        (
            " g (float[n, 3, 8, 8] x, float[n, 5] s) => (float[n, 3, 8, 8] x2) { x2 = Relu (x) }",
            *("needs-value", ["model.inputs", "x float32 [n, 3, 8, 8]", "s float32 [n, 5]"]),
        ),
        (
            " g (float[n, 3, 8, 8] x) => (seq(float[n, 1, 8, 8]) y) { y = SplitToSequence <axis = 1> (x) }",
            *("wrong-file", ["model.checkpoint", "'y'"]),
        ),
        (
            " g (float[n, 3, 8, 8] x) => (float[n, 3, 8, 8] y) { [nms] y = EfficientNMS_TRT (a) a = Relu (x) }",
            *("not-supported", ["model.checkpoint", "'nms'", "truehalf convert"]),
        ),
        (
            " g (float[n, 4, 8, 8] x) => (float[n, 4, 8, 8] y) { y = Relu (x) }",
            *("needs-value", ["model.inputs", "x float32 [n, 4, 8, 8]"]),
        ),
        (
            " g (float[3, 16, 16] x) => (float[n, 4] y) <int64[2] s = {-1, 4}> { y = Reshape (x, s) }",
            *("not-supported", ["model.checkpoint", "'x'", "truehalf convert"]),
        ),
    ],
)
def test_files_that_are_refused(text: str, code: str, facts: list[str], tmp_path: Path) -> None:
    write(tmp_path / "m.onnx", text=text)
    with raises(code) as error:
        open_model(config(), tmp_path)
    in_order(str(error.value), *facts)


def test_files_that_are_no_models_or_do_not_run(tmp_path: Path) -> None:
    with raises("file-missing", tmp_path / "m.onnx"):
        open_model(config(), tmp_path)
    assert files(config(), tmp_path) == [tmp_path / "m.onnx"]
    (tmp_path / "m.onnx").write_bytes(b"not a model")
    with raises("file-unreadable", tmp_path / "m.onnx", "11 bytes"):
        open_model(config(), tmp_path)
    write(tmp_path / "m.onnx", text=" g (float[n, 3, 8, 8] x) => (float[n, 3, 8, 8] y) { y = Absent (x) }")
    with raises("runtime-refuses", tmp_path / "m.onnx", "Absent"):
        open_model(config(), tmp_path)


def test_a_reference_that_is_not_finite_is_refused(tmp_path: Path) -> None:
    text = " g (float[n, 3, 8, 8] images) => (float[n, 3, 8, 8] y) { z = Sub (images, images)  y = Log (z) }"
    write(tmp_path / "m.onnx", text=text)
    with raises("not-finite", tmp_path / "m.onnx", "'y'", "NaN", 576):
        traced(tmp_path)


@pytest.mark.parametrize(
    ("override", "key", "code", "facts"),
    [
        (
            "model.checkpoint=null",
            *("model.checkpoint", "needs-value", ["model=onnx", "FP32", "model.checkpoint=/path/to/model.onnx"]),
        ),
        ("decoder=dfine", "decoder", "in-conflict", ["none", "dfine"]),
        ("model.drop_outputs=[aux]", "model.drop_outputs", "in-conflict", ["[]", "['aux']"]),
        ("precision.method=half", "precision.method", "in-conflict", ["half", "precision.method=convert"]),
        ("model.options.opset=3", "model.options.opset", "unknown-key", ["trained"]),
    ],
)
def test_what_it_does_not_take(override: str, key: str, code: str, facts: list[str]) -> None:
    with refuses(key, code, *facts):
        config(override)


def test_weights_that_are_listed_among_the_inputs_are_weights(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        HEAD + " g (float[n, 3, 32, 32] images, float[3, 3] w) => (float[n, 3] classes)"
        " <float[3, 3] w = {1, 2, 3, 4, 5, 6, 7, 8, 9}> {"
        " pooled = ReduceMean <axes = [2, 3], keepdims = 0> (images)  classes = MatMul (pooled, w) }"
    )
    onnx.save(model, tmp_path / "m.onnx")
    opened = open_model(config(), tmp_path)
    assert [each.name for each in opened.inputs] == ["images"] and any("(w)" in note for note in opened.notes)
    _, out = traced(tmp_path)
    assert [each["name"] for each in json.loads((out / "io_spec.json").read_text())["inputs"]] == ["images"]
    assert [value.name for value in load_model(out / "model.onnx").graph.inputs] == ["images"]
