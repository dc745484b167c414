"""Six trained models of others: the FP16 file does its task as the FP32 file, and the verdict says so."""

from __future__ import annotations

import functools
from pathlib import Path

import numpy as np
import pytest

from tests.trained.corpus import MODELS
from tests.trained.measure import Row, half_session, measured
from tests.trained.model import CALIBRATION, Opened, judged
from tests.trained.wheels import NotFetched

pytestmark = pytest.mark.slow

SMALL = ("blazeface-short", "captcha-whisperer", "centerface", "magika", "nudenet", "ppocrv4-det")
ALONE = ("attacut", "gradient-boosting-regressor", "k-neighbors-classifier")


once = functools.cache(measured)


def row_of(name: str) -> Row:
    row = once(name)
    if "skipped" in row:
        pytest.skip(row["skipped"])
    assert "error" not in row, row["error"]
    return row


@pytest.mark.parametrize("name", SMALL)
def test_the_fp16_file_does_the_same(name: str) -> None:
    row = row_of(name)
    assert row["same"], row["figures"]
    assert row["valid"] == "yes"


@pytest.mark.parametrize("name", SMALL)
def test_the_verdict_is_that_of_the_task(name: str) -> None:
    assert row_of(name)["verdict"] == "passed", row_of(name)["codes"]


@pytest.mark.parametrize("name", ALONE)
def test_emulated_fp16_is_what_onnx_computes_in_fp16(name: str, tmp_path: Path) -> None:
    """Against onnx's own evaluator, which computes in numpy's float16: outputs within four units of the largest."""
    from onnx.reference import ReferenceEvaluator

    from truehalf import convert

    try:
        opened = Opened(MODELS[name])
    except NotFetched as error:
        pytest.skip(str(error))
    samples = MODELS[name].samples(opened)
    convert(opened.file, tmp_path / "fp16.onnx", samples=[each.feeds for each in samples[:CALIBRATION]])
    evaluator, run = ReferenceEvaluator(str(tmp_path / "fp16.onnx")), half_session(tmp_path / "fp16.onnx")
    ours, theirs = [], []
    for sample in samples[CALIBRATION:]:
        emulated = run(sample.feeds)
        found = dict(zip(emulated, evaluator.run(list(emulated), sample.feeds), strict=True))
        for key, array in emulated.items():
            exact = np.asarray(found[key], np.float32)
            assert np.abs(array - exact).max() <= 4 * 2.0**-11 * max(1e-3, np.abs(exact).max())
        ours.append(emulated)
        theirs.append({key: np.asarray(each, np.float32) for key, each in found.items()})
    assert judged(MODELS[name], opened, samples[CALIBRATION:], theirs, ours).same
