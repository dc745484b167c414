"""gate: print the run's table and verdict, and turn the verdict into the exit code.

verify and engine end well even when their gates fail, so that everything is written, drawn and tracked; this last stage
then says no.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path

from pipeline.caveats import unmet
from pipeline.forms import Outcome, Params, Reports, of_stage
from pipeline.summary import print_summary
from pipeline.workspace import read_params, read_reports, root
from truehalf.codes import coded


def failures(reports: Reports, params: Params) -> list[str]:
    """Why the run fails: a line for each reason of a failed stage, and for each thing that had to be verified and was
    not; empty when it does not fail.
    """
    found = []
    for stage in ("verify", "engine"):
        report = of_stage(reports, stage)
        if report is None:
            found.append(coded("file-missing", f"{stage}: reports/{stage}.json is missing or broken"))
        elif report.get("status") == "failed":
            found += [f"{stage}: {reason}" for reason in report.get("reasons") or [report.get("reason", "failed")]]
    return found + unmet(params, reports)


def worst_outputs(folder: Path) -> list[str]:
    """The worst outputs of each failed gate, as verify names them."""
    path = folder / "artifacts" / "verify" / "verdict.json"
    found = json.loads(path.read_text())["findings"] if path.exists() else []
    return [
        f"{finding['gate']}: worst: " + ", ".join(f"{name} {value}" for name, value in item.items())
        for finding in found
        for item in finding.get("worst", [])
    ]


def main() -> None:
    argparse.ArgumentParser(
        prog="python -m pipeline.gate", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    ).parse_args()
    folder = root()
    reports = read_reports(folder)
    tracked = _tracked(folder)
    params = read_params(folder)
    print_summary(params, reports, tracked)
    reasons = failures(reports, params)
    for reason in reasons:
        print(f"gate: {reason}", file=sys.stderr)
    if reports.get("verify", {}).get("status") == "failed":
        for line in worst_outputs(folder):
            print(f"gate: {line}", file=sys.stderr)
    sys.exit(1 if reasons else 0)


def _tracked(folder: Path) -> Outcome | None:
    path = folder / "reports" / "track.json"
    return json.loads(path.read_text()) if path.exists() else None


if __name__ == "__main__":
    main()
