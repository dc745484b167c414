"""The table at the end of a run."""

from typing import Any

import pytest

from pipeline.summary import print_summary

PARAMS: dict[str, Any] = {
    "model": {"name": "mine"},
    "decoder": {"name": "none"},
    "precision": {"dtype": "fp16", "method": "autocast"},
}
VERIFY: dict[str, Any] = {
    **{"status": "done", "verdict": "passed", "evaluation": "emulated-fp16", "not_verified": []},
    **{"top1_agreement": 0.9375, "tensor_error": 0.0021, "ap50_95": None, "matched_fraction": None},
    "hops": {"fp16": {"matched_fraction": None, "top1_agreement": 0.9375}},
}


def printed(capsys: pytest.CaptureFixture[str], params: dict[str, Any], reports: dict[str, Any]) -> str:
    print_summary(params, reports, None)
    return capsys.readouterr().out


def test_the_title_names_the_method_and_no_decoder_where_there_is_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert "mine · fp16 by autocast" in printed(capsys, PARAMS, {})
    convert = PARAMS | {"decoder": {"name": "dfine"}, "precision": {"dtype": "fp16", "method": "convert"}}
    assert "mine · dfine · fp16 " in printed(capsys, convert, {})


def test_a_classifier_is_said_to_agree_and_by_how_much_its_outputs_differ(capsys: pytest.CaptureFixture[str]) -> None:
    said = printed(capsys, PARAMS, {"verify": VERIFY, "fp16": {"status": "done"}})
    assert "93.75 % of the samples have the FP32 best class (top 1)" in said
    assert "outputs differ by at most 0.0021 of their largest value" in said and "93.75 % same class" in said
    assert "AP50" not in said and "found again" not in said
