"""gate: end with exit code 1 where the verdict in reports/metrics.json is "failed".

The stages before it end well even when a gate fails, so that everything is written, drawn and tracked.
"""

from __future__ import annotations

from pipeline.run_record import FAILED
from pipeline.workspace import root
from truehalf.files import read_json
from truehalf.report.terminal import parser_of, run_program


def main() -> int:
    parser_of("pipeline.gate", __doc__).parse_args()
    return 1 if read_json(root() / "reports" / "metrics.json")["verdict"] == FAILED else 0


if __name__ == "__main__":
    run_program(main)
