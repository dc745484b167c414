"""The I/O spec and the file: held against each other, then one in the other's metadata."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest

from tests.messages import raises
from tests.truehalf.models.refusing import in_order
from tests.truehalf.models.small_modules import FEATURES, SPEC
from truehalf.io_spec.in_file import (
    SPEC_KEY,
    attach,
    check_declared,
    check_names,
    given_spec,
    named_axes,
    spec_inside,
    spec_text,
)
from truehalf.io_spec.spec import IoSpec

HEAD = '<ir_version: 8, opset_import: ["": 17]> g'
ROWS = '(float["n", 4] x) => (float["n", 3] y) <float[4,3] w = {1,1,1,1,1,1,1,1,1,1,1,1}> { y = MatMul(x, w) }'

FREE = 'float["batch", 4, "rows", "columns"] features, float["batch", 4] mean'
VARYING = {"features": [2, 3], "mean": []}


def of_text(text: str) -> ir.Model:
    return ir.from_onnx_text(f"{HEAD} {text}")


def file_of(outputs: str) -> ir.Model:
    """A file with the inputs of FEATURES."""
    images = 'float["batch", 3, "height", "width"] images'
    return of_text(f"({images}) => ({outputs}) {{ features = Relu(images) mean = Relu(images) }}")


def shapes(model: ir.Model) -> list[str]:
    return [str(value.shape) for value in (*model.graph.inputs, *model.graph.outputs)]


@pytest.mark.parametrize("said", [{"kind": "images"}, {"range": [0, 1], "channels": "RGB"}])
def test_the_input_of_images_is_the_one_that_says_so(said: dict[str, Any]) -> None:
    spec = IoSpec.from_json({"inputs": [{"name": "sizes", "kind": "picture_size"}, {"name": "x", **said}]})
    assert spec.image_input.name == "x"
    assert IoSpec.from_json({"inputs": [{"name": "sizes"}, {"name": "x"}]}).image_input.name == "sizes"


def test_axes_that_vary_are_those_with_a_name() -> None:
    assert named_axes(IoSpec.from_json(FEATURES)) == {
        "images": {0: "batch", 2: "height", 3: "width"},
        "features": {0: "batch"},
        "mean": {0: "batch"},
    }


@pytest.mark.parametrize(
    ("logits", "boxes", "facts"),
    [
        ((5, 7), (5, 3), ["'boxes'", "[N, boxes, 4]", "['n', 5, 3]"]),
        ((5, 7), (5, 4), None),
    ],
)
def test_outputs_that_are_not_what_they_are_declared_to_be(
    logits: tuple[int, ...], boxes: tuple[int, ...], facts: list[object] | None
) -> None:
    shapes = {"logits": logits, "boxes": boxes}
    spec = SPEC | {"outputs": [{"name": name, "kind": name, "shape": ["n", *shape]} for name, shape in shapes.items()]}
    if facts is None:
        check_declared(IoSpec.from_json(spec))
        return
    with raises("wrong-shape") as error:
        check_declared(IoSpec.from_json(spec))
    in_order(str(error.value), *facts, "model.outputs", "`take`")


@pytest.mark.parametrize(("classes", "got"), [(["ant", "bee", "cat"], None), (["ant", "bee"], 2)])
def test_classes_are_as_many_as_the_model_has(classes: list[str], got: int | None) -> None:
    spec = SPEC | {"outputs": [{"name": "y", "kind": "classes", "shape": ["n", 3]}], "class_names": classes}
    if got is None:
        check_declared(IoSpec.from_json(spec))
        return
    with raises("wrong-class-count") as error:
        check_declared(IoSpec.from_json(spec))
    in_order(str(error.value), "model.classes", 3, "'y'", got)


@pytest.mark.parametrize(
    ("signature", "facts"),
    [
        ("(float[2] a, float[2] b) => (float[2] c, float[2] d)", None),
        ("(float[2] b, float[2] a) => (float[2] c, float[2] d)", ["inputs", "a, b", "b, a"]),
        ("(float[2] a) => (float[2] c, float[2] d)", ["inputs", "a, b", "a"]),
        ("(float[2] a, float[2] b) => (float[2] d, float[2] c)", ["outputs", "c, d", "d, c"]),
        ("(float[2] a, float[2] b) => (float[2] c, float[2] d, float[2] e)", ["outputs", "c, d", "c, d, e"]),
    ],
)
def test_other_inputs_and_outputs_than_the_specs_are_refused(signature: str, facts: list[str] | None) -> None:
    model = of_text(f"{signature} {{ c = Relu(a) d = Neg(a) e = Abs(a) }}")
    spec = {"inputs": [{"name": "a"}, {"name": "b"}], "outputs": [{"name": "c"}, {"name": "d"}]}
    if facts is None:
        check_names(model, IoSpec.from_json(spec))
        return
    with raises("wrong-name") as error:
        check_names(model, IoSpec.from_json(spec))
    in_order(str(error.value), *facts)


def test_the_spec_is_kept_in_the_file_with_its_shapes() -> None:
    model, spec = file_of('float["n", "c", 16, 16] features, float["k", "l"] mean'), IoSpec.from_json(FEATURES)
    assert attach(model, spec, {}) == spec
    assert model.metadata_props[SPEC_KEY] == spec_text(spec)
    assert shapes(model) == ["[batch,3,height,width]", "[batch,4,16,16]", "[batch,4]"]


def test_a_shape_that_the_file_does_not_say_is_the_specs() -> None:
    model = file_of(FREE)
    for value in model.graph.outputs:
        value.shape = None
    attach(model, IoSpec.from_json(FEATURES), {})
    assert shapes(model)[1:] == ["[batch,4,16,16]", "[batch,4]"]


@pytest.mark.parametrize(
    ("changes", "code", "facts"),
    [
        ({"name": "z", "shape": ["n", 2]}, "wrong-shape", ["['n', 2]", "['?', 3]"]),
        ({"shape": ["n", 3, 1]}, "wrong-shape", ["['n', 3, 1]", "['?', 3]"]),
        ({"shape": ["n", "m"]}, "wrong-shape", ["['n', 'm']", "['?', 3]"]),
        ({"dtype": "float16"}, "wrong-dtype", ["float16", "float32"]),
    ],
)
def test_outputs_that_contradict_the_spec_are_refused(changes: dict[str, Any], code: str, facts: list[str]) -> None:
    model = of_text(ROWS)
    with raises(code) as error:
        attach(model, IoSpec.from_json(SPEC | {"outputs": [SPEC["outputs"][0] | changes]}), {})
    in_order(str(error.value), "'y'", *facts)
    assert SPEC_KEY not in model.metadata_props


@pytest.mark.parametrize(
    ("changes", "code", "facts"),
    [
        ({"shape": ["n", 5]}, "wrong-shape", ["['n', 5]", "['?', 4]"]),
        ({"dtype": "int64"}, "wrong-dtype", ["int64", "float32"]),
    ],
)
def test_inputs_that_contradict_the_spec_are_refused(changes: dict[str, Any], code: str, facts: list[str]) -> None:
    with raises(code) as error:
        attach(of_text(ROWS), IoSpec.from_json(SPEC | {"inputs": [SPEC["inputs"][0] | changes]}), {})
    in_order(str(error.value), "'x'", *facts)


def test_an_axis_that_varies_keeps_the_exporters_name() -> None:
    model = file_of(FREE)
    complete = attach(model, IoSpec.from_json(FEATURES), VARYING).to_json()
    assert complete["outputs"][0] == FEATURES["outputs"][0] | {"shape": ["batch", 4, "rows", "columns"]}
    assert complete["outputs"][1] == FEATURES["outputs"][1] and complete["inputs"] == FEATURES["inputs"]
    assert json.loads(model.metadata_props[SPEC_KEY]) == complete
    assert shapes(model)[1:] == ["[batch,4,rows,columns]", "[batch,4]"]


@pytest.mark.parametrize("known", [True, False])
def test_an_axis_that_varies_without_a_name_gets_one(known: bool) -> None:
    model = file_of(FREE)
    model.graph.outputs[0].shape = ir.Shape(["batch", 4, None, None]) if known else None
    complete = attach(model, IoSpec.from_json(FEATURES), VARYING).to_json()
    assert complete["outputs"][0]["shape"] == ["batch", 4, "features_2", "features_3"]
    assert shapes(model)[1] == "[batch,4,features_2,features_3]"


def test_declared_names_of_output_axes_go_before_the_exporters() -> None:
    shape = ["batch", 4, "lines", "columns_of_mine"]
    spec = FEATURES | {"outputs": [FEATURES["outputs"][0] | {"shape": shape}, FEATURES["outputs"][1]]}
    model = file_of(FREE)
    assert attach(model, IoSpec.from_json(spec), VARYING).to_json() == spec
    assert json.loads(model.metadata_props[SPEC_KEY]) == spec
    assert shapes(model)[1] == "[batch,4,lines,columns_of_mine]"


def test_an_axis_that_varies_in_torch_and_is_fixed_in_the_file_is_refused() -> None:
    with raises("axis-fixed", "axis 2", "'features'", 16, "trace.dynamic_axes"):
        attach(
            file_of('float["batch", 4, 16, "columns"] features, float["batch", 4] mean'),
            IoSpec.from_json(FEATURES),
            VARYING,
        )


@pytest.mark.parametrize("text", ["{", "[1]", '{"outputs": 3}', '{"inputs": [{}]}'])
def test_what_is_no_spec_is_refused_wherever_it_is_read(text: str) -> None:
    model = file_of(FREE)
    assert spec_inside(model) == IoSpec()
    model.metadata_props[SPEC_KEY] = text
    with raises("wrong-spec", SPEC_KEY):
        spec_inside(model)
    model.metadata_props[SPEC_KEY] = json.dumps(FEATURES)
    assert spec_inside(model).to_json() == FEATURES


def test_a_broken_spec_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "spec.yaml").write_text("[{")
    with raises("file-unreadable", "spec.yaml", "line 1") as error:
        given_spec(tmp_path / "spec.yaml")
    assert len(str(error.value).splitlines()) == 1
