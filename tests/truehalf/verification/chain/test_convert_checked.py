"""Convert, check, pin, convert again: a file that passes where pins make one."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
import onnx.parser
import pytest

from truehalf import Precision, compare, convert

OPTIONS: dict[str, Any] = {"placement": "eager", "data_max": None, "epsilons": False}
LOST = "[big] a = Mul(x, k) [add] b = Add(x, a) [sub] y = Sub(b, a)"
FINE = "[act] y = Tanh(x)"
ROOT = "[low] a = Mul(x, k) [root] b = Div(one, a) [high] y = Mul(b, k)"
RNG = np.random.default_rng(0)
FEEDS = [{"x": RNG.uniform(0.5, 1, (4, 64)).astype(np.float32)} for _ in range(4)]


def model(body: str, k: float = 300) -> onnx.ModelProto:
    head = '<ir_version: 8, opset_import: ["" : 17]> g (float[4,64] x) => (float[4,64] y)'
    return onnx.parser.parse_model(f"{head} <float k = {{{k}}}, float one = {{1}}> {{ {body} }}")


def converted(proto: onnx.ModelProto, samples: Any = FEEDS[:2], **options: Any) -> Any:
    return convert(proto, samples=samples, precision=Precision(**OPTIONS | options))


def test_a_file_that_fails_is_converted_again_with_the_pins_that_hold() -> None:
    proto = model(LOST)
    found = converted(proto)
    check = found.report.check
    assert check.state == "verified" and "add" in check.pinned and not check.node_block_list
    assert compare(proto, found.model, FEEDS[2:], locate=False).verdict == "passed"
    rows = {row["node"]: row for row in found.decisions}
    assert rows["add"]["precision"] == rows["sub"]["precision"] == "fp32"
    assert rows["add"]["rule"] == "measured" and rows["add"]["value"] > rows["add"]["threshold"]
    assert found.report.fp16.verdicts["measured"] == len(check.pinned)


def test_a_good_file_is_converted_once() -> None:
    found = converted(model(FINE))
    assert found.report.check.state == "verified" and found.report.check.pinned == ()


@pytest.mark.parametrize("options", [{"measured": False}, {"rules": "autocast"}])
def test_pins_are_named_and_not_applied_where_that_is_not_wanted(options: dict[str, Any]) -> None:
    found = converted(model(LOST), **options)
    check = found.report.check
    assert check.state == "failed" and "^add$" in check.node_block_list and check.pinned == ()
    assert not any(row["rule"] == "measured" for row in found.decisions)


def test_an_edge_input_that_no_sample_shows_stays_finite() -> None:
    """White pixels: the samples are half as bright, and their squares are far from the limit that these reach."""
    body = "[s] s = Mul(x, x) [t] t = Mul(s, s) [r] r = Sqrt(t) [y] y = Mul(r, k)"
    dim = [{"x": (10 * np.where(RNG.uniform(size=(4, 64)) < 1e-2, 1.0, 0.1)).astype(np.float32)} for _ in range(2)]
    dim[1]["x"][0, 0] = 15.9
    found = converted(model(body, 1e-3), dim, safety_factor=1.0)
    assert found.report.check.state == "verified"
    white = {"x": np.full((4, 64), 15.9, np.float32)}
    assert compare(model(body, 1e-3), found.model, [white], locate=False).verdict != "failed"


def test_ten_times_a_sample_stays_finite() -> None:
    proto, samples = model("[s] s = Mul(x, x) [y] y = Mul(s, k)", 1e-3), [{"x": 60 * feed["x"]} for feed in FEEDS]
    found = converted(proto, samples[:2])
    assert found.report.check.state == "verified" and "s" in found.report.check.pinned
    louder = [{"x": 10 * feed["x"]} for feed in samples[2:]]
    assert compare(proto, found.model, louder, locate=False).verdict == "passed"


def test_a_search_that_takes_too_long_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("truehalf.verification.chain.quick_check._SECONDS", 0.0)
    check = converted(model(LOST)).report.check
    assert check.state == "failed" and check.pinned == () and "[fp16-not-enough]" in check.remedy
