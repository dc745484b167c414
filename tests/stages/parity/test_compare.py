"""The door `compare`: interfaces, inputs, tensors, classes, pictures; what is wrong is said, all of it."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest
from PIL import Image

from stages.io import StageError
from stages.models.source import SPEC_KEY
from stages.parity.compare import Report, compare

X = np.random.default_rng(0).normal(0, 1, (4, 3)).astype(np.float32)
PLAIN = "(float[N,3] x) => (float[N,3] y) { y = Relu (x) }"


def model(path: Path, text: str = PLAIN, spec: Any = None, **weights: np.ndarray) -> Path:
    proto = onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["" : 17]> g {text}')
    proto.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in weights.items())
    if spec is not None:
        entry = proto.metadata_props.add()
        entry.key, entry.value = SPEC_KEY, spec if isinstance(spec, str) else json.dumps(spec)
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(proto, path)
    return path


def held(folder: Path, reference: str, candidate: str, inputs: Any = None, **options: Any) -> Report:
    files = model(folder / "fp32.onnx", reference), model(folder / "other.onnx", candidate)
    return compare(*files, {"x": X} if inputs is None else inputs, **{"locate": False} | options)


def faults(folder: Path, reference: str, candidate: str, inputs: Any = None, **options: Any) -> list[str]:
    with pytest.raises(StageError) as error:
        held(folder, reference, candidate, inputs, **options)
    return [line.removeprefix("  - ") for line in str(error.value).splitlines()]


# --- interfaces -------------------------------------------------------------------------------------------------------


def test_a_file_passes_against_itself(tmp_path: Path) -> None:
    report = held(tmp_path, PLAIN, PLAIN)
    assert report.passed and report.verdict == "passed" and report.reasons == [] and report.task == "tensors"
    assert (report.evaluation, report.provider, report.reference_evaluation, report.samples) == (
        "fp32-cpu",
        "CPUExecutionProvider",
        "fp32-cpu",
        1,
    )
    errors = report.outputs["y"]
    assert (errors.max_abs, errors.sqnr_db, errors.limit) == (0.0, np.inf, pytest.approx(0.01 * X.max()))
    assert report.first_bad_node is None and report.suspects == [] and report.worst_sample is None


def test_float16_inside_a_function_is_emulated(tmp_path: Path) -> None:
    """x * 4e4 * 4e4 is Inf in FP16, and x again behind the two divisions in FP32."""
    function = """<ir_version: 8, opset_import: ["" : 17, "local" : 1]>
        g (float[N,3] x) => (float[N,3] y) { y = local.scaled (x) }
        <domain: "local", opset_import: ["" : 17]> scaled (a) => (b) {
            h = Cast <to = 10> (a)  large = Constant <value_float = 40000.0> ()  big = Cast <to = 10> (large)
            p = Mul (h, big)  q = Mul (p, big)  r = Div (q, big)  s = Div (r, big)  b = Cast <to = 1> (s) }"""
    reference = model(tmp_path / "fp32.onnx", "(float[N,3] x) => (float[N,3] y) { y = Identity (x) }")
    onnx.save(onnx.parser.parse_model(function), tmp_path / "function.onnx")
    report = compare(reference, tmp_path / "function.onnx", {"x": X}, locate=False)
    assert (report.verdict, report.evaluation) == ("failed", "emulated-fp16") and report.outputs["y"].inf == X.size


def test_a_comparison_of_nothing_is_no_pass(tmp_path: Path) -> None:
    report = held(tmp_path, PLAIN, PLAIN, {"x": -np.abs(X)})
    assert report.passed and any("nothing but 0" in said for said in report.not_verified)
    infinite = "(float[N,3] x) => (float[N,3] y) { z = Sub (x, x) y = Log (z) }"
    report = held(tmp_path, infinite, infinite)
    assert report.verdict == "not verified" and "nothing finite" in report.reasons[0]


def test_inputs_outside_the_declared_range_are_said(tmp_path: Path) -> None:
    entry = {"name": "x", "range": [0, 1], "normalization": {"where": "inside the graph"}}
    for scale, said in ((1, False), (255, True)):
        inputs = {"x": np.linspace(0, scale, 12, dtype=np.float32).reshape(4, 3)}
        found = held(tmp_path, PLAIN, PLAIN, inputs, spec={"inputs": [entry], "outputs": []}).not_verified
        assert any("'x' goes from 0 to 255, and the I/O spec declares 0 to 1" in line for line in found) == said


def test_a_candidate_without_float16_is_said_and_cuda_is_never_the_cpu(tmp_path: Path) -> None:
    assert "FP16: the candidate holds none" in held(tmp_path, PLAIN, PLAIN).not_verified
    import onnxruntime

    if "CUDAExecutionProvider" not in onnxruntime.get_available_providers():
        assert "CUDAExecutionProvider" in faults(tmp_path, PLAIN, PLAIN, evaluation="cuda")[0]


def test_every_difference_of_the_interfaces_is_listed(tmp_path: Path) -> None:
    lines = faults(
        tmp_path,
        "(float[N,3] x, float[N] a) => (float[N,3] y, int64[N] i, float[N] z) { y = Relu (x) i = f (a) z = Neg (a) }",
        "(float[N,3,1] x, float[N] b) => (int32[N] i, float[N,3] y) { y = Relu (x) i = f (b) }",
    )
    assert lines == [
        "the two files differ in their inputs and outputs:",
        "input 'a': the candidate has none of this name",
        "input 'b': the reference has none of this name",
        "input 'x': expected 2 axes, got 3",
        "output 'z': the candidate has none of this name",
        "output 'i': expected INT64, got INT32",
    ]


def test_another_order_is_a_difference_and_other_sides_or_float16_are_none(tmp_path: Path) -> None:
    two = "(float[N,3] x, float[N,3] z) => (float[N,3] y) { y = Sub (x, z) }"
    other = two.replace("float[N,3] x, float[N,3] z", "float[N,3] z, float[N,3] x")
    assert faults(tmp_path, two, other)[1] == "inputs in another order: expected x, z, got z, x"
    half = "(float16[4,3] x) => (float16[4,3] y) { y = Relu (x) }"
    report = held(tmp_path, PLAIN, half)
    assert report.passed and report.evaluation == "emulated-fp16"
    assert report.outputs["y"].ulp is not None and report.outputs["y"].ulp["0"] == X.size


def test_weights_that_an_old_file_lists_as_inputs_are_none(tmp_path: Path) -> None:
    listed = "(float[N,3] x, float[3] w) => (float[N,3] y) <float[3] w = {1.0, 2.0, 3.0}> { y = Mul (x, w) }"
    inside = "(float[N,3] x) => (float[N,3] y) <float[3] w = {1.0, 2.0, 3.0}> { y = Mul (x, w) }"
    assert held(tmp_path, listed, inside).passed


def test_outputs_that_are_no_tensors_are_refused(tmp_path: Path) -> None:
    text = "(float[N,3] x) => (seq(float[N,3]) s) { s = SequenceConstruct (x) }"
    assert "output 's': expected a tensor, got Sequence" in faults(tmp_path, text, text)[1]


# --- inputs -----------------------------------------------------------------------------------------------------------


def test_faults_of_inputs_are_named_with_what_was_expected(tmp_path: Path) -> None:
    lines = faults(tmp_path, PLAIN, PLAIN, {"x": X.astype(np.float64), "z": X})
    assert lines[0] == "input does not fit the model:"
    assert "'x': expected float32 [N, 3], got float64 [4, 3]; convert the array" in lines[1]
    assert "'z' is no input of the model; it has 'x'" in lines[2]


def test_nan_in_the_inputs_is_refused_and_inf_is_not(tmp_path: Path) -> None:
    broken = np.stack([X, X])[:, None]
    broken[1, 0, 2, 1] = np.nan
    lines = faults(tmp_path, PLAIN.replace("N,3", "1,4,3"), PLAIN.replace("N,3", "1,4,3"), {"x": broken})
    assert lines == ["NaN in the inputs, where nothing can be compared:", "'x' of feed[1]: 1 of 12 values"]
    masked = X.copy()
    masked[0, 0] = -np.inf
    assert held(tmp_path, PLAIN.replace("Relu", "Neg"), PLAIN.replace("Relu", "Neg"), {"x": masked}).passed


def test_sides_that_only_the_candidate_fixes_are_named(tmp_path: Path) -> None:
    lines = faults(tmp_path, PLAIN.replace("N,3", "N,M"), PLAIN.replace("N,3", "1,3"))
    assert lines[1] == "input 'x': the candidate expects [1, 3], got [4, 3]"


def test_files_and_folders_of_arrays(tmp_path: Path) -> None:
    np.savez(tmp_path / "s.npz", x=X)
    (tmp_path / "folder").mkdir()
    for name in "ab":
        np.savez(tmp_path / "folder" / f"{name}.npz", x=X[:2])
    assert held(tmp_path / "m", PLAIN, PLAIN, tmp_path / "s.npz").samples == 1
    report = held(tmp_path / "m", PLAIN, PLAIN.replace("Relu", "Neg"), str(tmp_path / "folder"))
    assert report.samples == 2 and report.worst_sample == "a"


# --- the tensor rule --------------------------------------------------------------------------------------------------


def scaled(by: float) -> str:
    return f"(float[N,3] x) => (float[N,3] y) <float s = {{{by}}}> {{ y = Mul (x, s) }}"


def test_tolerance_is_relative_to_the_largest_of_the_reference(tmp_path: Path) -> None:
    assert held(tmp_path, scaled(1000), scaled(1009)).passed
    report = held(tmp_path, scaled(1000), scaled(1011))
    assert report.verdict == "failed" and len(report.reasons) == 1
    assert "output 'y': max |d| is" in report.reasons[0] and "tolerance 0.01 of max |reference|" in report.reasons[0]
    assert held(tmp_path, scaled(1000), scaled(1011), tolerance=0.02).passed
    assert not held(tmp_path, scaled(1000), scaled(1000.001), tolerance=0).passed
    assert held(tmp_path, scaled(0), scaled(0), tolerance=0).passed
    assert not held(tmp_path, scaled(0), scaled(1e-30)).passed


@pytest.mark.parametrize(
    ("cast", "limit", "said"), [(7, 0.0, "1 of 12 integer values differ"), (9, 0.0, "1 of 12 bool values differ")]
)
def test_integers_and_bools_must_be_equal(tmp_path: Path, cast: int, limit: float, said: str) -> None:
    dtype = {7: "int64", 9: "bool"}[cast]
    text = f"(float[N,3] x) => ({dtype}[N,3] y) {{ z = Add (x, d) y = Cast<to={cast}> (z) }}"
    large, delta = np.full((4, 3), 2.0**20, np.float32) * (cast == 7), np.zeros((4, 3), np.float32)
    delta[1, 1] = 1
    a = model(tmp_path / "a.onnx", text, d=np.zeros_like(delta))
    b = model(tmp_path / "b.onnx", text, d=delta)
    assert compare(a, a, {"x": large}).passed
    report = compare(a, b, {"x": large}, locate=False)
    assert report.verdict == "failed" and said in report.reasons[0]
    assert report.outputs["y"].limit == limit and report.outputs["y"].sqnr_db is None


def test_strings_must_be_equal(tmp_path: Path) -> None:
    text = '(float[N,3] x) => (string[2] s) <string[2] w = {"a", "WORD"}> { s = Identity (w) }'
    assert held(tmp_path, text.replace("WORD", "b"), text.replace("WORD", "b")).passed
    assert not held(tmp_path, text.replace("WORD", "b"), text.replace("WORD", "c")).passed


def constant(*values: float) -> dict[str, np.ndarray]:
    return {"c": np.array(values, np.float32)}


ADDED = "(float[N,3] x) => (float[N,3] y) { y = Add (x, c) }"


@pytest.mark.parametrize(
    ("reference", "candidate", "verdict", "said"),
    [
        ([0, -np.inf, 0], [0, -np.inf, 0], "passed", None),
        ([0, -np.inf, 0], [0, -65504, 0], "failed", "a finite value or another Inf where the reference is Inf"),
        ([0, -np.inf, 0], [0, np.inf, 0], "failed", "another Inf where the reference is Inf"),
        ([0, 0, 0], [0, np.inf, np.nan], "failed", "4 NaN and 4 Inf of 12 values where the reference is finite"),
        ([0, np.nan, 0], [0, np.nan, 0], "not verified", "the reference itself holds 4 NaN of 12 values"),
        ([0, np.nan, 0], [0, 1, 0], "not verified", "the reference itself holds 4 NaN of 12 values"),
        ([0, np.nan, 0], [1, np.nan, 0], "failed", "max |d| is 1"),
        ([0, -np.inf, 0], [0, np.nan, 0], "failed", "where the reference is Inf"),
    ],
)
def test_values_that_are_no_numbers(tmp_path: Path, reference, candidate, verdict: str, said: str | None) -> None:
    a = model(tmp_path / "a.onnx", ADDED, **constant(*reference))
    b = model(tmp_path / "b.onnx", ADDED, **constant(*candidate))
    report = compare(a, b, {"x": X}, locate=False)
    assert report.verdict == verdict
    assert (said is None and report.reasons == []) or said in report.reasons[0]


def test_other_shapes_fail_and_empty_outputs_are_not_verified(tmp_path: Path) -> None:
    found = "(float[N,3] x) => (int64[2,K] y) <float t = {LIMIT}> { z = Sub (x, t) r = Relu (z) y = NonZero (r) }"
    report = held(tmp_path, found.replace("LIMIT", "0.0"), found.replace("LIMIT", "1.0"))
    assert report.verdict == "failed" and "expected shape [2, " in report.reasons[0] and "on feed" in report.reasons[0]
    report = held(tmp_path, found.replace("LIMIT", "99.0"), found.replace("LIMIT", "99.0"))
    assert report.verdict == "not verified" and "is empty in every run: nothing was compared" in report.not_verified[0]


def test_a_model_without_inputs(tmp_path: Path) -> None:
    assert held(tmp_path, *["() => (float[1] y) { y = Constant<value_floats = [1.0]> () }"] * 2, {}).passed


# --- classes ----------------------------------------------------------------------------------------------------------

CLASSES = {"outputs": [{"name": "y", "kind": "classes"}]}


def test_classes_and_a_flip_within_the_tolerance(tmp_path: Path) -> None:
    a = model(tmp_path / "a.onnx", ADDED, CLASSES, **constant(100, 100.5, 0))
    b = model(tmp_path / "b.onnx", ADDED, CLASSES, **constant(100.9, 100.5, 0))
    inputs = {"x": np.zeros((4, 3), np.float32)}
    passed = compare(a, a, inputs)
    assert passed.passed and passed.task == "classification" and passed.samples == 4
    assert passed.classification is not None and passed.classification["top1_agreement"] == 1.0
    report = compare(a, b, inputs, locate=False)
    assert report.outputs["y"].passed and report.verdict == "failed"
    assert report.reasons == ["label_flips is 4 of 4 samples, expected 0: another class is the best one"]
    assert compare(a, b, inputs, spec=CLASSES | {"trained": False}, locate=False).verdict == "not verified"


# --- batches ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("batch", [1, 2, 3, 25])
def test_samples_are_run_in_groups(tmp_path: Path, batch: int) -> None:
    a = model(tmp_path / "a.onnx", ADDED, CLASSES, **constant(0, 0, 0))
    b = model(tmp_path / "b.onnx", ADDED, CLASSES, **constant(0.001, 0, 0))
    report = compare(a, b, {"x": X}, batch=batch)
    whole = compare(a, b, {"x": X})
    assert report.samples == 4 and report.outputs == whole.outputs and report.worst_sample == whole.worst_sample
    sizes = {1: "1", 2: "2", 3: "1, 3", 25: "4"}[batch]
    assert f"batch sizes other than {sizes}" in report.not_verified


def test_a_fixed_batch_is_fed_as_it_asks(tmp_path: Path) -> None:
    a = model(tmp_path / "a.onnx", ADDED, CLASSES, **constant(0, 0, 0))
    free = compare(a, model(tmp_path / "b.onnx", ADDED, **constant(0.001, 0, 0)), {"x": X})
    for size in ("1", "3", "8"):
        fixed = model(tmp_path / "c.onnx", ADDED.replace("N", size), **constant(0.001, 0, 0))
        assert compare(a, fixed, {"x": X}).outputs == free.outputs


def test_without_kinds_a_feed_runs_as_it_stands(tmp_path: Path) -> None:
    over_samples = "(float[N,3] x) => (float[N,3] y) { y = Softmax <axis = 0> (x) }"
    assert held(tmp_path, over_samples, over_samples, batch=1).passed
    report = held(tmp_path, over_samples, over_samples.replace("axis = 0", "axis = 1"), batch=1)
    assert report.verdict == "failed" and report.samples == 1


# --- FP16, and where it goes wrong ------------------------------------------------------------------------------------

OVERFLOW = """(float[N,3] x) => (float[N,3] y) <float up = {3000.0}, float down = {0.001}> {
    h = Cast<to = 10> (x)
    u = Cast<to = 10> (up)
    d = Cast<to = 10> (down)
    [amplify] a = Mul (h, u)
    b = Mul (a, d)
    y = Cast<to = 1> (b)
}"""
SAME = OVERFLOW.replace("to = 10", "to = 1")


def test_overflow_fails_and_is_located_on_the_worst_sample(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = {}

    def find_suspects(reference: Path, candidate: Path, feeds: dict, **_: Any) -> list[str]:
        asked.update(files=(reference.name, candidate.name), x=feeds["x"])
        return ["suspect"]

    monkeypatch.setattr("stages.parity.locate.find_suspects", find_suspects, raising=False)
    monkeypatch.setattr("stages.parity.locate.first_bad_node", lambda suspects, **_: f"of {suspects}", raising=False)
    feeds = [{"x": X * 0.1}, {"x": np.full((1, 3), 60000, np.float32)}, {"x": X * 0.2}]
    report = held(tmp_path, SAME, OVERFLOW, feeds, locate=True)
    assert report.verdict == "failed" and report.evaluation == "emulated-fp16" and report.worst_sample == "feed[1]"
    assert report.outputs["y"].inf == report.outputs["y"].nonfinite_new == 3
    assert asked["files"] == ("fp32.onnx", "other.onnx") and asked["x"].tolist() == [[60000] * 3]
    assert report.suspects == ["suspect"] and report.first_bad_node == "of ['suspect']"
    asked.clear()
    assert held(tmp_path, SAME, OVERFLOW, feeds[0], locate=True).passed and not asked
    assert held(tmp_path, SAME, OVERFLOW, feeds[0], locate="always").passed and asked["x"].shape == (4, 3)


def test_a_search_that_fails_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def find_suspects(*_: Any, **__: Any) -> list[Any]:
        raise StageError("no node of the candidate is one of the reference")

    monkeypatch.setattr("stages.parity.locate.find_suspects", find_suspects, raising=False)
    monkeypatch.setattr("stages.parity.locate.first_bad_node", lambda *_, **__: None, raising=False)
    report = held(tmp_path, PLAIN, PLAIN.replace("Relu", "Neg"), locate=True)
    assert report.verdict == "failed" and report.first_bad_node is None
    assert "where it goes wrong: no node of the candidate is one of the reference" in report.not_verified


def test_what_emulation_does_not_say_is_said(tmp_path: Path) -> None:
    report = held(tmp_path, SAME, OVERFLOW, {"x": X})
    assert report.passed and any("add up in FP16" in item for item in report.not_verified)
    report = held(tmp_path, OVERFLOW, OVERFLOW, {"x": X})
    assert report.passed and report.reference_evaluation == "emulated-fp16"
    assert any("the reference holds FP16 itself" in item for item in report.not_verified)


def test_a_file_that_passed_has_no_bad_node_but_where_rounding_does_not_explain_it(tmp_path: Path) -> None:
    exp = "(float[4] x) => (float[4] y) { y = Exp (x) }"
    x = {"x": np.full(4, 0.3, np.float32)}
    report = held(tmp_path, exp, exp.replace("float[", "float16["), x, locate="always")
    assert report.passed and report.suspects and report.first_bad_node is None
    wrong = "(float[N,3] x) => (float[N,3] y) { [first] y = Abs (x) }"
    report = held(tmp_path, wrong, wrong.replace("Abs", "Neg"), {"x": X}, tolerance=10.0, locate="always")
    assert report.passed and report.first_bad_node == "first"


def test_the_search_rounds_as_the_run_that_failed_did(tmp_path: Path) -> None:
    """600 added up 128 times and taken away again: a partial sum overflows, the sum does not."""
    total = "(float[1,256] x) => (float[1,1] y) { [total] y = ReduceSum <keepdims = 1> (x, axes) }"
    half, axes = total.replace("float[", "float16["), np.array([1])
    x = {"x": np.repeat(np.array([[600, -600]], np.float32), 128, axis=1)}
    files = model(tmp_path / "fp32.onnx", total, axes=axes), model(tmp_path / "half.onnx", half, axes=axes)
    assert compare(*files, x).passed
    report = compare(*files, x, evaluation="emulated-fp16-pessimistic")
    assert report.verdict == "failed" and report.first_bad_node == "total"


def test_sums_that_a_pessimistic_run_does_not_round_are_said(tmp_path: Path) -> None:
    lrn = "(float[2,3,1,1] x) => (float[2,3,1,1] y) { [lrn] y = LRN <size = 1> (x) }"
    x = {"x": X[:2].reshape(2, 3, 1, 1)}
    for evaluation, said in (("emulated-fp16-pessimistic", True), ("emulated-fp16", False)):
        report = held(tmp_path, lrn, lrn.replace("float[", "float16["), x, evaluation=evaluation)
        assert report.passed and any("not rounded (lrn: " in item for item in report.not_verified) is said


# --- pictures ---------------------------------------------------------------------------------------------------------

MEANS = "(float[N,3,8,8] images) => (float[N,3] y) { y = ReduceMean <axes = [2, 3], keepdims = 0> (images) }"
PIXELS = {"inputs": [{"name": "images", "layout": "NCHW", "channels": "RGB", "range": [0, 1]}]}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "pictures").mkdir()
    for i in range(3):
        Image.new("RGB", (20, 10), (i * 80, 0, 255)).save(tmp_path / "pictures" / f"{i}.png")
    return tmp_path / "pictures"


def test_a_folder_of_pictures(tmp_path: Path, folder: Path) -> None:
    a = model(tmp_path / "a.onnx", MEANS, PIXELS)
    report = compare(a, a, folder, batch=2)
    assert report.passed and report.samples == 3 and report.left_out == {}
    assert report.preprocessing is not None and report.preprocessing["size"] == [8, 8]
    report = compare(a, a, str(folder), preprocessing={"range": [0, 255]})
    assert report.outputs["y"].limit == pytest.approx(2.55)


def test_pictures_without_a_preprocessing_or_beside_arrays_are_refused(tmp_path: Path, folder: Path) -> None:
    a = model(tmp_path / "a.onnx", MEANS)
    with pytest.raises(StageError, match="pictures need a preprocessing"):
        compare(a, a, folder)
    np.savez(folder / "x.npz", images=np.zeros((1, 3, 8, 8), np.float32))
    with pytest.raises(StageError, match="it holds both"):
        compare(a, a, folder, preprocessing={})
    (tmp_path / "empty").mkdir()
    with pytest.raises(StageError, match="there are none in it"):
        compare(a, a, tmp_path / "empty", preprocessing={})
    with pytest.raises(StageError, match="it goes with a folder of pictures"):
        compare(a, a, {"images": np.zeros((1, 3, 8, 8), np.float32)}, preprocessing={})


def test_a_corrupt_picture_is_named_or_left_out_and_named(tmp_path: Path, folder: Path) -> None:
    a = model(tmp_path / "a.onnx", MEANS, PIXELS)
    (folder / "1.png").write_bytes(b"no picture")
    with pytest.raises(StageError, match=r"1 of 3 pictures cannot be read[\s\S]*1\.png"):
        compare(a, a, folder)
    report = compare(a, a, folder, skip_corrupt=True)
    assert report.passed and report.samples == 2 and list(report.left_out) == ["1.png"]
    assert any(item.startswith("picture 1.png: left out") for item in report.not_verified)


# --- specs, options, files --------------------------------------------------------------------------------------------


def test_a_spec_may_be_given_as_a_file_and_overrides_the_files_own(tmp_path: Path) -> None:
    a = model(tmp_path / "a.onnx", PLAIN, CLASSES)
    (tmp_path / "spec.yaml").write_text("outputs: [{name: y}]")
    assert compare(a, a, {"x": X}).task == "classification"
    assert compare(a, a, {"x": X}, spec=tmp_path / "spec.yaml").task == "tensors"
    assert compare(a, a, {"x": X}, spec={}).task == "tensors"


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ("{", "truehalf.io_spec in the metadata of"),
        ("[1]", "expected a mapping, got list"),
        ({"outputs": [{"name": "z"}]}, "output 'z': the model has none of this name; it has 'y'"),
        ({"outputs": [{"name": "y", "kind": "boxes"}]}, "expected format cxcywh or xyxy, got none"),
    ],
)
def test_faults_of_specs(tmp_path: Path, spec: Any, said: str) -> None:
    a = model(tmp_path / "a.onnx", PLAIN, spec)
    with pytest.raises(StageError) as error:
        compare(a, a, {"x": X})
    assert said in str(error.value)


def test_outputs_that_are_not_of_their_kind_are_refused(tmp_path: Path) -> None:
    kinds = [{"name": "y", "kind": "logits", "activation": "sigmoid"}]
    boxes = [{"name": "b", "kind": "boxes", "format": "xyxy", "normalized": False}]
    a = model(tmp_path / "a.onnx", "(float[N,3] x) => (float[N,3] y, float[N,3] b) { y = Relu (x) b = Relu (x) }")
    with pytest.raises(StageError) as error:
        compare(a, a, {"x": X}, spec={"outputs": kinds + boxes})
    assert "output 'y', kind 'logits': expected [N, queries, classes], got shape [4, 3]" in str(error.value)
    assert "output 'b', kind 'boxes': expected [N, boxes, 4], got shape [4, 3]" in str(error.value)


def test_numbers_of_numpy_are_numbers(tmp_path: Path) -> None:
    assert held(tmp_path, PLAIN, PLAIN, tolerance=np.float32(0.5), batch=np.int64(2)).passed


def test_all_bad_options_are_listed(tmp_path: Path) -> None:
    wrong = {"evaluation": "fp16", "tolerance": -1, "batch": 0, "score_threshold": 2, "iou_threshold": "x", "locate": 3}
    lines = faults(tmp_path, PLAIN, PLAIN, **wrong)
    assert [line.split(":")[0] for line in lines] == ["bad options", *wrong]


def test_a_file_that_cannot_be_loaded_or_run_is_named_with_its_node(tmp_path: Path) -> None:
    unknown = "(float[N,3] x) => (float[N,3] y) { [odd] y = Nonsense (x) }"
    (line,) = faults(tmp_path, PLAIN, unknown)
    assert "other.onnx" in line and "Nonsense" in line and len(line) < 700
    broken = "(float[N,3] x) => (float[M,K] y) <int64[2] s = {5, 5}> { [fold] y = Reshape (x, s) }"
    (line,) = faults(tmp_path, PLAIN, broken)
    assert "other.onnx (the candidate)" in line and "fold" in line and len(line) < 700
    with pytest.raises(StageError, match=r"absent\.onnx: no such file"):
        compare(tmp_path / "fp32.onnx", tmp_path / "absent.onnx", {"x": X})


def test_a_report_is_json_and_the_same_every_time(tmp_path: Path) -> None:
    texts = []
    for _ in range(2):
        report = held(tmp_path, SAME, OVERFLOW, {"x": X * 60000})
        texts.append(json.dumps(report.as_dict(), allow_nan=False))
    assert texts[0] == texts[1]
    content = json.loads(texts[0])
    assert content["passed"] is False and content["outputs"]["y"]["max_abs"] == "inf"
