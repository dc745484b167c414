"""trace: the configured model as an FP32 ONNX file, compared with torch (truehalf/exporting/trace.py); a model that is
an ONNX file already is checked and passed on. What stays open is in open.json, and the run not verified.
"""

from __future__ import annotations

from stages.frame import Report, Stage
from truehalf.exporting.configured import export_configured
from truehalf.files import MODEL_FILE, write_json


def run(stage: Stage) -> Report:
    report = export_configured(stage.config, stage.root, stage.out / MODEL_FILE)
    if report.baked is not None and (open_because := report.baked.reason):
        write_json(stage.out / "open.json", [open_because])  # why the file is not verified; verify reads it
    return report.to_json()
