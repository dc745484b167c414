"""finish: metrics.json, the page, the MLflow run, the delivered file and the verdict on the terminal.

    python -m pipeline.finish

It runs at the end of every run, ends well also when a gate failed, so that no evidence is lost, and leaves the exit
code to the stage `gate`. After a crash `python -m pipeline` calls it.
"""

from __future__ import annotations

import gc
import sys

from pipeline.deliver import deliver
from pipeline.figures import metrics_of
from pipeline.page import draw
from pipeline.run_record import Run
from pipeline.terminal import verdict_block
from pipeline.track import previous_run, track
from pipeline.workspace import root
from truehalf.errors import attempted
from truehalf.files import write_json
from truehalf.progress import step
from truehalf.report.terminal import parser_of, run_program, show, terminal_width


def main() -> None:
    parser_of("pipeline.finish", __doc__).parse_args()
    gc.set_threshold(100_000)  # MLflow imports 280,000 objects that stay: looking for garbage among them takes a sixth
    run, missing = Run.read(root()), list[str]()
    if run.crash is None:
        write_json(run.folder / "reports" / "metrics.json", metrics_of(run))
    with step("finish"):
        attempted("the page", missing.append, lambda: draw(run, previous_run(run)))
        outcome = track(run, missing)
    for message in missing:
        print(f"finish: {message}", file=sys.stderr)
    delivered = deliver(run)
    show(verdict_block(run, delivered, outcome, terminal_width()))


if __name__ == "__main__":
    run_program(main)
