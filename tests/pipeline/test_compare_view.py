"""MLflow's own pages in a browser: the list of runs shows verdict and figures, the comparison begins with accuracy."""

from __future__ import annotations

import json
import re
from html import unescape
from pathlib import Path
from urllib.parse import quote

import pytest

from pipeline.run_record import Run
from pipeline.track import track
from tests.browser import needs_chromium, shown
from tests.pipeline.servers import MlflowServer
from tests.pipeline.test_track import VERIFY, scratch_run

CASTS = {"cast_cleanup": {"casts_before": 9, "casts_after": 3, "model": {}}, "fp16": {"fp16_arithmetic": 0.9}}


def address_of(server: MlflowServer, runs: list[str]) -> str:
    chosen = quote(json.dumps(runs)), quote(json.dumps(["1"]))
    return f"{server.address}/#/compare-runs?runs={chosen[0]}&experiments={chosen[1]}"


def cells_of(html: str) -> list[str]:
    """The texts of a page, in order."""
    text = unescape(re.sub(r"<(script|style).*?</\1>|<[^>]+>", "|", html, flags=re.DOTALL))
    return [cell for cell in map(str.strip, text.split("|")) if cell]


@pytest.mark.slow
@needs_chromium
def test_the_list_shows_the_figures_and_the_comparison_opens_with_accuracy(tmp_path: Path) -> None:
    runs = []
    for maximum, found in ((512, 0.80), (128, 0.79)):
        scratch_run(
            tmp_path, f"precision.data_max={maximum}", verify=VERIFY | {"ap50_95": found, "matched_fraction": 1.0}
        )
        for stage, report in CASTS.items():
            (tmp_path / "reports" / f"{stage}.json").write_text(json.dumps(report))
        runs.append(str(track(Run.read(tmp_path))["run_id"]))
    server = MlflowServer(f"sqlite:///{tmp_path}/mlflow.db", tmp_path / "files", tmp_path / "log")
    server.start()
    try:
        size = ("--window-size=1800,1000",)
        html = shown(address_of(server, runs), tmp_path / "browser", options=size).html
        runs_view = f"{server.address}/#/experiments/1/runs?viewStateShareKey=truehalf"
        listed = cells_of(shown(runs_view, tmp_path / "browser", options=size).html)
    finally:
        server.stop()
    cells = cells_of(html)
    plotted = cells.index("Metrics:")
    assert cells[plotted + 1] == "ap", "what the plot shows"
    row = cells.index("ap", cells.index("Metrics"))
    assert {"0.8", "0.79"} <= set(cells[row:])
    for column in ("verdict", "matched", "fp16", "ap", "passed"):
        assert column in listed, column
