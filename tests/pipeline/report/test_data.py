"""What the page says of the data."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import Any

from pipeline.report.data import data_of
from pipeline.report.page import content, render
from tests.messages import expect

HASH = "0123456789abcdef" * 4


def used(count: int, **more: Any) -> dict[str, Any]:
    files = [{"file": f"deep/{number}.png", "sha256": HASH} for number in range(count)]
    return {"samples": count, "sha256": HASH, "files": files} | more


def report(count: int = 5) -> dict[str, Any]:
    labels = {"annotations": {"file": "boxes.json", "bytes": 9, "sha256": HASH}}
    left_out = {"boxes without an area": ["annotations[1] of 1.png"]}
    purposes = {"trace": used(2), "calibration": used(3), "verification": used(count, **labels)}
    return {"stage": "inputs", "status": "done", **purposes, "data": {"source": "coco", "left_out": left_out}}


SPEC = {
    "inputs": [
        {
            **{"name": "pixels", "kind": "images", "shape": ["batch", 3, 480, 640], "size": [480, 640]},
            **{"resize": "letterbox", "resample": "bicubic", "channels": "BGR", "range": [0, 255], "layout": "NCHW"},
            "normalization": {"mean": [1, 2.5, 3], "std": [4, 5, 6], "where": "before the graph"},
        },
        {"name": "size", "kind": "picture_size", "shape": ["batch", 2]},
    ]
}


def test_files_counts_and_preprocessing() -> None:
    data = data_of(report(), SPEC)
    assert data is not None and data["source"] == "coco"
    assert [(row["samples"], row["files"]) for row in data["rows"]] == [(2, 2), (3, 3), (5, 5)]
    for row, purpose in zip(data["rows"], ("trac", "calibrat", "verif"), strict=True):
        assert purpose in row["purpose"]
    names = data["rows"][2]["names"]
    expect(names, None, "deep/0.png", "deep/1.png", "deep/2.png", "boxes.json", "0123456789ab")
    assert "deep/3.png" not in names and re.findall(r" (\d+) ", names) == ["2"], "so many more"
    assert data["rows"][2]["sha256"] == HASH[:12]
    (pixels,) = data["preprocessing"]
    assert pixels["input"] == "pixels" and "letterbox" in pixels["steps"]
    expect(pixels["steps"], None, "480", "640", "bicubic", "BGR", "0", "255", "NCHW")
    expect(pixels["steps"], None, "mean 1, 2.5, 3", "std 4, 5, 6", "before the graph")
    assert data["left_out"] == [{"reason": "boxes without an area", "count": 1, "names": "annotations[1] of 1.png"}]


def test_made_samples_have_no_files_and_functions_their_code() -> None:
    made = {"samples": 4, "sha256": HASH, "files": []}
    code = made | {"code": {"function": "mine:sample", "sha256": HASH}}
    data = data_of({"trace": made, "verification": code, "data": {"source": "function", "left_out": {}}}, None)
    assert data is not None and data["files"] == [] and data["preprocessing"] == []
    assert (data["rows"][0]["sha256"], data["rows"][0]["files"]) == ("–", None) and data["rows"][0]["names"]
    assert data["rows"][1]["sha256"] == HASH[:12]
    expect(data["rows"][1]["names"], None, "mine:sample", "0123456789ab")


def test_the_page_lists_files_with_hashes_and_stops_listing_somewhere(tmp_path: Path) -> None:
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports/inputs.json").write_text(json.dumps(report(2003)))
    page = render(tmp_path)
    assert re.search(r"<summary>[^<]*2\u202f003", page) and page.count(HASH) == 2005
    assert "deep/1999.png" in page and "deep/2000.png" not in page
    assert re.search(r">3\b[^<]*\breports/inputs\.json", page) and re.search(r"boxes without an area\W+1\b", page)


def test_nothing_is_shown_before_inputs_have_been_looked_at(tmp_path: Path) -> None:
    assert data_of(None, SPEC) is None and data_of({"stage": "inputs"}, SPEC) is None
    assert content(tmp_path)["data"] is None and render(tmp_path)
    (tmp_path / "reports").mkdir()
    (tmp_path / "reports/inputs.json").write_text(json.dumps(report()))
    (tmp_path / "reports/error.json").write_text(json.dumps({"stage": "inputs", "message": "data.folder: none"}))
    os.utime(tmp_path / "reports/inputs.json", (1, 1))
    assert content(tmp_path)["data"] is None and "boxes.json" not in render(tmp_path), "those of an earlier run"
