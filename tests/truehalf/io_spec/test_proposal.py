"""Outputs that are plainly detections, compared as such where no I/O spec declares them; all others as tensors."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper
from PIL import Image

from tests.corpus.pairs import replayed, unbatched
from tests.corpus.pairs.detections import (
    CLASSES,
    ROWS,
    SIZE,
    Scene,
    as_queries,
    as_top_k,
    lowered,
    noisy,
    permuted,
    scene,
)
from tests.corpus.pairs.rows import FORMS
from tests.messages import expect
from truehalf import convert
from truehalf.cli.app import run as truehalf
from truehalf.codes import codes_in
from truehalf.ir.model_forms import ModelFile
from truehalf.verification.chain.compare import compare
from truehalf.verification.contradictions import class_names_in
from truehalf.verification.propose import propose_spec
from truehalf.verification.report import Report

SIDE, PICTURES = 64, 12
Outputs = dict[str, np.ndarray]


def written(path: Path, outputs: Outputs) -> Path:
    """A model that outputs the row whose number is the largest value of an image, in 255ths."""
    return with_pictures(replayed(outputs), path)


def with_pictures(model: onnx.ModelProto, path: Path) -> Path:
    """A model whose input "x" is the largest value of an image, in 255ths."""
    del model.graph.input[:]
    model.graph.input.append(helper.make_tensor_value_info("images", TensorProto.FLOAT, ["N", 3, SIDE, SIDE]))
    weights = {"levels": np.float32(255), "axis": np.array([1])}
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in weights.items())
    nodes = [
        helper.make_node("ReduceMax", ["images"], ["largest"], axes=[1, 2, 3], keepdims=0),
        helper.make_node("Mul", ["largest", "levels"], ["scaled"]),
        helper.make_node("Round", ["scaled"], ["number"]),
        helper.make_node("Unsqueeze", ["number", "axis"], ["x"]),
    ]
    for place, node in enumerate(nodes):
        model.graph.node.insert(place, node)
    onnx.save(model, path)
    return path


def images() -> dict[str, np.ndarray]:
    levels = np.arange(PICTURES, dtype=np.float32)[:, None, None, None] / 255
    return {"images": np.ones((1, 3, SIDE, SIDE), np.float32) * levels}


def in_layout(outputs: Outputs, box_format: str, normalized: bool) -> Outputs:
    """The same with boxes of another format, in shares of the image or in its pixels."""
    corners = outputs["boxes"] / (1 if "logits" in outputs else np.float32(SIZE)) * (1 if normalized else SIDE)
    low, high = corners[..., :2], corners[..., 2:]
    centred = np.concatenate([(low + high) / 2, high - low], axis=2)
    return outputs | {"boxes": (corners if box_format == "xyxy" else centred).astype(np.float32)}


def shuffled(outputs: Outputs) -> Outputs:
    order = np.random.default_rng(7).permutation(ROWS)
    return {name: value[:, order] for name, value in outputs.items()}


def softmax(s: Scene) -> Outputs:
    """With a "no object" whose logit is large, as networks have it."""
    found = as_queries(s, "softmax")
    return found | {"logits": found["logits"] + np.float32(8)}


def compared(folder: Path, reference: Outputs, candidate: Outputs, **more: Any) -> Report:
    files = written(folder / "fp32.onnx", reference), written(folder / "other.onnx", candidate)
    return compare(*files, images(), locate=False, **more)


LAYOUTS = [(as_queries, "cxcywh", True), (as_queries, "xyxy", False), (as_top_k, "xyxy", False)]
LAYOUTS += [(softmax, "cxcywh", True), (lambda s: as_queries(s, "identity"), "xyxy", True)]


@pytest.mark.parametrize(("make", "box_format", "normalized"), LAYOUTS)
def test_rows_that_change_places_are_matched(make: Any, box_format: str, normalized: bool, tmp_path: Path) -> None:
    expected = in_layout(make(scene(3)), box_format, normalized)
    report = compared(tmp_path, expected, shuffled(expected))
    assert report.verdict == "passed" and report.task == "detections"
    assert report.proposed is not None and "spec-proposed" in codes_in("\n".join(report.not_verified))
    kinds = {each["kind"]: each for each in report.proposed["outputs"]}
    assert (kinds["boxes"]["format"], kinds["boxes"]["normalized"]) == (box_format, normalized)
    assert compared(tmp_path, expected, shuffled(expected), spec={}).verdict == "failed", "asked for as tensors"
    found = propose_spec(tmp_path / "fp32.onnx", images())
    assert found.doubts == [] and found.spec.to_json()["outputs"] == [
        {key: value for key, value in each.items() if key != "shape"} for each in report.proposed["outputs"]
    ]


@pytest.mark.parametrize("names", ["none", "classes"])
@pytest.mark.parametrize("form", FORMS)
def test_one_tensor_is_read_as_detections(form: str, names: str, tmp_path: Path) -> None:
    """Names of classes in a file of any tool tell objectness from a class."""
    put_out, columns, axis = FORMS[form]
    start, rng = replace(scene(3), boxes=scene(3).boxes * np.float32(SIDE / SIZE)), np.random.default_rng(0)
    files = []
    for name, change in (("fp32", lambda s, _: s), ("good", noisy), ("bad", lowered)):
        other = change(start, rng) if change is not noisy else replace(change(scene(3), rng), boxes=start.boxes)
        file = written(tmp_path / f"{name}.onnx", {"output0": np.ascontiguousarray(put_out(other))})
        model = onnx.load(file)
        model.metadata_props.add(key=names, value=str({i: f"class-{i}" for i in range(CLASSES)}))
        onnx.save(model, file)
        files.append(file)
    good, bad = (compare(files[0], each, images(), locate=False) for each in files[1:])
    if form in ("anchors", "objectness") and names == "none":
        assert (good.task, good.verdict, bad.verdict) == ("tensors", "passed", "failed")
        return
    assert (good.task, good.verdict, bad.verdict) == ("detections", "passed", "failed")
    assert good.proposed is not None
    (output,) = good.proposed["outputs"]
    found = [output[key] for key in ("kind", "columns", "axis", "format", "normalized")]
    assert found == ["rows", columns, axis, "xyxy", False]
    assert len(good.proposed["class_names"]) == (CLASSES if names == "classes" else 0)
    assert "beyond-gate" in codes_in(bad.reasons[0])


@pytest.mark.parametrize("form", unbatched.FORMS)
def test_rows_of_one_image_are_read_as_detections(form: str, tmp_path: Path) -> None:
    """Of a file that runs any number of images, which puts their rows one after the other."""
    start, files = replace(scene(3), boxes=scene(3).boxes * np.float32(SIDE / SIZE)), []
    for change in (lambda s, _: s, permuted, lowered):
        model = unbatched.FORMS[form][0](change(start, np.random.default_rng(0)))
        files.append(with_pictures(model, tmp_path / f"{len(files)}.onnx"))
    good, bad = (compare(files[0], each, images(), locate=False) for each in files[1:])
    assert (good.task, good.verdict, bad.verdict) == ("detections", "passed", "failed")
    assert good.proposed is not None
    keys = ("kind", "columns", "axis", "format", "normalized", "batched")
    found, expected = (
        {each["name"]: [each.get(key) for key in keys] for each in outputs}
        for outputs in (good.proposed["outputs"], unbatched.FORMS[form][1])
    )
    assert found == expected


@pytest.mark.parametrize("name", ["num_detections", "total"])
def test_floats_may_be_labels_and_counts(name: str, tmp_path: Path) -> None:
    found = as_top_k(scene(3))
    found |= {"labels": found["labels"].astype(np.float32), "boxes": found["boxes"] * np.float32(SIDE / SIZE)}
    outputs = {f"detection_{key}": value for key, value in found.items()} | {name: np.full(12, 40, np.float32)}
    proposal = propose_spec(written(tmp_path / "m.onnx", outputs), images())
    expected = {f"detection_{key}": key for key in found} | {name: "counts" if name == "num_detections" else None}
    assert {each.name: each.kind for each in proposal.spec.outputs} == expected


@pytest.mark.parametrize("none", ["first", True])
def test_scores_of_softmax_say_which_class_is_no_object(none: bool | str, tmp_path: Path) -> None:
    found = in_layout(as_queries(scene(3), "identity"), "xyxy", True)
    rest = 1 - found["logits"].sum(axis=2, keepdims=True)
    parts = [rest, found["logits"]] if none == "first" else [found["logits"], rest]
    file = written(tmp_path / "m.onnx", found | {"logits": np.concatenate(parts, axis=2)})
    (logits,) = (each for each in propose_spec(file, images()).spec.outputs if each.kind == "logits")
    assert (logits.activation, logits.no_object) == ("identity", none)


def small_boxes(box_format: str, normalized: bool, seed: int) -> Outputs:
    """A top-k detector's, of 3 % to 20 % of the side, all of them in the upper left part of the image."""
    rng = np.random.default_rng(seed)
    low, sides = rng.uniform(0.02, 0.1, (PICTURES, 6, 2)), rng.uniform(0.12, 0.2, (PICTURES, 6, 2))
    first, second = {"xyxy": (low, low + sides), "xywh": (low, sides), "cxcywh": (low + 0.3, sides)}[box_format]
    boxes = np.float32(np.concatenate([first, second], axis=2) * (1 if normalized else SIDE))
    scores, labels = rng.uniform(0.6, 0.9, (PICTURES, 6)).astype(np.float32), rng.integers(0, 5, (PICTURES, 6))
    return {"boxes": boxes, "scores": scores, "labels": labels}


@pytest.mark.parametrize(("box_format", "normalized", "seed"), [("xyxy", True, 0), ("xywh", False, 1)])
def test_a_format_that_small_boxes_do_not_show_is_not_proposed(
    box_format: str, normalized: bool, seed: int, tmp_path: Path
) -> None:
    """Corners may be x, y, width, height."""
    outputs = small_boxes(box_format, normalized, seed)
    found = propose_spec(written(tmp_path / "m.onnx", outputs), images())
    (boxes,) = [each for each in found.spec.outputs if each.kind == "boxes"]
    assert boxes.format is None and boxes.normalized is normalized
    expect("; ".join(found.doubts), None, "'boxes'", "xyxy", "xywh")


def test_small_boxes_of_a_known_format_are_proposed_with_what_else_they_may_be(tmp_path: Path) -> None:
    found = propose_spec(written(tmp_path / "m.onnx", small_boxes("cxcywh", True, 3)), images())
    assert [each.format for each in found.spec.outputs if each.kind == "boxes"] == ["cxcywh"]
    expect(found.reasons["boxes"], None, "xywh")


def ambiguous() -> dict[str, Outputs]:
    plain = in_layout(as_queries(scene(5)), "cxcywh", True)
    rng = np.random.default_rng(0)
    return {
        "two outputs of boxes": plain | {"first_boxes": plain["boxes"]},
        "rows that all score": plain | {"logits": rng.normal(0, 2, plain["logits"].shape).astype(np.float32)},
        "nothing that scores": plain | {"logits": plain["logits"] - np.float32(9)},
        "boxes beyond the image": plain | {"boxes": plain["boxes"] * np.float32(1000)},
        "boxes of noise": plain | {"boxes": rng.random(plain["boxes"].shape, np.float32)},
        "boxes that are not finite": plain | {"boxes": np.full_like(plain["boxes"], np.inf)},
        "no scores": {"boxes": plain["boxes"]},
    }


@pytest.mark.parametrize("outputs", ambiguous().values(), ids=list(ambiguous()))
def test_what_is_not_plain_is_compared_as_tensors(outputs: Outputs, tmp_path: Path) -> None:
    report = compared(tmp_path, outputs, outputs)
    assert report.task == "tensors" and report.proposed is None


def test_a_spec_says_how_images_are_read(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Without one, the message has the size that the model fixes."""
    source = written(tmp_path / "own.onnx", in_layout(as_queries(scene(6)), "cxcywh", True))
    (tmp_path / "pictures").mkdir()
    for i in range(PICTURES):
        Image.new("RGB", (SIDE, SIDE), (i, i, i)).save(tmp_path / "pictures" / f"{i:02}.png")
    command = ["convert", str(source), "--samples", str(tmp_path / "pictures")]
    assert truehalf(command) == 2
    expect(capsys.readouterr().err, "needs-value", f"--size {SIDE}x{SIDE}")
    spec = tmp_path / "spec.json"
    assert truehalf(["inspect", *command[1:], "--spec", str(spec)]) == 0
    assert truehalf([*command, "--spec", str(spec), "--json", str(tmp_path / "found.json")]) in (0, 3)
    found = json.loads((tmp_path / "found.json").read_text())["comparison"]
    assert found["task"] == "detections" and found["passed"] and found["proposed"] is None


def test_the_first_command_finds_the_verdict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    source = written(tmp_path / "own.onnx", in_layout(as_queries(scene(6)), "cxcywh", True))
    model = onnx.load(source)
    (last,) = (node for node in model.graph.node if "logits" in node.output)
    last.output[0] = "features"
    model.graph.node.append(helper.make_node("MatMul", ["features", "weight"], ["logits"]))
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.eye(6, dtype=np.float32), "weight"))
    onnx.save(model, source)
    np.savez(tmp_path / "feeds.npz", **images())
    assert truehalf(["convert", str(source), "--samples", str(tmp_path / "feeds.npz")]) == 0
    assert "spec-proposed" in codes_in(capsys.readouterr().out.splitlines()[0])


def test_a_detector_that_scales_boxes_to_the_size_of_its_images_takes_a_folder_of_them(tmp_path: Path) -> None:
    """As RT-DETR and D-FINE are exported: images and orig_target_sizes, to labels, boxes and scores."""
    source = written(tmp_path / "own.onnx", in_layout(as_top_k(scene(6)), "xyxy", True))
    model = onnx.load(source)
    model.graph.input[0].type.tensor_type.shape.dim[3].dim_value = 2 * SIDE
    model.graph.input.insert(0, helper.make_tensor_value_info("orig_target_sizes", TensorProto.INT64, ["N", 2]))
    (last,) = (node for node in model.graph.node if "boxes" in node.output)
    last.output[0] = "shares"
    model.graph.node.extend(
        [
            helper.make_node("Cast", ["orig_target_sizes"], ["sides"], to=TensorProto.FLOAT),
            helper.make_node("Concat", ["sides", "sides"], ["corners"], axis=1),
            helper.make_node("Unsqueeze", ["corners", "axis"], ["scale"]),
            helper.make_node("Mul", ["shares", "scale"], ["boxes"]),
        ]
    )
    onnx.save(model, source)
    (tmp_path / "pictures").mkdir()
    for level in range(PICTURES):
        Image.new("RGB", (2 * SIDE, SIDE), (level, level, level)).save(tmp_path / "pictures" / f"{level:02}.png")
    spec = tmp_path / "spec.json"
    assert truehalf(["inspect", str(source), "--samples", str(tmp_path / "pictures"), "--spec", str(spec)]) == 0
    declared = json.loads(spec.read_text())
    assert [each["kind"] for each in declared["inputs"]] == ["picture_size", "images"]
    (boxes,) = (each for each in declared["outputs"] if each["kind"] == "boxes")
    assert (boxes["format"], boxes["normalized"]) == ("xyxy", False)
    assert propose_spec(source, tmp_path / "pictures").doubts == [], "boxes lie in the image: its width comes first"
    report = compare(source, source, tmp_path / "pictures", spec=spec, locate=False)
    assert report.verdict == "passed" and report.detections and report.detections["matched"] > 20


SHOWN = {
    "channels last": ("float[N, 8, 6, 3] x", "float[N, 3] y", "y = ReduceMean<axes = [1, 2], keepdims = 0>(x)"),
    "bytes": (
        "uint8[N, 8, 6, 3] x",
        "float[N, 3] y",
        "f = Cast<to = 1>(x) y = ReduceMean<axes = [1, 2], keepdims = 0>(f)",
    ),
    "bytes first": (
        "uint8[N, 3, 8, 6] x",
        "float[N, 8, 6] y",
        "f = Cast<to = 1>(x) y = ReduceMean<axes = [1], keepdims = 0>(f)",
    ),
    "not finite": ("float[N, 3, 8, 6] x", "float[N, 3, 8, 6] y", "n = Neg(x) l = Log(n) y = Sqrt(l)"),
    "no tensor": ("float[N, 3, 8, 6] x", "seq(float[N, 1, 8, 6]) y", "y = SplitToSequence<axis = 1>(x)"),
}
EXPECTED: dict[str, tuple[str, list[int]]] = {
    "channels last": ("NHWC", [0, 1]),
    "bytes": ("NHWC", [0, 255]),
    "bytes first": ("NCHW", [0, 255]),
    "not finite": ("NCHW", [0, 1]),
    "no tensor": ("NCHW", [0, 1]),
}
CODES = {"not finite": ["not-finite"]}


@pytest.mark.parametrize("preprocessing", [None, {"size": [8, 6]}])
@pytest.mark.parametrize("name", SHOWN)
def test_layout_and_range_are_those_of_the_input(
    name: str, preprocessing: dict[str, Any] | None, tmp_path: Path
) -> None:
    given, output, nodes = SHOWN[name]
    model = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g ({given}) => ({output}) {{ {nodes} }}')
    onnx.save(model, tmp_path / "m.onnx")
    (tmp_path / "pictures").mkdir()
    Image.new("RGB", (60, 40), (250, 9, 80)).save(tmp_path / "pictures" / "a.png")
    found = propose_spec(tmp_path / "m.onnx", tmp_path / "pictures", preprocessing)
    layout, pixels = EXPECTED[name]
    image = found.spec.image_input
    assert image.layout == layout and image.pixels["range"] == pixels
    assert codes_in("\n".join(found.notes)) == CODES.get(name, [])
    assert any("'x': images were read" in each for each in found.notes) is (image.dtype != "uint8"), "none are shown"


TOLD: dict[str, Any] = {"channels": "BGR", "range": [0, 255], "mean": [9.0, 8.0, 7.0], "std": [2.0, 2.0, 2.0]}


def test_a_spec_keeps_preprocessing_that_was_given_and_parts_given_beside_it_change_those_alone(tmp_path: Path) -> None:
    """--size beside a spec leaves the spec's channels, range, mean and std."""
    given, output, _ = SHOWN["not finite"]
    text = f'<ir_version: 8, opset_import: ["": 17]> g ({given}) => ({output}) {{ y = Neg(x) }}'
    model = tmp_path / "m.onnx"
    onnx.save(onnx.parser.parse_model(text), model)
    (tmp_path / "pictures").mkdir()
    Image.new("RGB", (60, 40), (250, 9, 80)).save(tmp_path / "pictures" / "a.png")
    found = propose_spec(model, tmp_path / "pictures", TOLD | {"resize": "letterbox"})
    assert not any("images were read" in each for each in found.notes)
    spec = found.spec.to_json()
    for preprocessing, expected in (
        (None, TOLD),
        ({"size": [8, 6]}, TOLD),
        ({"range": [0, 1], "mean": [0.0, 0.0, 0.0]}, TOLD | {"range": [0, 1], "mean": [0.0, 0.0, 0.0]}),
    ):
        report = compare(model, model, tmp_path / "pictures", spec=spec, preprocessing=preprocessing)
        assert report.preprocessing is not None
        assert report.preprocessing == report.preprocessing | expected | {"resize": "letterbox", "size": [8, 6]}


def keeping(level: float) -> onnx.ModelProto:
    """A detector that puts out what scores above a level."""
    return onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 17]> g (float[1,8,4] b, float[1,8,3] raw)'
        f" => (float[1,n,4] boxes, float[1,n,3] logits) <int64[1] zero = {{0}}, float level = {{{level}}}> {{"
        " s = Sigmoid(raw) m = ReduceMax<axes = [2], keepdims = 0>(s) above = Greater(m, level)"
        " keep = Squeeze(above, zero) boxes = Compress<axis = 1>(b, keep) logits = Compress<axis = 1>(s, keep) }"
    )


@pytest.mark.parametrize(("level", "empty"), [(2.0, 0), (0.7, 2)])
def test_detectors_that_find_nothing_on_some_samples(level: float, empty: int, tmp_path: Path) -> None:
    draw, model = np.random.default_rng(17), keeping(level)
    feeds = [
        {
            "b": np.sort(draw.uniform(0, 1, (1, 8, 4)), axis=2).astype(np.float32),
            "raw": draw.normal(-9 if i < empty else 0, 1, (1, 8, 3)).astype(np.float32),
        }
        for i in range(6)
    ]
    onnx.save(model, tmp_path / "m.onnx")
    made = convert(model, tmp_path / "o.onnx", samples=feeds)
    assert made.report.check is not None and made.report.check.state == ("not verified" if level > 1 else "verified")
    report = compare(tmp_path / "m.onnx", tmp_path / "o.onnx", feeds)
    assert report.passed or (level > 1 and "nothing-compared" in codes_in("\n".join(report.reasons)))


def test_an_output_is_a_number_on_some_samples_and_empty_on_others(tmp_path: Path) -> None:
    model = onnx.parser.parse_model(
        '<ir_version: 9, opset_import: ["" : 18]> g (float[n] x) => (float y) { y = Squeeze(x) }'
    )
    model.graph.output[0].type.tensor_type.ClearField("shape")
    onnx.save(model, tmp_path / "m.onnx")
    feeds = [{"x": np.ones(count, np.float32)} for count in (0, 1, 3)]
    assert compare(*[tmp_path / "m.onnx"] * 2, feeds).task == "tensors"


def test_rows_that_are_no_samples_are_no_classes(tmp_path: Path) -> None:
    text = '<ir_version: 9, opset_import: ["" : 17]> g (float[n,4] x, float[m,4] w) => (float[a,b] logits) {'
    onnx.save(onnx.parser.parse_model(f"{text} t = Transpose(w) logits = MatMul(x, t) }}"), tmp_path / "m.onnx")
    draw = np.random.default_rng(18)
    for rows, widths, kind in (([3, 3], [5, 5], "classes"), ([3, 2, 4], [5, 3, 6], None)):
        feeds = [
            {name: draw.normal(size=(count, 4)).astype(np.float32) for name, count in zip("xw", sides, strict=True)}
            for sides in zip(rows, widths, strict=True)
        ]
        found = propose_spec(tmp_path / "m.onnx", feeds).spec
        assert [each.kind for each in found.outputs] == [kind]
        if kind is None:
            spec = {"outputs": [{"name": "logits", "kind": "classes"}]}
            report = compare(*[tmp_path / "m.onnx"] * 2, feeds, spec=spec)
            assert report.verdict == "not verified" and codes_in(report.reasons[0]) == ["not-comparable"]


@pytest.mark.parametrize(
    ("metadata", "names"),
    [
        ({"input_names": "['images']", "names": "{0: 'person', 1: 'car'}"}, ("person", "car")),
        ({"output_names": "['a', 'b']"}, ()),
        ({"names": "OrderedDict([(0, 'a'), (1, 'b')])"}, ()),
        ({"class_names": '["a", "b"]'}, ("a", "b")),
        ({"dataset.classes": "a,b"}, ("a", "b")),
        ({"names": "person"}, ()),
    ],
)
def test_names_of_classes_in_the_metadata_of_other_tools(
    metadata: dict[str, str], names: tuple[str, ...], tmp_path: Path
) -> None:
    model = replayed({"output0": np.zeros((1, 3), np.float32)})
    for key, value in metadata.items():
        model.metadata_props.add(key=key, value=value)
    onnx.save(model, tmp_path / "model.onnx")
    assert class_names_in(ModelFile(tmp_path / "model.onnx").model) == names
