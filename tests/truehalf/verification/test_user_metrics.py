"""Functions of the user's own as gates: what they are given, and what their values decide."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.messages import expect, raises
from truehalf.config.verification import VerifyConfig
from truehalf.verification.chain.compare import compare
from truehalf.verification.findings import verdict_of
from truehalf.verification.runs import Run
from truehalf.verification.user_metrics import judge_metrics

MODULE = """
def shape(reference, candidate):
    return len(reference["y"])

def largest(reference, candidate):
    return abs(reference["y"] - candidate["y"]).max()

def text(reference, candidate):
    return "good"

def breaks(reference, candidate):
    return reference["z"]

def never(reference, candidate):
    return float("nan")

number = 3
"""
SHIFT = """<ir_version: 8, opset_import: ["": 17]>
g (float[N,2] x) => (float[N,2] y) {{ c = Constant <value_float = {:.9f}> () y = Add(x, c) }}"""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A workspace with a module of its own name, as imported modules stay."""
    (tmp_path / f"mine_{tmp_path.name}.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def entry(here: Path, rest: str) -> str:
    return f"mine_{here.name}:{rest}"


def runs(*parts: tuple[int, int]) -> list[Run]:
    """Of so many samples each, of so many values; the candidate is off by the number of the run."""
    made = []
    for number, (rows, width) in enumerate(parts):
        y = np.zeros((rows, width), np.float32)
        made.append(Run([f"{number}.{i}" for i in range(rows)], rows, {"y": y}, {"y": y + number}))
    return made


@pytest.mark.parametrize(
    ("rest", "value", "state"),
    [
        ("shape >= 5", 5, "verified"),  # of both runs together
        ("shape<=4.5", 5, "failed"),
        ("largest <= 1e0", 1, "verified"),
        ("largest <= .99", 1, "failed"),
        ("largest >= -1", 1, "verified"),
        ("never >= 0", np.nan, "failed"),
        ("never <= 0", np.nan, "failed"),
    ],
)
def test_a_value_is_a_gate(here: Path, rest: str, value: float, state: str) -> None:
    (found,) = judge_metrics(runs((2, 3), (3, 3)), [entry(here, rest)])
    assert (found.state, found.check) == (state, "metrics")
    assert found.facts["value"] == pytest.approx(value, nan_ok=True)


def test_runs_of_other_shapes_are_called_for_alone_and_the_worst_counts(here: Path) -> None:
    several = runs((2, 3), (4, 5), (1, 3))
    values = [judge_metrics(several, [entry(here, rest)])[0].facts["value"] for rest in ("shape >= 0", "shape <= 0")]
    assert values == [3, 4]


@pytest.mark.parametrize(
    ("rest", "code"),
    [
        ("text >= 0", "wrong-return"),
        ("breaks >= 0", "function-fails"),
        ("number >= 0", "function-fails"),
        ("missing >= 0", "function-fails"),
    ],
)
def test_what_is_no_metric(here: Path, rest: str, code: str) -> None:
    with raises(code) as error:
        judge_metrics(runs((2, 3)), [entry(here, rest)])
    expect(str(error.value), None, "verify.metrics", rest.split()[0])


@pytest.mark.parametrize(
    "text", ["mine:iou", "mine >= 1", "mine:iou > 1", "mine:iou >= one", ">= 1", "mine:iou >= 1 or so"]
)
def test_an_entry_that_cannot_be_read(text: str) -> None:
    with raises("bad-options") as error:
        VerifyConfig(metrics=[text])
    expect(str(error.value), "bad-syntax", "metrics[0]", repr(text))


def test_it_decides_between_two_files(here: Path) -> None:
    import onnx

    files = []
    for name, shift in (("a", 0.0), ("b", 1e-3)):
        files.append(here / f"{name}.onnx")
        onnx.save(onnx.parser.parse_model(SHIFT.format(shift)), files[-1])
    feeds: dict[str, Any] = {"x": np.random.default_rng(0).normal(0, 1, (6, 2)).astype(np.float32)}
    for limit, verdict in (("1e-2", "passed"), ("1e-4", "failed")):
        options = VerifyConfig(metrics=[entry(here, f"largest <= {limit}")])
        report = compare(files[0], files[1], feeds, options=options)
        assert report.verdict == verdict == verdict_of(report.findings)


def test_runs_with_outputs_of_one_number_are_given_apart(here: Path) -> None:
    made = [
        Run([f"{i}"], 1, {"y": np.ones((1, 2)), "loss": np.float32(i)}, {"y": np.ones((1, 2)), "loss": np.float32(i)})
        for i in range(3)
    ]
    (found,) = judge_metrics(made, [entry(here, "shape <= 1")])
    assert verdict_of([found]) == "passed"
