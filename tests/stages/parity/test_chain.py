"""A small detector (means of the colours -> 4 queries, 3 classes) verified, whole and broken in known ways."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import pytest
import torch

from conf.schema import Evaluation, GatesConfig, VerifyConfig
from conf.validate import validate
from stages.data.samples import Sample
from stages.io import StageError
from stages.ort.session import Session
from stages.parity import chain, hops
from stages.parity.hops import fixed_batch, holds_fp16
from stages.parity.reference import freeze
from stages.reconversion import Conversion
from tests.conftest import composed

SIZE, QUERIES, CLASSES = 32, 4, 3
OPTIONS = VerifyConfig(
    score_threshold=0.5,
    iou_threshold=0.9,
    batch=5,
    evaluation=Evaluation.emulated_fp16,
    gates=GatesConfig(0.005, 0.99, 0.01, 0, 0),
    pictures=1,
    profile=True,
    require=[],
    skip_corrupt=False,
    suggest=False,
    suggest_runs=300,
)
SPEC = {
    "inputs": [{"name": "images", "shape": ["batch", 3, SIZE, SIZE]}],
    "outputs": [{"name": "logits", "kind": "logits"}, {"name": "boxes", "kind": "boxes"}],
    "class_names": ["ant", "bee", "cat"],
    "trained": True,
}
RNG = np.random.default_rng(0)
TO_LOGITS = RNG.normal(0, 1, (3, QUERIES * CLASSES)).astype(np.float32)
LOGITS = np.full((QUERIES, CLASSES), -6, np.float32)
LOGITS[[0, 1, 2], [0, 2, 1]] = 4  # three clear detections a picture, the fourth query finds nothing
TO_BOXES = RNG.normal(0, 0.2, (3, QUERIES * 4)).astype(np.float32)
BOXES = np.array([[-1, -1, -1, -1], [1, -1, -1, -1], [-1, 1, -1, -1], [1, 1, -1, -1]], np.float32)


class Detector(torch.nn.Module):
    def __init__(self, logits: np.ndarray = LOGITS) -> None:
        super().__init__()
        self.values = [torch.from_numpy(v) for v in (TO_LOGITS, logits, TO_BOXES, BOXES)]

    def forward(self, images):
        means, (to_logits, logits, to_boxes, boxes) = images.mean((2, 3)), self.values
        found = (means @ to_logits).view(-1, QUERIES, CLASSES) + logits
        return found, ((means @ to_boxes).view(-1, QUERIES, 4) + boxes).sigmoid()


FP32 = """
<ir_version: 10, opset_import: ["" : 17]>
detector (float[batch,3,32,32] images) => (float[batch,4,3] logits, float[batch,4,4] boxes) {
    means = ReduceMean <axes = [2, 3], keepdims = 0> (images)
    logits_flat = MatMul (means, to_logits)
    logits_moved = Reshape (logits_flat, logits_shape)
    logits = Add (logits_moved, logits_bias)
    boxes_flat = MatMul (means, to_boxes)
    boxes_moved = Reshape (boxes_flat, boxes_shape)
    boxes_raw = Add (boxes_moved, boxes_bias)
    boxes = Sigmoid (boxes_raw)
}
"""
# The same with its matrix products in FP16; `up` and `down` cancel, in FP32.
FP16 = """
<ir_version: 10, opset_import: ["" : 17]>
detector (float[batch,3,32,32] images) => (float[batch,4,3] logits, float[batch,4,4] boxes) {
    means = ReduceMean <axes = [2, 3], keepdims = 0> (images)
    half_means = Cast <to = 10> (means)
    logits_flat = MatMul (half_means, to_logits)
    logits_moved = Reshape (logits_flat, logits_shape)
    logits_added = Add (logits_moved, logits_bias)
    [amplify] logits_up = Mul (logits_added, up)
    [reduce] logits_half = Mul (logits_up, down)
    logits = Cast <to = 1> (logits_half)
    boxes_flat = MatMul (half_means, to_boxes)
    boxes_moved = Reshape (boxes_flat, boxes_shape)
    boxes_raw = Add (boxes_moved, boxes_bias)
    boxes_half = Sigmoid (boxes_raw)
    boxes = Cast <to = 1> (boxes_half)
}
"""


def write(path, text: str, gain: float = 1.0, queries=range(QUERIES), classes=range(CLASSES), extra=()):
    """A file of the detector; `queries` and `classes` reorder what it puts out; `extra` names further constants."""
    dtype = np.float16 if "half" in text else np.float32
    to_logits = TO_LOGITS.reshape(3, QUERIES, CLASSES)[:, queries][:, :, classes]
    weights = {
        "to_logits": to_logits.reshape(3, -1).astype(dtype),
        "logits_bias": LOGITS[queries][:, classes].astype(dtype),
        "to_boxes": TO_BOXES.reshape(3, QUERIES, 4)[:, queries].reshape(3, -1).astype(dtype),
        "boxes_bias": BOXES[queries].astype(dtype),
        "logits_shape": np.array([-1, QUERIES, CLASSES]),
        "boxes_shape": np.array([-1, QUERIES, 4]),
    }
    if "up" in text:
        weights |= {"up": np.array(gain, dtype), "down": np.array(1 / gain, dtype)}
    weights |= extra if isinstance(extra, dict) else {name: EXTRA[name] for name in extra}
    model = onnx.parser.parse_model(text)
    model.graph.initializer.extend(onnx.numpy_helper.from_array(value, name) for name, value in weights.items())
    path.parent.mkdir(parents=True, exist_ok=True)
    onnx.save(onnx.shape_inference.infer_shapes(model), path)
    return path


def unlabelled(count: int = 12) -> list[Sample]:
    images = np.random.default_rng(1).uniform(0, 1, (count, 3, SIZE, SIZE)).astype(np.float32)
    return [Sample(f"made/{i}", {"images": image}, None, None) for i, image in enumerate(images)]


def labelled(count: int = 12) -> list[Sample]:
    """Samples whose true boxes are what the FP32 model finds."""
    samples = unlabelled(count)
    found = freeze(Detector(), samples, SPEC, 5).found
    kept = [detections.scores >= 0.5 for detections in found]
    return [Sample(s.name, s.feeds, f.boxes[k], f.labels[k]) for s, f, k in zip(samples, found, kept, strict=True)]


def saturated(module=None, spec=SPEC):
    """The reference on adversarial samples: white and black."""
    images = {"white": np.ones((3, SIZE, SIZE), np.float32), "black": np.zeros((3, SIZE, SIZE), np.float32)}
    samples = [Sample(f"adversarial/{name}", {"images": image}, None, None) for name, image in images.items()]
    return freeze(module or Detector(), samples, spec, OPTIONS.batch)


def verified(folder, final, samples=None, spec=SPEC, module=None, fp32=None, options=OPTIONS, adversarial=None, **more):
    """The report of a chain that ends in the file `final`."""
    fp32 = fp32 or write(folder / "slim" / "model.onnx", FP32)
    files = {"trace": fp32, "slim": fp32, "fp16": final, "cast_cleanup": final}
    reference = freeze(module or Detector(), samples or labelled(), spec, OPTIONS.batch)
    (folder / "out").mkdir(parents=True, exist_ok=True)
    more |= {"adversarial": adversarial or saturated(module, spec), "batch_sizes": (1, 8)}
    return chain.verify(reference, files, folder / "out", options, {}, **more)


def test_a_good_fp16_file_passes_under_emulation(tmp_path):
    report = verified(tmp_path, write(tmp_path / "final" / "model.onnx", FP16))
    assert report["status"] == "done" and report["verdict"] == "passed" and report["reasons"] == []
    assert report["evaluation"] == "emulated-fp16" and report["samples"] == 12
    assert report["matched"] == report["reference"] == 36 and report["extra"] == 0
    assert report["ap50_fp32"] == pytest.approx(1.0) and report["ap50_95_drop"] == pytest.approx(0.0)
    assert 1e-4 < report["max_abs_error"]["logits"] < 0.02, "FP16 rounding must show, and stay small"
    assert list(report["hops"]) == ["trace", "slim", "fp16", "cast_cleanup", "engine"]
    measured = list(report["hops"].values())[:4]
    assert [hop["evaluation"] for hop in measured] == ["fp32-cpu"] * 2 + ["emulated-fp16"] * 2
    assert report["hops"]["engine"]["state"] == "not verified" and report["hops"]["engine"]["reason"]
    assert report["hops"]["slim"]["max_abs_error"]["logits"] < 1e-5
    written = {path.name for path in (tmp_path / "out").rglob("*") if path.is_file()}
    assert written >= {"verdict.json", "details.json", "score_error.svg", "box_error.svg", "sample_1.png"}
    details = json.loads((tmp_path / "out" / "details.json").read_text())
    assert len(details["samples"]) == 12 and details["pictures"][0]["file"] == "plots/sample_1.png"


def test_what_was_not_verified_is_said_even_when_all_gates_pass(tmp_path):
    report = verified(tmp_path, write(tmp_path / "final" / "model.onnx", FP16))
    assert any("add up in FP16" in item for item in report["not_verified"])
    assert any("TensorRT engine" in item for item in report["not_verified"])


def test_overflow_fails_and_names_the_node_while_the_cpu_provider_sees_nothing(tmp_path):
    report = verified(tmp_path, write(tmp_path / "final" / "model.onnx", FP16, gain=2.0**15))
    assert report["status"] == "failed" and report["verdict"] == "failed"
    assert report["nan"] + report["inf"] > 0 and report["place"]["nonfinite"][0]["node"] == "amplify"
    assert any("'amplify' (Mul)" in reason and "65504" in reason for reason in report["reasons"])
    claims = report["cpu_provider_claims"]
    assert claims["claimed"]["nonfinite"] == 0 and claims["emulated-fp16"]["nonfinite"] > 0
    assert claims["claimed"]["matched_fraction"] == 1.0
    verdict = json.loads((tmp_path / "out" / "verdict.json").read_text())
    assert len(verdict["worst"]["nonfinite_max"]) == 3
    assert verdict["worst"]["nonfinite_max"][0]["sample"].startswith("made/")


def test_swapped_labels_fail_and_the_worst_are_named(tmp_path):
    report = verified(tmp_path, write(tmp_path / "final" / "model.onnx", FP16, classes=[1, 0, 2]))
    assert report["verdict"] == "failed" and report["label_flips"] == 24
    gate = next(
        g for g in json.loads((tmp_path / "out" / "verdict.json").read_text())["gates"] if "matched" in g["gate"]
    )
    assert len(gate["worst"]) == 3 and all("label became" in item["error"] for item in gate["worst"])
    sentence = report["place"]["sentence"]
    assert "no NaN and no Inf" in sentence, "nothing overflows: the place must not be invented"
    assert "of 12 samples" in sentence and report["place"]["suspects"]


def test_permuted_queries_pass(tmp_path):
    report = verified(tmp_path, write(tmp_path / "final" / "model.onnx", FP16, queries=[2, 0, 3, 1]))
    assert report["verdict"] == "passed" and report["max_abs_error"]["logits"] < 0.02
    details = json.loads((tmp_path / "out" / "details.json").read_text())["hops"]["cast_cleanup"]
    assert details["raw_tensors"]["logits"]["max_abs"] > 5 and details["moved_queries"] == 1.0


def test_a_shifted_box_fails(tmp_path):
    shifted = BOXES.copy()
    path = write(tmp_path / "final" / "model.onnx", FP32)
    model = onnx.load(path)
    shifted[1, 0] += 0.4  # sigmoid(1.4) - sigmoid(1): 2.3 px of 32
    bias = next(tensor for tensor in model.graph.initializer if tensor.name == "boxes_bias")
    bias.CopyFrom(onnx.numpy_helper.from_array(shifted, "boxes_bias"))
    onnx.save(model, path)
    report = verified(tmp_path, path)
    assert report["verdict"] == "failed" and report["missed"] == 12
    worst = json.loads((tmp_path / "out" / "verdict.json").read_text())["worst"]["matched_fraction_min"]
    assert worst[0]["error"].startswith("moved by 2.")


@pytest.mark.parametrize(("size", "gain"), [(5, 1.0), (1, 1.0), (20, 1.0), (5, 2.0**15)])
def test_a_fixed_batch_is_fed_as_it_asks(tmp_path, size, gain):
    free = verified(tmp_path / "free", write(tmp_path / "free" / "final" / "model.onnx", FP16, gain))
    fp32 = write(tmp_path / "slim" / "model.onnx", FP32.replace("batch", str(size)))
    final = write(tmp_path / "final" / "model.onnx", FP16.replace("batch", str(size)), gain)
    report = verified(tmp_path, final, fp32=fp32)
    assert report["samples"] == 12 and report["verdict"] == free["verdict"]
    assert (
        report["max_abs_error"] == free["max_abs_error"] and report["nan"] + report["inf"] == free["nan"] + free["inf"]
    )
    assert report["cpu_provider_claims"] == free["cpu_provider_claims"]
    batch = next(check for check in report["checks"] if check["check"] == "batch")
    assert batch["state"] == "not verified" and f"the file's batch is fixed to {size}" in batch["reason"]
    assert f"batch sizes other than {size}" in report["not_verified"]
    if gain > 1:
        assert report["place"]["nonfinite"][0]["node"] == "amplify"
        assert f"repeated {size} times" in report["place"]["sentence"]


def test_inputs_fixed_to_different_batches_are_refused():
    import onnx_ir as ir

    text = """<ir_version: 10, opset_import: ["" : 17]>
    g (float[2, 3] a, float[N] b, float[4] c) => (float[2, 3] y) { y = Identity (a) }"""
    with pytest.raises(StageError, match=r"model\.onnx: the first axes of its inputs differ \(a: 2, c: 4\)"):
        fixed_batch(ir.from_proto(onnx.parser.parse_model(text)), Path("model.onnx"))


def test_a_cpu_provider_that_refuses_the_file_loses_nothing(tmp_path, monkeypatch):
    final = write(tmp_path / "final" / "model.onnx", FP16)

    class RefusesFinal(Session):
        def __init__(self, path, *args):
            if path == final:
                raise StageError("ONNX Runtime cannot load it: no kernel")
            super().__init__(path, *args)

    monkeypatch.setattr(hops, "Session", RefusesFinal)
    report = verified(tmp_path, final)
    assert report["cpu_provider_claims"] == {"error": "ONNX Runtime cannot load it: no kernel"}
    assert report["verdict"] == "passed" and report["samples"] == 12
    assert json.loads((tmp_path / "out" / "verdict.json").read_text())["verdict"] == "passed"


def test_nodes_of_a_cuda_session_that_ran_on_the_cpu_are_not_verified(tmp_path):
    samples = labelled()
    reference = freeze(Detector(), samples, SPEC, OPTIONS.batch)
    hop = hops.measure_file(write(tmp_path / "model.onnx", FP16), reference, len(samples), OPTIONS)
    hop = replace(hop, facts=hop.facts | {"batches": {"sizes": []}})
    assert not any("CPU provider" in item for item in chain.not_verified([], hop, 12))
    placed = replace(hop, facts=hop.facts | {"evaluation": "cuda", "cpu_nodes": [f"n{i} (Mul)" for i in range(12)]})
    said = next(item for item in chain.not_verified([], placed, 12) if "CPU provider" in item)
    assert "12 nodes" in said and "n9 (Mul) and 2 more" in said and "n10" not in said


def test_a_file_without_fp16_runs_on_the_cpu_provider(tmp_path):
    report = verified(tmp_path, write(tmp_path / "final" / "model.onnx", FP32))
    assert report["verdict"] == "passed" and report["evaluation"] == "fp32-cpu"
    assert report["cpu_provider_claims"] is None and not any("FP16" in item for item in report["not_verified"])


def test_float16_inputs_and_outputs_are_fed_and_read(tmp_path):
    half_io = FP16.replace("float[", "float16[").replace(
        "half_means = Cast <to = 10> (means)", "half_means = Identity (means)"
    )
    half_io = half_io.replace("logits = Cast <to = 1>", "logits = Identity").replace(
        "boxes = Cast <to = 1>", "boxes = Identity"
    )
    report = verified(tmp_path, write(tmp_path / "final" / "model.onnx", half_io))
    assert report["verdict"] == "passed" and report["evaluation"] == "emulated-fp16"


def test_untrained_weights_are_not_verified_never_passed(tmp_path):
    report = verified(tmp_path, write(tmp_path / "final" / "model.onnx", FP16), spec=SPEC | {"trained": False})
    assert report["verdict"] == "not verified" and report["status"] == "done"
    assert report["matched_fraction"] is None and report["ap50_95"] is None
    assert any("random" in item for item in report["not_verified"])


def test_untrained_weights_with_nan_fail(tmp_path):
    final = write(tmp_path / "final" / "model.onnx", FP16, gain=2.0**15)
    assert verified(tmp_path, final, spec=SPEC | {"trained": False})["verdict"] == "failed"


def test_no_labels_leave_average_precision_unverified(tmp_path):
    report = verified(tmp_path, write(tmp_path / "final" / "model.onnx", FP16), samples=unlabelled())
    assert report["verdict"] == "not verified" and report["matched_fraction"] == 1.0 and report["ap50_95"] is None
    assert any("no labels" in reason for reason in report["reasons"])


def test_no_detection_in_the_reference_means_nothing_was_compared(tmp_path):
    quiet = Detector(np.full((QUERIES, CLASSES), -9, np.float32))
    final = write(tmp_path / "final" / "model.onnx", FP32)
    report = verified(tmp_path, final, samples=unlabelled(), module=quiet, adversarial="none here")
    assert report["verdict"] == "not verified" and "adversarial pictures: none here" in report["not_verified"]
    assert any("nothing was compared" in reason for reason in report["reasons"])


def test_a_reference_that_is_not_finite_is_an_error_at_once():
    broken = Detector(np.where(LOGITS > 0, np.nan, LOGITS))
    with pytest.raises(StageError, match="'logits' holds 3 NaN or Inf of 12 values on sample made/0"):
        freeze(broken, unlabelled(), SPEC, 5)


def test_earlier_hops_see_a_subset_and_the_final_file_all(tmp_path, monkeypatch):
    monkeypatch.setattr(chain, "SUBSET", 4)
    report = verified(tmp_path, write(tmp_path / "final" / "model.onnx", FP16))
    assert [report["hops"][name]["samples"] for name in chain.HOPS] == [4, 4, 4, 12]
    assert "trace, slim, fp16: measured on the first 4 of 12 samples" in report["not_verified"]


def test_reference_index_tells_samples_apart():
    index = freeze(Detector(), unlabelled(3), SPEC, 2).index
    assert [item["name"] for item in index] == ["made/0", "made/1", "made/2"]
    assert len({item["sha256"] for item in index}) == 3
    assert index == freeze(Detector(), unlabelled(3), SPEC, 3).index


@pytest.mark.parametrize(("text", "expected"), [(FP32, False), (FP16, True)])
def test_fp16_is_recognised(tmp_path, text, expected):
    import onnx_ir as ir

    assert holds_fp16(ir.load(write(tmp_path / "model.onnx", text))) is expected


def test_a_cast_to_fp16_alone_is_recognised():
    import onnx_ir as ir

    text = """<ir_version: 10, opset_import: ["" : 17]>
    g (float[2] x) => (float[2] y) { half = Cast <to = 10> (x) y = Cast <to = 1> (half) }"""
    assert holds_fp16(ir.from_proto(onnx.parser.parse_model(text)))


def test_nodes_whose_inner_sums_are_not_rounded_leave_accumulation_unverified(tmp_path):
    pessimistic = replace(OPTIONS, evaluation=Evaluation.emulated_fp16_pessimistic)
    good = verified(tmp_path / "good", write(tmp_path / "final" / "model.onnx", FP16), options=pessimistic)
    assert state(good, "accumulation")["state"] == "verified"
    lrn = FP16.replace(
        "half_means = Cast <to = 10> (means)",
        "half_raw = Cast <to = 10> (means)\n    half_four = Unsqueeze (half_raw, axes)\n"
        "    [lrn] half_near = LRN <alpha = 1e-6, size = 1> (half_four)\n    half_means = Squeeze (half_near, axes)",
    )
    final = write(tmp_path / "lrn" / "model.onnx", lrn, extra={"axes": np.array([2, 3])})
    report = verified(tmp_path, final, options=pessimistic)
    assert report["verdict"] == "passed" and state(report, "accumulation")["state"] == "not verified"
    assert "lrn: " in state(report, "accumulation")["reason"]
    assert state(report, "accumulation")["reason"] in report["not_verified"]
    required = verified(tmp_path, final, options=replace(pessimistic, require=["accumulation"]))
    assert required["verdict"] == "failed"


# --- batches, adversarial pictures, what must be verified -------------------------------------------------------------

# Subtracts the mean of the batch: right for one sample at a time, wrong for two different ones.
MIXING = FP32.replace(
    "means = ReduceMean <axes = [2, 3], keepdims = 0> (images)",
    "own = ReduceMean <axes = [2, 3], keepdims = 0> (images)\n    of_batch = ReduceMean <axes = [0]> (own)\n"
    "    lost = Sub (own, of_batch)\n    strong = Mul (lost, gain)\n    means = Add (own, strong)",
)
# Adds 1e-6 / (1 - largest * smallest value): infinite where a picture is all white, next to nothing elsewhere.
WHITE = FP32.replace(
    "logits = Add (logits_moved, logits_bias)",
    "added = Add (logits_moved, logits_bias)\n    peak = ReduceMax <axes = [1, 2, 3], keepdims = 1> (images)\n"
    "    low = ReduceMin <axes = [1, 2, 3], keepdims = 1> (images)\n    both = Mul (peak, low)\n"
    "    left = Sub (one, both)\n    over = Div (one, left)\n    flat = Reshape (over, flat_shape)\n"
    "    tiny = Mul (flat, small)\n    logits = Add (added, tiny)",
)
EXTRA = {
    "gain": np.array(300, np.float32),
    "one": np.array(1, np.float32),
    "small": np.array(1e-6, np.float32),
    "flat_shape": np.array([-1, 1, 1]),
}


def state(report, check):
    return next(item for item in report["checks"] if item["check"] == check)


def test_a_good_file_is_verified_at_every_batch_and_on_adversarial_pictures(tmp_path):
    report = verified(tmp_path, write(tmp_path / "final" / "model.onnx", FP16))
    assert {item["check"]: item["state"] for item in report["checks"]} == {
        **dict.fromkeys(("detections", "average_precision", "batch", "adversarial"), "verified"),
        "accumulation": "not verified",
    }
    for name in chain.HOPS:
        sizes = ["1", "8"] if name == chain.FINAL else ["1"]  # 8 is asked of the file that ships
        assert report["hops"][name]["batches"]["sizes"] == dict.fromkeys(sizes, "verified")
        assert report["hops"][name]["adversarial"]["state"] == "verified"
    assert "batch sizes other than 1, 5, 8" in report["not_verified"]


def test_a_file_that_mixes_the_samples_of_a_batch_fails(tmp_path):
    final = write(tmp_path / "final" / "model.onnx", MIXING, extra=["gain"])
    one = replace(OPTIONS, batch=1)  # compared one by one, nothing shows
    report = verified(tmp_path, final, options=one)
    assert report["matched_fraction"] == 1.0 and report["verdict"] == "failed"
    assert state(report, "batch")["state"] == "failed" and "batch 8" in state(report, "batch")["reason"]
    assert any(reason.startswith("batch: ") for reason in report["reasons"])
    assert report["place"] is None, "a file without FP16 has no place to look for"


def test_a_file_that_does_not_run_at_a_batch_fails(tmp_path):
    text = FP32.replace(
        "logits_moved = Reshape (logits_flat, logits_shape)", "logits_moved = Reshape (logits_flat, five)"
    )
    final = write(tmp_path / "final" / "model.onnx", text, extra={"five": np.array([5, QUERIES, CLASSES])})
    report = verified(tmp_path, final, samples=labelled(10))
    assert report["verdict"] == "failed" and "does not run" in state(report, "batch")["reason"]


def test_a_file_that_is_not_finite_is_verified_at_no_batch(tmp_path):
    report = verified(tmp_path, write(tmp_path / "final" / "model.onnx", FP16, gain=2.0**15))
    assert state(report, "batch")["state"] == "not verified" and "not finite" in state(report, "batch")["reason"]


def test_an_adversarial_picture_that_is_not_finite_fails_and_is_named(tmp_path):
    final = write(tmp_path / "final" / "model.onnx", WHITE, extra=["one", "small", "flat_shape"])
    report = verified(tmp_path, final)
    assert report["nan"] + report["inf"] == 0 and report["verdict"] == "failed"
    said = state(report, "adversarial")
    assert said["state"] == "failed" and "adversarial/white" in said["reason"] and "black" not in said["reason"]


def test_an_adversarial_picture_with_other_detections_fails(tmp_path):
    module = Detector()
    other = saturated(Detector(np.where(LOGITS > 0, -LOGITS, LOGITS)))
    report = verified(tmp_path, write(tmp_path / "final" / "model.onnx", FP16), module=module, adversarial=other)
    assert state(report, "adversarial")["state"] == "failed" and "appear where there was none" in str(report["reasons"])


@pytest.mark.parametrize("name", ["average_precision", "accumulation", "batch"])
def test_what_must_be_verified_and_is_not_fails_and_says_why(tmp_path, name):
    final = write(tmp_path / "final" / "model.onnx", FP16.replace("batch", "5"))
    fp32 = write(tmp_path / "slim" / "model.onnx", FP32)
    free = verified(tmp_path / "free", final, samples=unlabelled(), fp32=fp32)
    assert free["verdict"] == "not verified" and state(free, name)["state"] == "not verified"
    report = verified(tmp_path, final, samples=unlabelled(), fp32=fp32, options=replace(OPTIONS, require=[name]))
    assert report["verdict"] == "failed" and report["status"] == "failed"
    assert f"verify.require names {name}, and it was not verified: {state(report, name)['reason']}" in report["reasons"]
    assert state(report, name)["reason"] and report["place"] is None, "no gate failed: there is no place to look for"


def test_what_must_be_verified_and_is_passes(tmp_path):
    required = replace(OPTIONS, require=["detections", "average_precision", "batch", "adversarial"])
    assert verified(tmp_path, write(tmp_path / "m" / "model.onnx", FP16), options=required)["verdict"] == "passed"


def test_untrained_weights_verify_neither_batches_nor_adversarial_pictures(tmp_path):
    report = verified(tmp_path, write(tmp_path / "final" / "model.onnx", FP16), spec=SPEC | {"trained": False})
    for name in ("detections", "average_precision", "batch", "adversarial"):
        assert state(report, name)["state"] == "not verified" and "random" in state(report, name)["reason"]


# --- where a failed check goes wrong ----------------------------------------------------------------------------------

# Adds 6e-2 times the smallest value of a picture: through 600000, which FP16 does not hold, where it is all white.
ROUNDABOUT = FP32.replace(
    "logits = Add (logits_moved, logits_bias)",
    "low = ReduceMin <axes = [1, 2, 3], keepdims = 1> (images)\n    low_flat = Reshape (low, flat_shape)\n"
    "    far = Mul (low_flat, big)\n    [too_far] farther = Mul (far, ten)\n    near = Mul (farther, tiny)\n"
    "    logits_sum = Add (logits_moved, logits_bias)\n    logits = Add (logits_sum, near)",
)
ROUNDABOUT_FP16 = ROUNDABOUT.replace("(low, flat_shape)", "(half_low, flat_shape)")
ROUNDABOUT_FP16 = ROUNDABOUT_FP16.replace("    low_flat =", "    half_low = Cast <to = 10> (low)\n    low_flat =")
ROUNDABOUT_FP16 = ROUNDABOUT_FP16.replace("= Add (logits_sum, near)", "= Add (logits_sum, near_single)").replace(
    "    logits_sum =", "    near_single = Cast <to = 1> (near)\n    logits_sum ="
)
SMALL = {"flat_shape": np.array([-1, 1, 1])}


def roundabout(folder):
    """The FP32 file, and one that overflows on the white picture alone."""
    half = {name: np.array(x, np.float16) for name, x in (("big", 6e4), ("ten", 10), ("tiny", 1e-7))}
    single = {name: value.astype(np.float32) for name, value in half.items()}
    weights = {"to_logits": TO_LOGITS, "logits_bias": LOGITS, "to_boxes": TO_BOXES, "boxes_bias": BOXES}
    fp32 = write(folder / "slim" / "model.onnx", ROUNDABOUT, extra=single | SMALL)
    return fp32, write(folder / "final" / "model.onnx", ROUNDABOUT_FP16, extra=weights | half | SMALL)


def test_a_failed_adversarial_picture_is_looked_into(tmp_path):
    fp32, final = roundabout(tmp_path)
    report = verified(tmp_path, final, fp32=fp32)
    assert report["verdict"] == "failed" and state(report, "adversarial")["state"] == "failed"
    assert all(gate["passed"] for gate in json.loads((tmp_path / "out" / "verdict.json").read_text())["gates"])
    assert report["place"]["sample"] == "adversarial/white"
    assert report["place"]["nonfinite"][0]["node"] == "too_far" and "too_far" in report["reasons"][-1]


MIXING_FP16 = FP16.replace(
    "means = ReduceMean <axes = [2, 3], keepdims = 0> (images)",
    "own = ReduceMean <axes = [2, 3], keepdims = 0> (images)\n    of_batch = ReduceMean <axes = [0]> (own)\n"
    "    lost = Sub (own, of_batch)\n    strong = Mul (lost, gain)\n    [mix] means = Add (own, strong)",
)


def test_a_failed_batch_is_looked_into_as_it_ran(tmp_path):
    final = write(tmp_path / "final" / "model.onnx", MIXING_FP16, extra={"gain": np.array(300, np.float32)})
    report = verified(tmp_path, final, options=replace(OPTIONS, batch=1))
    assert report["matched_fraction"] == 1.0 and state(report, "batch")["state"] == "failed"
    assert report["place"]["sentence"].startswith("in a run of 8 samples: ")
    assert report["place"]["suspects"][0]["growth"] > 0.05, "alone, no sample shows it"


def test_pins_are_searched_for_a_failed_picture_and_for_a_failed_batch(tmp_path, monkeypatch):
    asked = []

    def suggested_pins(path, failing, *_):
        asked.append((failing.reference.names, failing.together, failing.judge(failing.reference, failing.final)))
        return {"sentence": "one", "selectors": "", "status": "none"}

    monkeypatch.setattr(chain, "suggested_pins", suggested_pins)
    fp32, final = roundabout(tmp_path)
    wish = {"options": replace(OPTIONS, suggest=True, batch=1), "conversion": object()}
    assert verified(tmp_path, final, fp32=fp32, **wish)["suggestion"]["sentence"] == "one"
    assert asked[0][:2] == (["adversarial/white"], False) and asked[0][2][0]["passed"] is False
    mixing = write(tmp_path / "mix" / "model.onnx", MIXING_FP16, extra={"gain": np.array(300, np.float32)})
    verified(tmp_path, mixing, **wish)
    assert len(asked[1][0]) == 8 and asked[1][1] is True
    assert any(gate["passed"] is False for gate in asked[1][2]), "its gates are held on the run that fails"


@pytest.mark.parametrize("error", [StageError("they cannot be aligned"), IndexError("no such row")])
def test_a_search_that_ends_with_an_error_takes_no_verdict_away(tmp_path, monkeypatch, error):
    def fails(*_):
        raise error

    for name in ("place_of", "profile_of", "suggested_pins"):
        monkeypatch.setattr(chain, name, fails)
    wish = {"options": replace(OPTIONS, suggest=True), "conversion": object()}
    report = verified(tmp_path, write(tmp_path / "final" / "model.onnx", FP16, gain=2.0**15), **wish)
    written = json.loads((tmp_path / "out" / "verdict.json").read_text())
    assert report["verdict"] == written["verdict"] == "failed" and report["place"] is None
    for what in ("where it goes wrong", "suggested pins", "the error along the graph"):
        assert any(item.startswith(f"{what}: ") and str(error) in item for item in written["not_verified"])
    assert "Not measured: it ended with an error" in (tmp_path / "out" / "verify.html").read_text()


def test_the_error_of_every_node_is_not_measured_when_that_is_not_wanted(tmp_path, monkeypatch):
    def profile(*_):
        raise AssertionError("it was measured")

    final = write(tmp_path / "final" / "model.onnx", FP16)
    report = verified(tmp_path, final)
    page = tmp_path / "out" / "verify.html"
    assert "Error along the graph" in page.read_text() and "Not measured" not in page.read_text()
    monkeypatch.setattr(chain, "error_profile", profile)
    short = verified(tmp_path, final, options=replace(OPTIONS, profile=False))
    assert short == report and "Not measured: verify.profile is false." in page.read_text()
    assert json.loads((tmp_path / "out" / "details.json").read_text())["profile"] == []


# --- suggested pins ---------------------------------------------------------------------------------------------------

AMPLIFIED = FP32.replace(
    "logits = Add (logits_moved, logits_bias)",
    "logits_added = Add (logits_moved, logits_bias)\n    [amplify] logits_up = Mul (logits_added, up)\n"
    "    [reduce] logits = Mul (logits_up, down)",
)


def suggested(folder, **options):
    """A conversion without rules of a graph that overflows in FP16, verified with verify.suggest."""
    precision = validate(composed("experiment=overflow_naive")).precision
    conversion = Conversion(precision, None, None)
    fp32, final = write(folder / "slim" / "model.onnx", AMPLIFIED, gain=2.0**15), folder / "final" / "model.onnx"
    final.parent.mkdir()
    conversion.convert(fp32, final, [], [])
    wanted = replace(OPTIONS, **{"suggest": True} | options)
    return verified(folder, final, fp32=fp32, options=wanted, conversion=conversion)


def test_pins_are_found_confirmed_and_not_applied(tmp_path):
    report = suggested(tmp_path)
    found = report["suggestion"]
    assert report["verdict"] == "failed" and found["status"] == "found" and found["verdict"] == "passed"
    assert "amplify" in found["nodes"] and found["minimal"] and "not applied" in found["sentence"]
    assert "^amplify$" in found["selectors"] and found["runs"] <= OPTIONS.suggest_runs
    page = (tmp_path / "out" / "verify.html").read_text()
    assert "Suggested pins" in page and "^amplify$" in page
    precision = validate(composed("experiment=overflow_naive")).precision
    pinned = tmp_path / "pinned.onnx"
    Conversion(precision, None, None).convert(tmp_path / "slim" / "model.onnx", pinned, found["node_block_list"], [])
    assert verified(tmp_path / "again", pinned)["verdict"] == "passed"


def test_without_the_wish_no_pins_are_searched(tmp_path):
    assert suggested(tmp_path, suggest=False)["suggestion"] is None
