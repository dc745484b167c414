"""MLflow's own page of two runs, in a browser: accuracy comes first."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from urllib.parse import quote

import pytest

from pipeline.track import track
from tests.browser import needs_chromium, shown
from tests.pipeline.servers import MlflowServer
from tests.pipeline.test_track import VERIFY, scratch_run

CASTS = {"cast_cleanup": {"casts_before": 9, "casts_after": 3}, "fp16": {"fp16_arithmetic": 0.9}}


def address_of(server: MlflowServer, runs: list[str]) -> str:
    chosen = quote(json.dumps(runs)), quote(json.dumps(["1"]))
    return f"{server.address}/#/compare-runs?runs={chosen[0]}&experiments={chosen[1]}"


@pytest.mark.slow
@needs_chromium
def test_the_compare_view_opens_with_accuracy(tmp_path: Path) -> None:
    runs = []
    for maximum, found in ((512, 0.80), (128, 0.79)):
        scratch_run(tmp_path, f"precision.data_max={maximum}", verify=VERIFY | {"ap50_95": found})
        for stage, report in CASTS.items():
            (tmp_path / "reports" / f"{stage}.json").write_text(json.dumps(report))
        runs.append(str(track(tmp_path)["run_id"]))
    server = MlflowServer(f"sqlite:///{tmp_path}/mlflow.db", tmp_path / "files", tmp_path / "log")
    server.start()
    try:
        html = shown(address_of(server, runs), tmp_path / "browser", options=("--window-size=1400,1000",)).html
    finally:
        server.stop()
    text = unescape(re.sub(r"<(script|style).*?</\1>|<[^>]+>", "|", html, flags=re.DOTALL))
    cells = [cell for cell in map(str.strip, text.split("|")) if cell]
    plotted = cells.index("Metrics:")
    assert cells[plotted + 1] == "accuracy/ap50_95", "what the plot shows"
    listed = [cell for cell in cells[cells.index("Metrics") :] if re.match(r"\w+/\w", cell)]
    assert listed[0].startswith("accuracy/") and "cast_cleanup/casts_after" in listed
    row = cells.index("accuracy/ap50_95", cells.index("Metrics"))
    assert {"0.8", "0.79"} <= set(cells[row:])
