"""What the report and the decisions of a conversion say."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.measuring.converted import to_fp16
from tests.messages import expect, raises
from tests.small_models import FLOAT, TEXT, measured, node_types, saved
from truehalf.conversion.report import Fp16Report, skipped_report
from truehalf.files import read_json, write_json
from truehalf.ir.model_file import load_model, save_model


def test_the_report_counts_what_the_file_holds(tmp_path: Path) -> None:
    ranges = measured(images=1.0, a=1.0, b=600.0, logits=1.0)
    report = to_fp16(saved(tmp_path), tmp_path / "out.onnx", ranges=ranges, data_max=512)
    assert report.casts_to_fp16 == 1
    assert report.casts_to_fp32 == 1
    assert report.model["casts"] == 2
    assert report.fp16_fraction == report.model["fp16_fraction"] == pytest.approx(1 / 3)
    assert report.not_done == []
    assert report.model["size_mb"] == (tmp_path / "out.onnx").stat().st_size / 1e6
    assert Fp16Report.from_json(json.loads(json.dumps(report.to_json()))) == report


def test_without_ranges_the_report_says_what_was_not_done(tmp_path: Path) -> None:
    report = to_fp16(saved(tmp_path), tmp_path / "out.onnx", data_max=512)
    assert report.fp32_nodes_total == 0
    (line,) = report.not_done
    asked = ("safety_factor", "data_max", "inner", "masks")
    assert line.startswith(f"{', '.join(asked)}: ")
    expect(line, "needs-value")
    off = to_fp16(saved(tmp_path), tmp_path / "out.onnx", data_max=None, rules="autocast")
    assert off.not_done == []


def test_decisions_carry_their_evidence(tmp_path: Path) -> None:
    write_json(tmp_path / "ranges.json", measured(a=7.1e3))
    to_fp16(
        saved(tmp_path),
        tmp_path / "out.onnx",
        ranges=tmp_path / "ranges.json",
        op_block_list=["Softmax"],
        data_max=512,
        decisions_path=tmp_path / "decisions.json",
    )
    first, _, last = read_json(tmp_path / "decisions.json")
    reason = first.pop("reason")
    assert first == {
        "node": "/decoder/layers.0/MatMul",
        "op": "MatMul",
        "scope": "decoder.layers.0",
        "precision": "fp32",
        "rule": "data_max",
        "value": 7.1e3,
        "threshold": 512.0,
        "tensor": "a",
        "sample": "s3",
    }
    expect(reason, None, "'a'", 7100, "data_max", 512, "s3")
    assert last["rule"] == "op_block_list"
    expect(last["reason"], None, "op_block_list", "Softmax")


def test_a_scope_is_that_of_the_exporters_metadata(tmp_path: Path) -> None:
    model = load_model(saved(tmp_path))
    first = next(iter(model.graph))
    first.metadata_props["pkg.torch.onnx.name_scopes"] = "['', 'head', 'head.linear', 'linear']"
    save_model(model, tmp_path / "scoped.onnx")
    to_fp16(tmp_path / "scoped.onnx", tmp_path / "out.onnx", decisions_path=tmp_path / "decisions.json")
    assert read_json(tmp_path / "decisions.json")[0]["scope"] == "head.linear"


def test_a_node_that_placement_keeps_fp32_says_so(tmp_path: Path) -> None:
    text = TEXT.replace("Relu(a)", "Transpose(a)")
    report = to_fp16(saved(tmp_path, text), tmp_path / "out.onnx", op_block_list=["MatMul", "Softmax"])
    assert [row["rule"] for row in report.fp32_nodes] == ["op_block_list", "placement", "op_block_list"]
    assert report.model["casts"] == 0


def test_selectors_that_match_nothing_are_reported(tmp_path: Path) -> None:
    report = to_fp16(
        saved(tmp_path),
        tmp_path / "out.onnx",
        op_block_list=["LogSoftmax", "Relu"],
        node_block_list=["^MatMul", "/head/"],
    )
    assert report.unmatched_selectors == ["op_block_list: LogSoftmax", "node_block_list: ^MatMul"]
    assert node_types(tmp_path / "out.onnx")["/head/Softmax"] == FLOAT


def test_the_report_says_that_it_is_done(tmp_path: Path) -> None:
    assert to_fp16(saved(tmp_path), tmp_path / "out.onnx").status == "done"


def test_a_file_that_stays_fp32_has_a_report_of_the_same_keys(tmp_path: Path) -> None:
    skipped, done = skipped_report(saved(tmp_path)), to_fp16(saved(tmp_path), tmp_path / "out.onnx")
    assert skipped.status == "skipped" and set(skipped.to_json()) - set(done.to_json()) == {"reason"}
    expect(skipped.reason, None, "precision=fp32")
    assert skipped.fp16_arithmetic == 0
    assert skipped.model["float_nodes"] == 3 and skipped.model["fp16_nodes"] == 0


def test_ranges_of_another_model_judge_nothing_and_the_report_says_so(tmp_path: Path) -> None:
    report = to_fp16(saved(tmp_path), tmp_path / "out.onnx", ranges=measured(x=1.0, y=1e6))
    (line,) = report.not_done
    expect(line, "wrong-file", "safety_factor", "safety_factor")
    (line,) = to_fp16(saved(tmp_path), tmp_path / "out.onnx", ranges={"tensors": {"a": {"absmax": None}}}).not_done
    expect(line, "needs-value", "safety_factor")
    assert to_fp16(saved(tmp_path), tmp_path / "out.onnx", ranges=measured(a=1.0)).not_done == []


@pytest.mark.parametrize(
    "entry",
    [
        5.0,
        {},
        {"absmax": "much"},
        {"absmax": float("nan")},
        {"absmax": 1.0, "min": []},
        {"absmax": 1.0, "elements": "x"},
        {"absmax": 1.0, "nonfinite": -3},
    ],
)
def test_malformed_ranges_are_named(tmp_path: Path, entry: Any) -> None:
    with raises("file-unreadable", "tensors: 'b':", repr(entry)) as caught:
        to_fp16(saved(tmp_path), tmp_path / "out.onnx", ranges={"tensors": {"a": {"absmax": 1.0}, "b": entry}})
    assert "'a'" not in str(caught.value)
    with raises("file-unreadable", "inner: 'n':", repr(entry)):
        to_fp16(saved(tmp_path), tmp_path / "out.onnx", ranges={"tensors": {}, "inner": {"n": entry}})
