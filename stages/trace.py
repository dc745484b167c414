"""trace: the configured model as an FP32 ONNX file, compared with torch (truehalf/exporting/trace.py); a model that is
an ONNX file already is checked and passed on. What stays open is in open.json, and the run not verified.
"""

from __future__ import annotations

from stages.frame import Stage, stage_main
from truehalf.exporting.configured import export_configured
from truehalf.files import MODEL_FILE, write_json
from truehalf.json_values import JsonObject

OPEN_FILE = "open.json"  # why the file is not verified; verify reads it


def run(stage: Stage) -> JsonObject:
    report = export_configured(stage.config, stage.root, stage.out() / MODEL_FILE)
    if report.baked is not None and (open_because := report.baked.reason):
        write_json(stage.out() / OPEN_FILE, [open_because])
    return report.to_json()


if __name__ == "__main__":
    stage_main("trace", run)
