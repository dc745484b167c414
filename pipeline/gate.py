"""gate: print the run's table and verdict, and turn the verdict into the exit code.

verify and engine end well even when their gates fail, so that everything is written, drawn and tracked; this last stage
then says no.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from pipeline.summary import print_summary
from pipeline.workspace import read_params, read_reports, root


def failures(reports: dict[str, dict[str, Any]]) -> list[str]:
    """Why the run fails: one line per failed stage; empty when it does not."""
    found = []
    for stage in ("verify", "engine"):
        report = reports.get(stage)
        if report is None:
            found.append(f"{stage}: reports/{stage}.json is missing or broken")
        elif report["status"] == "failed":
            found += [f"{stage}: {reason}" for reason in report.get("reasons") or [report.get("reason", "failed")]]
    return found


def main() -> None:
    folder = root()
    reports = read_reports(folder)
    tracked = _tracked(folder)
    print_summary(read_params(folder), reports, tracked)
    reasons = failures(reports)
    for reason in reasons:
        print(f"gate: {reason}", file=sys.stderr)
    sys.exit(1 if reasons else 0)


def _tracked(folder: Path) -> dict[str, Any] | None:
    path = folder / "reports" / "track.json"
    return json.loads(path.read_text()) if path.exists() else None


if __name__ == "__main__":
    main()
