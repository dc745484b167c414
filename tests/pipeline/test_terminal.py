"""The verdict of a run on the terminal: what it says, in which order, and in how many lines."""

import json
import re
from pathlib import Path
from typing import Any

import pytest

from pipeline.run_record import Crash, Run
from pipeline.terminal import MOST_LINES, verdict_block
from tests.configurations import composed
from tests.messages import expect
from truehalf.codes import coded

PARAMS: dict[str, Any] = {
    "model": {"name": "mine"},
    "decoder": {"name": "none"},
    "precision": {"dtype": "fp16", "method": "autocast"},
}
ENGINE = {"status": "planned", "reason": "no GPU", "not_verified": ["the engine: none was built: no GPU"]}
VERIFY: dict[str, Any] = {
    **{"status": "done", "verdict": "passed", "evaluation": "emulated-fp16", "not_verified": []},
    **{"top1_agreement": 0.9375, "tensor_rms": 0.0021, "ap50_95": None, "matched_fraction": None},
    **{"samples": 64, "nan": 0, "inf": 0},
}
DETECTOR = VERIFY | {
    **{"top1_agreement": None, "tensor_rms": None, "ap50_95": 0.8072, "ap50_95_fp32": 0.8074},
    **{"matched_fraction": 1.0, "matched": 1585, "reference": 1585, "box_error_px_p99": 0.11, "score_error_p99": 0.013},
}
LONG = [f"batch sizes other than {number}, which nobody has asked for up to now" for number in range(20)]
PLACE = {
    "sentence": "the first value that is not finite is that of node '/v_proj/MatMul'",
    "selectors": '\'precision.node_block_list=["^/v_proj/MatMul$","^/v_proj/Add$"]\'',
}
FAILED = DETECTOR | {
    **{"status": "failed", "verdict": "failed", "reasons": ["matched_fraction is 0"]},
    "place": PLACE,
}


def said(tmp_path: Path, width: int = 80, **reports: Any) -> str:
    run = Run(tmp_path, PARAMS, {"engine": ENGINE, **reports})
    return verdict_block(run, None if run.has_failed else Path("artifacts/mine.fp16.onnx"), None, width).strip("\n")


def rows(block: str) -> dict[str, str]:
    """Text by label, in order."""
    found: dict[str, str] = {}
    for line in block.splitlines()[1:]:
        label, content = line[:15].strip(), line[15:]
        if label:
            found[last := label] = content
        else:
            found[last] += f" {content}"
    return found


@pytest.mark.parametrize("width", [80, 120])
@pytest.mark.parametrize("verify", [VERIFY, DETECTOR, DETECTOR | {"not_verified": LONG, "verdict": "not verified"}])
def test_a_run_that_has_not_failed_fits_in_the_lines_and_columns(tmp_path: Path, width: int, verify: Any) -> None:
    sizes = {stage: {"model": {"size_mb": size, "casts": 1}} for stage, size in (("slim", 11.4), ("cast_cleanup", 6.0))}
    block = said(tmp_path, width, verify=verify | {"reasons": LONG}, **sizes)
    lines = block.splitlines()
    assert len(lines) <= MOST_LINES and max(map(len, lines)) <= width
    order = [label for label in rows(block) if label != "why"]
    assert order[:3] == ["file", "accuracy", "precision"] and order[-1] == "report" and "engine" in order
    expect(rows(block)["file"], None, "artifacts/mine.fp16.onnx", "11.40", "6.00")
    assert lines[0].startswith(f"{verify['verdict']}  ") and "skipped" not in block


def test_the_title_names_the_method_and_no_decoder_where_there_is_none(tmp_path: Path) -> None:
    expect(said(tmp_path, verify=VERIFY).splitlines()[0], None, "mine · fp16", "autocast", "emulated-fp16")
    convert = Run(tmp_path, composed("decoder=dfine"), {"verify": VERIFY, "engine": ENGINE})
    title = verdict_block(convert, None, None, 80).strip("\n").splitlines()[0]
    expect(title, None, "ltdetr_nano · dfine · fp16")
    assert "convert" not in title


def test_a_classifier_is_said_to_agree_and_by_how_much_its_outputs_differ(tmp_path: Path) -> None:
    accuracy = rows(said(tmp_path, verify=VERIFY))["accuracy"]
    expect(accuracy, None, "93.75 %", "0.21 %")
    assert "AP50" not in accuracy


def test_nodes_in_fp32_are_counted_by_the_rule_that_keeps_them(tmp_path: Path) -> None:
    kept = [{"precision": "fp32", "rule": rule} for rule in ("data_max", "inner", "inner")]
    fp16 = {"fp16": {"status": "done"}}
    (tmp_path / "artifacts/fp16").mkdir(parents=True)
    (tmp_path / "artifacts/fp16/decisions.json").write_text(json.dumps([*kept, {"precision": "fp16", "rule": "none"}]))
    models = {"slim": {"model": {"casts": 18}}, "cast_cleanup": {"model": {"casts": 33}}}
    compiled = {
        "fused_attention": 3,
        "attention_regions": 4,
        "half_arithmetic": 0.99,
        "compiler": "TensorRT for RTX 1.7",
    }
    engine = ENGINE | {"status": "compiled", "compiled": compiled}
    precision = rows(said(tmp_path, verify=VERIFY, **models, **fp16, engine=engine))["precision"]
    expect(precision, None, 2, 1, "15 casts", "3 of 4")


def test_what_nothing_by_emulation_checks_is_behind_a_link_and_what_the_engine_says_not_said_twice(
    tmp_path: Path,
) -> None:
    always = coded("sums-not-rounded", "kernels that accumulate in FP16: emulation does not round them")
    block = said(tmp_path, verify=VERIFY | {"not_verified": [always, "batch sizes other than 1, 8"]})
    gaps = rows(block)["not checked"]
    expect(gaps, None, "batch sizes other than 1, 8", "docs/explanation/fp16-emulation.md")
    assert "kernels" not in block and block.count("no GPU") == 1


def test_a_run_that_failed_names_the_culprit_then_what_to_paste_then_the_rest(tmp_path: Path) -> None:
    block = said(tmp_path, verify=FAILED)
    found = rows(block)
    assert list(found)[:3] == ["why", "try", "gates"]
    assert found["why"] == PLACE["sentence"] and f"  {PLACE['selectors']}\n" in block, "in one line"
    assert found["gates"] == "matched_fraction is 0" and "artifacts/mine" not in block


@pytest.mark.parametrize(
    ("reports", "expected"),
    [
        ({"verify": VERIFY, "engine": ENGINE | {"status": "failed", "reason": "NaN"}}, "engine: NaN"),
        ({}, "reports/verify.json"),
        ({"verify": VERIFY | {"status": "failed", "verdict": "failed", "reasons": ["AP fell"]}}, "AP fell"),
    ],
)
def test_without_a_place_the_gates_are_the_reason(tmp_path: Path, reports: Any, expected: str) -> None:
    block = said(tmp_path, **reports)
    assert block.startswith("failed  ") and rows(block)["why"].startswith(expected)


def test_warnings_come_before_the_file(tmp_path: Path) -> None:
    typo = {"status": "done", "warnings": ["node_block_list: x matches no node"]}
    found = rows(said(tmp_path, verify=VERIFY, fp16=typo))
    assert next(iter(found)) == "warning" and found["warning"] == typo["warnings"][0]


def test_a_crash_names_the_stage_its_reason_and_the_stages_before(tmp_path: Path) -> None:
    reports = {stage: {"status": "done", "seconds": 1} for stage in ("trace", "slim")}
    run = Run(tmp_path, PARAMS, reports, Crash("calibrate", "the reference has NaN [images]"))
    block = verdict_block(run, None, None, 80).strip("\n")
    assert re.match(r"failed  mine .* calibrate$", block.splitlines()[0])
    assert list(rows(block)) == ["why", "done before", "report"] and rows(block)["done before"] == "trace, slim"
    assert rows(block)["why"] == "the reference has NaN [images]"


def test_a_reference_that_finds_little_is_pointed_out(tmp_path: Path) -> None:
    low = rows(said(tmp_path, verify=DETECTOR | {"ap50_95": 0.08, "ap50_95_fp32": 0.08}))
    expect(low["warning"], None, "0.0800")
    assert "warning" not in rows(said(tmp_path, verify=DETECTOR))
