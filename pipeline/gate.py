"""gate: print the verdict of the run and turn it into the exit code.

verify and engine end well even when their gates fail, so that everything is written, drawn and tracked; this last stage
then says no.
"""

from __future__ import annotations

import sys

from pipeline.summary.block import ended, show_verdict
from pipeline.workspace import root
from truehalf.report.terminal import parser_of, run_program


def main() -> None:
    parser = parser_of("pipeline.gate", __doc__)
    parser.add_argument("--failed-stage", metavar="STAGE", help="of a run that crashed in this stage")
    run = ended(root(), parser.parse_args().failed_stage)
    show_verdict(run)
    sys.exit(1 if run.verdict == "failed" else 0)


if __name__ == "__main__":
    run_program(main)
