"""The page in a real browser: nothing runs out of a narrow screen, links lead somewhere, text is readable by day and by
night. A script that only this test adds measures it.
"""

import json
import re
from html import escape, unescape
from pathlib import Path

import pytest

from pipeline.page import content as content_of
from pipeline.run_record import Run
from tests.browser import needs_chromium, shown
from tests.pipeline.test_page import VERIFY, folder, render, write  # noqa: F401
from tests.truehalf.report.test_graph import NODES

MEASURE = (Path(__file__).parent / "measure_page.js").read_text()
DARK = "--blink-settings=preferredColorScheme=0"
SECTIONS = ["file", "accuracy", "precision", "suspects", "images", "gates", "engine", "previous", "run"]
OUTLINE = {"file": "model.onnx", "mb": 5.9, "sha256": "8a0144ce" * 8, "external": [], "opset": 17, "ir_version": 8}
OUTLINE |= {"inputs": [{"name": "images", "dtype": "FP32", "shape": ["batch", 3, 128, 128]}]}
OUTLINE |= {"outputs": [{"name": "logits", "dtype": "FP32", "shape": ["batch", 60, 10]}]}


@pytest.fixture
def failed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:  # noqa: F811
    """A run that failed: every section has something to say."""
    verify = folder / "artifacts/verify"
    deep = "network.model.decoder.layers.0.encoder_attn.sampling_offsets"
    nodes = [dict(each) for each in NODES] + [dict(NODES[4]) | {"node": f"/deep/{deep}/Softmax", "scope": deep}]
    write(verify / "graph.json", OUTLINE | {"nodes": nodes})
    rows = [{"node": each["node"], "op": each["op"], "scope": each["scope"], "reason": "reads 9e4"} for each in nodes]
    kept = [row | {"precision": each["precision"], "rule": "data_max"} for row, each in zip(rows, nodes, strict=True)]
    write(folder / "artifacts/fp16/decisions.json", kept)
    suspect = {"node": "/d/s", "sentence": f"node '/{deep.replace('.', '/')}/Softmax' overflows"}
    place = {"sentence": "it overflows", "selectors": f"'precision.scope_block_list=[\"{deep}\"]'"}
    verdict = json.loads((verify / "verdict.json").read_text())
    write(verify / "verdict.json", verdict | {"verdict": "failed", "place": place | {"suspects": [suspect]}})
    report = VERIFY | {"verdict": "failed", "status": "failed", "reasons": [f"reason {i}" for i in range(8)]}
    previous = {"options": [{"name": "precision.node_block_list", "before": "[]", "now": json.dumps([deep] * 3)}]}
    previous |= {"figures": [{"name": "verdict", "before": "passed", "now": "failed"}]}
    monkeypatch.setattr(
        "tests.pipeline.test_page.content", lambda *run: content_of(Run.read(run[0])) | {"previous": previous}
    )
    write(folder / "reports/verify.json", report)
    return folder


def measured(page: str, folder: Path, width: int, *options: str) -> dict:  # noqa: F811
    """In a frame, as a window cannot be narrower than 500 pixels."""
    inside = escape(page.replace("</body>", f"<script>{MEASURE}</script></body>"))
    frame = f'<iframe style="width:{width}px;height:900px;border:0" srcdoc="{inside}"></iframe>'
    file = folder / "measured.html"
    file.write_text(f'<!doctype html><meta charset="utf-8"><meta name="color-scheme" content="light dark">{frame}')
    found = shown(file, folder / "browser", options=("--window-size=1600,1000", *options))
    assert found.errors == []
    return json.loads(unescape(re.findall(r"<title>(\{.*?\})</title>", found.html, re.S)[0]))


@needs_chromium
@pytest.mark.parametrize("width", [420, 800, 1400])
@pytest.mark.parametrize("dark", [False, True])
def test_it_fits_its_links_lead_somewhere_and_text_is_readable(failed: Path, width: int, dark: bool) -> None:
    found = measured(render(failed), failed, width, *([DARK] if dark else []))
    assert (found["width"], found["dark"]) == (width, dark)
    assert found["wide"] <= width and found["lost"] == [] and found["faint"] == []
    assert [each for each in found["sections"] if each in SECTIONS] == SECTIONS, "in the order of questions"
    assert found["cut"] == 0, "gates, with what they measured and their limits"
    assert found["focusable"] > len(SECTIONS), "links of the head, and what opens"


@needs_chromium
def test_the_measurement_sees_what_is_wrong(failed: Path) -> None:
    page = render(failed).replace("<nav ", '<p style="width:900px;color:#ccc;background:#ddd">x</p><nav ')
    found = measured(page.replace('id="gates"', 'id="other"'), failed, "--window-size=420,900")
    assert (
        found["wide"] >= 900 and found["lost"] == ["#gates"] and found["faint"] == [["x", pytest.approx(1.2, abs=0.2)]]
    )
