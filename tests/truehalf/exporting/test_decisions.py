"""What a trace bakes in is a difference of outputs, or leaves the trace not verified; what it does not is no alarm."""

from __future__ import annotations

from pathlib import Path

import onnx
import pytest
import torch

from tests.messages import expect, raises
from tests.tracing import trace_json
from tests.truehalf.exporting.written import SPEC, pictures, traced
from tests.truehalf.models import detectors
from truehalf.config.schema import TraceConfig
from truehalf.exporting.decisions import Subject, what_was_baked
from truehalf.io_spec.spec import IoSpec

DIFFERS = {
    "the mean in a window": "if 0.1 < x.mean() < 0.3:\n    y = y * 2",
    "one bright value": "if x.max() > 0.999:\n    y = y + 1",
    "all below": "if (x < 0.2).all():\n    y = y - 5",
    "a choice": "y = y * 2 if x.std() < 0.01 else y",
    "a while": "while x.mean() < 0.2:\n    x, y = x + 0.1, y + 1",
    "python's max": "y = y + max(x.max(), torch.tensor(0.95))",
    "torch.equal": "if torch.equal(x[:, 0], x[:, 1]):\n    y = y * 0",
    "an early exit": "if x.mean() < 0.3:\n    return y * 0 + 7",
    "nothing found": "found = (x[:, 0] > 0.5).nonzero()\nif found.shape[0] == 0:\n    y = y + 1",
    "a list of numbers": "y = y * torch.tensor([x.max().item(), 1.0, 1.0, 1.0])",
    "a rounded number": "y = y * int(x.amax() * 4)",
    "through numpy": "y = y * float(np.mean(x.numpy()))",
    "rows of a tensor": "for row in x.mean((2, 3)):\n    y = y + row.sum()",
    "the length": "y = y * len(x)",
}
VARIES = {
    "random numbers": "y = y + torch.rand(4)",
    "dropout that is left on": "y = torch.nn.functional.dropout(y, 0.5, True)",
    "numpy's random numbers": "y = y + float(np.random.rand())",
    "python's random numbers": "y = y + random.random()",
    "noise on dim inputs alone": "y = y + torch.rand(4) * (x.mean() < 0.25)",
    "a cache of the first input": "if self.grid is None:\n    self.grid = x.mean()\ny = y * self.grid",
    "a running mean": "self.mean.mul_(0.9).add_(y.mean(0) * 0.1)\ny = y - self.mean",
    "every other call": "self.calls += 1\ny = y * (self.calls % 2)",
}
# Of pictures: dim, noisy, bright; no picture is all of it.
FACTS = "a, b, c = bool(x.mean() < 0.3), bool(x.std() > 0.2), bool(x.min() > 0.7)\n"
OPEN = {
    "a window that nothing hits": "if 0.123 < x.mean() < 0.12301:\n    y = y * 2",
    "a number that decides later": "m = x.mean().item()\nif 0.5 < m < 0.500001:\n    y = y + 1",
    "a list that decides later": "peaks = x.amax((1, 2, 3)).tolist()\nif peaks[0] > 2:\n    y = y * 0",
    "a large batch": "if x.shape[0] > 4:\n    y = y * 2",
    "many calls": "self.calls += 1\nif self.calls > 100:\n    y = y * 0",
    "a length that decides later": "if len(x) > 30:\n    y = y * 0",
    "a range that nothing reaches": "if x.sum() > 1e9:\n    y = y * 0",
    "no number": "if torch.isnan(x).any():\n    y = torch.zeros_like(y)",
    "two conditions": "if x.mean() > 0.4 and x.std() > 0.9:\n    y = y * 0",
    "loop by a count": "for _ in range(int((x > 2).sum())):\n    y = y + 1",
    "three joined": f"{FACTS}if a & b & c:\n    y = y * 0",
    "two that differ": f"{FACTS}if (a != b) and c:\n    y = y * 0",
    "over several lines": f"{FACTS}if (\n    a\n    and b\n    and c\n):\n    y = y * 0",
    "one after another": f"{FACTS}n = 0\nif a:\n    n += 1\nif b:\n    n += 1\nif c and n == 2:\n    y = y * 0",
    "nested": f"{FACTS}if a:\n    if b:\n        if c:\n            y = y * 0",
    "a table": f"{FACTS}y = y * {{(True, True, True): 0.0}}.get((a, b, c), 1.0)",
    "match": f"{FACTS}match (a, b, c):\n    case (True, True, True):\n        y = y * 0",
    "a helper, called twice": "def high(t):\n    return bool(t.mean() > 0.6)\n"
    "if high(x) and high(1 - x):\n    y = y * 0",
    "an error that is caught": "try:\n    if x.max() > 1.5:\n        raise ValueError\n"
    "except ValueError:\n    y = y * 0",
    "an assertion that is caught": "try:\n    assert x.max() < 1.5\nexcept AssertionError:\n    y = y * 0",
    "an error of a helper": "def check(t):\n    if t.max() > 1.5:\n        raise ValueError\n"
    "try:\n    check(x)\nexcept ValueError:\n    y = y * 0",
    "an error in a context": "with contextlib.suppress(ValueError):\n    if x.min() < 1.5:\n        pass\n"
    "    if x.max() > 1.5:\n        raise ValueError\n    y = y + 0",
    "a message that changes": "print(self.remember(x.max() > 1.5))\nif self.grid:\n    y = y * 0",
    "a name like print": "print_and_keep(self, x.max() > 1.5)\nif self.grid:\n    y = y * 0",
    "a name in an assertion": "assert (large := bool(x.max() > 1.5)) or True\nif large:\n    y = y * 0",
    "the largest of two": "y = y * (2.0 if max(x.mean(), x.std() * 9).item() > 8 else 1.0)",
    "a batch of one": "if x.shape[0] == 1:\n    y = y.reshape(1, 4)",
    "both sides alike": "if x.mean() > 0.5:\n    y = y * 1.0\nelse:\n    y = y + 0.0",
    "a list called log": "log = []\nlog.append(bool(x.max() > 1.5))\nif log[-1]:\n    y = y * 0",
    "an input of one value": "if x.max() == x.min():\n    y = y * (1 + x.mean())",
    "a comprehension": "y = y + sum([1.0 for value in x.amax((1, 2, 3)) if value > 1.5])",
}
FINE = {
    "nothing": "pass",
    "a size that is fixed": "if x.shape[2] == 8 and x.shape[1] < 4:\n    y = y * 2",
    "checks": "assert x.min() >= 0\nif x.isnan().any():\n    raise ValueError('nan')",
    "a message": "if x.max() > 1:\n    warnings.warn('too bright')",
    "what is printed": "print(x.mean().item(), end='')",
    "checks of each layer": "for t in (x, y):\n    assert torch.isfinite(t).all(), f'{t.max().item()}'",
    "a check within torch's contexts": "with torch.no_grad():\n    if x.isnan().any():\n        raise ValueError",
    "a logger of the module": "self.log_ = LOG\nself.log_.debug('%s', x.max().item())",
    "a logger": "if x.max() > 0.5:\n    LOG.warning('bright: %s', x.max().item())",
    "cleaning up": "try:\n    assert x.min() >= 0\nfinally:\n    pass",
    "a parameter": "if self.scale.item() > 0.5:\n    y = y * self.scale",
    "a grid of the size": "if self.grid is None:\n    self.grid = torch.ones(4) * x.shape[2]\ny = y * self.grid",
    "constants": "y = y + torch.tensor([0.5, 1.0, 2.0, 3.0])",
    "dtype and device": "if x.dtype == torch.float32 and x.device.type == 'cpu':\n    y = y * 2",
    "the length of an axis that is fixed": "y = y * len(x[0])",
    "sizes in a list": "b, c, h, w = x.shape\ny = y.reshape(b, 2, 2).flatten(1) * (h * w)",
    "a mask": "y = torch.where(x.mean((1, 2, 3))[:, None] > 0.3, y, y * 2)",
    "a loop over levels": "for k in [1, 2, 3]:\n    y = y + k * self.scale",
}


@pytest.mark.parametrize("body", DIFFERS.values(), ids=DIFFERS)
def test_a_difference_of_outputs_is_a_failure(body: str, tmp_path: Path) -> None:
    (tmp_path / "m.onnx").write_bytes(b"the last good file")
    with pytest.raises(Exception) as error:
        traced(tmp_path, body)
    assert type(error.value).__name__ == "StageError"
    assert getattr(error.value, "code", "") in ("outputs-differ", "runtime-refuses", "not-comparable"), error.value
    assert (tmp_path / "m.onnx").read_bytes() == b"the last good file"


OF_ONE = {
    "a batch of one": "if x.shape[0] == 1:\n    y = y * 2",
    "each row": "y = y + sum(x[i].mean() for i in range(x.shape[0]))",
    "the last row": "y = y + x[int(x.shape[0]) - 1].mean()",
    "a larger batch": "y = y * 2 if len(x) > 2 else y",
}


@pytest.mark.parametrize("body", OF_ONE.values(), ids=OF_ONE)
def test_other_numbers_of_samples_are_tried_where_all_samples_have_one(body: str, tmp_path: Path) -> None:
    with raises("outputs-differ", "samples" if "len" in body else "sample"):
        traced(tmp_path, body, check_feeds=[pictures(3, 4)])
    fixed = {kind: [SPEC[kind][0] | {"shape": [2, *SPEC[kind][0]["shape"][1:]]}] for kind in ("inputs", "outputs")}
    found = traced(tmp_path, body, check_feeds=[pictures(3, 4)], spec=fixed)
    assert found["parity"]["status"] == "verified", found["baked"]


OF_MANY = {
    "a large batch": "if x.shape[0] > 16:\n    y = y * 2",
    "a batch of a multiple": "y = y * 2 if x.shape[0] % 8 == 0 else y",
    "the batch of a feature map": "y = y * 2 if self.conv(x).size(0) >= 9 else y",
    "all values": "if x.numel() > 5000:\n    y = y * 2",
    "the length": "n = len(x)\nif n > 16:\n    y = y * 2",
}


@pytest.mark.parametrize("body", OF_MANY.values(), ids=OF_MANY)
def test_a_decision_by_the_number_of_samples_is_open_where_all_samples_have_one(body: str, tmp_path: Path) -> None:
    report = traced(tmp_path, body, check_feeds=[pictures(3, 4)])
    assert report["parity"]["status"] == "not verified"
    fixed = {kind: [SPEC[kind][0] | {"shape": [2, *SPEC[kind][0]["shape"][1:]]}] for kind in ("inputs", "outputs")}
    assert traced(tmp_path, body, check_feeds=[pictures(3, 4)], spec=fixed)["parity"]["status"] == "verified"


def test_a_decision_by_a_height_that_varies_is_open(tmp_path: Path) -> None:
    spec = {"inputs": [SPEC["inputs"][0] | {"shape": ["n", 3, "h", 8]}]}
    report = traced(tmp_path, "if x.shape[2] > 16:\n    y = y * 2", check_feeds=[pictures(3, 4)], spec=spec)
    assert report["parity"]["status"] == "not verified"


def test_it_is_one_for_random_weights_too_and_names_input_and_line(tmp_path: Path) -> None:
    with raises("outputs-differ", "dim", ".py:17"):
        traced(tmp_path, DIFFERS["the mean in a window"], spec={"trained": False})


@pytest.mark.parametrize("body", VARIES.values(), ids=VARIES)
def test_a_module_that_is_no_function_of_its_input_is_refused(body: str, tmp_path: Path) -> None:
    with raises("module-varies"):
        traced(tmp_path, body)


@pytest.mark.parametrize("body", OPEN.values(), ids=OPEN)
def test_what_the_inputs_do_not_exercise_is_not_verified(body: str, tmp_path: Path) -> None:
    report = traced(tmp_path, body)
    assert report["parity"]["status"] == "not verified"
    expect(report["parity"]["reason"], "trace-open", ".py:")
    assert report["baked"]["open"]


@pytest.mark.parametrize(
    "draw", ["torch.rand(1)", "torch.rand(1).item()", "np.random.rand()", "__import__('random').random()"]
)
def test_a_rare_draw_is_not_verified(draw: str, tmp_path: Path) -> None:
    report = traced(tmp_path, f"if {draw} < 1e-6:\n    y = y * 2")
    assert report["parity"]["status"] == "not verified"
    expect(report["parity"]["reason"], "trace-open")


@pytest.mark.parametrize("body", FINE.values(), ids=FINE)
def test_what_is_fixed_in_any_case_is_no_alarm(body: str, tmp_path: Path) -> None:
    report = traced(tmp_path, body)
    assert report["parity"]["status"] == "verified" and report["baked"]["open"] == []
    assert {"dim", "bright", "noise"} <= set(report["baked"]["inputs"])


def test_places_in_packages_are_told_and_open_nothing(tmp_path: Path) -> None:
    report = trace_json(
        detectors.detector("dfine"),
        detectors.pictures(0, 1),
        tmp_path / "m.onnx",
        spec=detectors.spec(),
        check_feeds=[detectors.pictures(5)],
    )
    assert report["parity"]["status"] == "verified" and report["baked"]["open"] == []
    (length,) = [said for said in report["baked"]["installed"] if "len(" in said]
    expect(length, None, "transformers/models/d_fine/modeling_d_fine.py")


def subject(path: Path, module: torch.nn.Module, text: str, **spec: object) -> Subject:
    onnx.save(onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": 17]> g {text}'), path)
    example = pictures(1)
    outputs = {"y": module(torch.from_numpy(example["x"])).numpy()}
    return Subject(
        module=module,
        made=None,
        path=path,
        spec=IoSpec.from_json(SPEC | spec),
        example=example,
        pairs=[(example, outputs)],
        own=[],
        installed=[],
        options=TraceConfig(),
    )


class Chaotic(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.sin(1e5 * x[:, 0, 0, :4])


def test_what_hangs_on_rounding_proves_nothing(tmp_path: Path) -> None:
    """Of random weights; of trained ones the samples are compared before."""
    text = """(float[n, 3, 8, 8] x) => (float[n, 4] y) <int64[4] s = {0, 0, 0, 0}, int64[4] e = {99, 1, 1, 4},
        int64[2] r = {-1, 4}, float k = {1.0e5}, float off = {1.0001}>
        { a = Slice(x, s, e) b = Reshape(a, r) c = Mul(b, k) d = Mul(c, off) y = Sin(d) }"""
    found = what_was_baked(subject(tmp_path / "m.onnx", Chaotic(), text, trained=False))
    assert found.inputs == [] and len(found.skipped) > 3 and found.reason == ""


class Small(torch.nn.Module):
    """Values so small that the absolute tolerance alone would let anything pass."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x[:, 0, 0, :4] * 1e-4


def test_an_output_of_small_values_is_held_to_its_own_scale(tmp_path: Path) -> None:
    text = """(float[n, 3, 8, 8] x) => (float[n, 4] y) <int64[4] s = {0, 0, 0, 0}, int64[4] e = {99, 1, 1, 4},
        int64[2] r = {-1, 4}, float k = {2.0e-4}>
        { a = Slice(x, s, e) b = Reshape(a, r) y = Mul(b, k) }"""
    with raises("outputs-differ"):
        what_was_baked(subject(tmp_path / "m.onnx", Small(), text))
    what_was_baked(subject(tmp_path / "m.onnx", Small(), text.replace("2.0e-4", "1.0e-4")))
