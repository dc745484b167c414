"""compare: runs beside each other, and the frontier of detection error against cost: runs/compare.html and a table.

python -m pipeline.compare                                  the runs under runs/ and in all experiments of MLflow's
python -m pipeline.compare --experiment truehalf            those of one experiment
python -m pipeline.compare --diff RUN RUN                   which nodes have another precision, and why
"""

from __future__ import annotations

import argparse
import itertools
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from markupsafe import Markup

from pipeline.compare.compared_runs import ComparedRun, NothingToCompare, counted, gathered, of_mlflow
from pipeline.compare.frontier import COSTS, ERRORS, chosen, front_of, measured
from pipeline.compare.frontier_plot import drawn
from pipeline.compare.labels import labels
from pipeline.compare.node_diff import changes, summary
from pipeline.compare.terminal import print_tables
from pipeline.tracking.record import NO_EFFECT
from pipeline.workspace import root
from truehalf.codes import coded
from truehalf.errors import some_of
from truehalf.files import write_text
from truehalf.json_values import JsonObject
from truehalf.report.numbers import number
from truehalf.report.page import rendered
from truehalf.report.terminal import parser_of

_TEMPLATE = Path(__file__).with_name("compare.html.j2")
_NAMED = 12  # names at most in a message


def main() -> None:
    parser = parser_of("pipeline.compare", __doc__)
    parser.add_argument("--experiment", metavar="NAME", help="only runs of this experiment of MLflow's, none of runs/")
    parser.add_argument("--diff", nargs=2, metavar="RUN", help="two runs: number, name or id, or how that begins")
    arguments = parser.parse_args()
    try:
        _compare(arguments, root())
    except NothingToCompare as error:
        print(f"compare: {error}", file=sys.stderr)
        sys.exit(2)


def _compare(arguments: argparse.Namespace, project: Path) -> None:
    runs = in_groups(gathered(project) if arguments.experiment is None else of_mlflow(project, arguments.experiment))
    if arguments.diff:
        _print_diff(*(_named(runs, name) for name in arguments.diff))
        return
    rows, place = table(runs), project / "runs" / "compare.html"
    try:
        write_text(place, page(runs, rows, place.parent))
    except OSError as error:
        print(coded("file-unwritable", f"compare: cannot write {place}: {error.strerror}"), file=sys.stderr)
        sys.exit(1)
    print_tables(rows)
    print(f"compare: {counted(len(runs))}: {place}")


def _named(runs: Sequence[ComparedRun], name: str) -> ComparedRun:
    if name.isdecimal() and 1 <= int(name) <= len(runs):
        return runs[int(name) - 1]
    found = [run for run in runs if run.name == name] or [run for run in runs if run.name.startswith(name)]
    if len(found) != 1:
        message = f"no run is called {name!r}; there are" if not found else f"{len(found)} runs begin with {name!r}:"
        names = some_of((run.name for run in found or runs), _NAMED)
        message += f" {names}; give one's name, how it begins, or number"
        raise NothingToCompare(coded("unknown-choice", message))
    return found[0]


def in_groups(runs: Sequence[ComparedRun]) -> list[ComparedRun]:
    """Runs of one model and number of samples beside each other."""
    order = list(dict.fromkeys(run.group for run in runs))
    return sorted(runs, key=lambda run: order.index(run.group))


def table(runs: Sequence[ComparedRun]) -> list[JsonObject]:
    """A row for each run: number, name, title, group, label, verdict, page, its errors and costs, and where it stands.

    `frontier`: how many of the pairs of an error and a cost it is on the frontier of; `chosen`: the cheapest inside its
    gates, see pipeline.compare.frontier.chosen. Both are within its group, as what its label says differs.

    Args:
        runs: as `in_groups` sorts them.
    """
    rows: list[JsonObject] = []
    for group in _grouped(runs):
        errors, costs = measured(ERRORS, group), measured(COSTS, group)
        pairs = [(error, cost) for error in errors for cost in costs]
        fronts = [front_of(group, error, cost) for error, cost in pairs]
        best = chosen(group)
        for position, (run, label) in enumerate(zip(group, labels(group), strict=True)):
            row: JsonObject = {
                **{"number": len(rows) + 1, "run": run.name, "title": run.title, "group": run.group, "label": label},
                **{"verdict": run.verdict, "reason": run.reason, "page": run.page},
                **{axis.key: axis.of(run.numbers) for axis in (*errors, *costs)},
                **{"frontier": sum(position in each for each in fronts), "pairs": len(pairs)},
                "chosen": position == best,
            }
            rows.append(row)
    return rows


def _grouped(runs: Sequence[ComparedRun]) -> list[list[ComparedRun]]:
    return [list(group) for _, group in itertools.groupby(runs, key=lambda run: run.group)]


def page(runs: Sequence[ComparedRun], rows: Sequence[JsonObject], folder: Path) -> str:
    """One page that opens anywhere: it loads nothing, and holds no date. Links to files are relative to `folder`."""
    groups, first = [], 0
    for group in _grouped(runs):
        errors, costs = measured(ERRORS, group), measured(COSTS, group)
        best, own = chosen(group), rows[first : first + len(group)]
        image = drawn(group, (errors, costs), best, first) if errors and costs else None
        content = {
            "title": group[0].group,
            "rows": [{**row, "page": _link(row["page"], folder)} for row in own],
            "axes": [*errors, *costs],
            "chosen": None if best is None else own[best],
            "image": None if image is None else Markup(image),
        }
        groups.append(content)
        first += len(group)
    failed = sum(run.has_failed for run in runs)
    return rendered(_TEMPLATE, {"groups": groups, "count": len(runs), "failed": failed}, {"number": number})


def _link(place: object, folder: Path) -> str | None:
    if not isinstance(place, str) or place.startswith(("http://", "https://")):
        return place if isinstance(place, str) else None
    return quote(os.path.relpath(place, folder))


def _print_diff(first: ComparedRun, second: ComparedRun) -> None:
    found = changes(first, second)
    print(f"{first.name} ({first.title}) -> {second.name} ({second.title})")
    for key in sorted({*first.params, *second.params}):
        before, after = first.params.get(key, "absent"), second.params.get(key, "absent")
        if before != after and NO_EFFECT not in (before, after):
            print(f"  {key}: {before} -> {after}")
    print(f"{len(found)} nodes have another precision")
    for many, what, nodes in summary(found):
        print(f"  {many:5d}  {what}\n         {nodes}")
