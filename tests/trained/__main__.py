"""Convert trained models of others, check and compare them, and print one table.

python -m tests.trained                       all of them (make trained), two at a time
python -m tests.trained silero nudenet        models whose name contains one of these
python -m tests.trained --faults nudenet      graded faults planted in these instead
python -m tests.trained --json rows.json      the rows as JSON, too
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Sequence
from pathlib import Path

from tests.trained.corpus import MODELS
from tests.trained.faults import FAULTED
from tests.trained.measure import Row
from tests.trained.running import all_rows
from tests.trained.tables import faults_table, trained_table


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.trained", description=(__doc__ or "").splitlines()[0])
    parser.add_argument("names", nargs="*", help="parts of names")
    parser.add_argument("--faults", action="store_true", help=f"plant graded faults, in {', '.join(FAULTED)}")
    parser.add_argument("--jobs", type=int, default=2, help="processes side by side")
    parser.add_argument("--json", type=Path)
    given = parser.parse_args(arguments)
    known = FAULTED if given.faults else tuple(MODELS)
    names = [name for name in known if not given.names or any(part in name for part in given.names)]
    if not names:
        parser.error(f"no model is called so; known: {', '.join(known)}")
    module = "tests.trained.faults" if given.faults else "tests.trained.measure"
    rows: list[Row] = []
    for found in all_rows([(module, name) for name in names], given.jobs):
        rows += found
        print(json.dumps(found)[:300], flush=True)
    rows.sort(key=lambda row: (str(row["model"]), str(row.get("kind"))))
    if given.json:
        given.json.write_text(json.dumps(rows, indent=1, sort_keys=True) + "\n")
    print(faults_table(rows) if given.faults else trained_table(rows))


if __name__ == "__main__":
    main()
