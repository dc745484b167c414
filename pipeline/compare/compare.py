"""compare: runs beside each other, and the frontier of detection error against cost: runs/compare.html and a table.

python -m pipeline.compare                                  the runs under runs/ and in all experiments of MLflow's
python -m pipeline.compare --experiment truehalf            those of one experiment
python -m pipeline.compare --diff RUN RUN                   which nodes have another precision, and why
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import os
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from urllib.parse import quote

from pipeline.compare.compared_runs import ComparedRun, NothingToCompare, counted, gathered, of_mlflow
from pipeline.compare.frontier import COSTS, ERRORS, chosen, front_of, measured
from pipeline.compare.frontier_plot import drawn
from pipeline.compare.labels import labels
from pipeline.compare.node_diff import changes, summary
from pipeline.compare.terminal import number, print_tables
from pipeline.tracking.record import NO_EFFECT
from pipeline.workspace import root
from truehalf.codes import coded
from truehalf.json_values import JsonObject
from truehalf.output_files import destination, same_place, write_text
from truehalf.report.page import rendered

_TEMPLATE = Path(__file__).with_name("compare.html.j2")
_NAMED = 12  # names, or nodes, at most in a message


def main() -> None:
    parser = argparse.ArgumentParser(
        prog="python -m pipeline.compare", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--experiment", metavar="NAME", help="only runs of this experiment of MLflow's, not those under runs/"
    )
    parser.add_argument("--filter", metavar="TEXT", default="", help="only runs whose title or params hold this text")
    parser.add_argument(
        "--diff", nargs=2, metavar="RUN", help="two runs: their name or id, or how it begins, or number"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="the page (default: runs/compare.html)")
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="write the table, or the differing nodes, here as well"
    )
    arguments = parser.parse_args()
    for place in (arguments.out, arguments.json):
        if place is not None and not place.parent.is_dir():
            parser.error(coded("file-missing", f"there is no folder {place.parent} for {place.name}"))
        if place is not None:
            _checked(place)
    page_place = arguments.out or _default_page(root())
    if arguments.json and same_place({"--json": arguments.json}, {"the page": page_place}):
        parser.error(coded("would-overwrite", f"--json {arguments.json} is the place of the page, too"))
    try:
        _compare(arguments, root())
    except NothingToCompare as error:
        print(f"compare: {error}", file=sys.stderr)
        sys.exit(2)


def _compare(arguments: argparse.Namespace, project: Path) -> None:
    runs = in_groups(gathered(project) if arguments.experiment is None else of_mlflow(project, arguments.experiment))
    if arguments.diff:
        first, second = (_named(runs, name) for name in arguments.diff)
        _print_diff(first, second, arguments.json)
        return
    runs = [run for run in runs if arguments.filter in run.title or arguments.filter in json.dumps(run.params)]
    if not runs:
        raise NothingToCompare(coded("no-match", f"no run has {arguments.filter!r} in its title or params"))
    rows = table(runs)
    place = arguments.out or _default_page(project)
    _write(place, page(runs, rows, place.parent))
    if arguments.json:
        _write(arguments.json, json.dumps(rows, indent=2) + "\n")
    print_tables(rows)
    print(f"compare: {counted(len(runs))}: {place}")


def _default_page(project: Path) -> Path:
    return project / "runs" / "compare.html"


def _checked(place: Path) -> None:
    with _faults_told(place):
        destination(place)


def _write(place: Path, text: str) -> None:
    with _faults_told(place):
        write_text(place, text)


@contextlib.contextmanager
def _faults_told(place: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        print(coded("file-unwritable", f"compare: cannot write {place}: {error.strerror}"), file=sys.stderr)
        sys.exit(1)


def _named(runs: Sequence[ComparedRun], name: str) -> ComparedRun:
    if name.isdecimal() and 1 <= int(name) <= len(runs):
        return runs[int(name) - 1]
    found = [run for run in runs if run.name == name] or [run for run in runs if run.name.startswith(name)]
    if len(found) != 1:
        message = f"no run is called {name!r}; there are" if not found else f"{len(found)} runs begin with {name!r}:"
        names = [run.name for run in found or runs]
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        message += f" {', '.join(names[:_NAMED])}{more}; give one's name, how it begins, or number"
        raise NothingToCompare(coded("unknown-choice", message))
    return found[0]


def in_groups(runs: Sequence[ComparedRun]) -> list[ComparedRun]:
    """Runs of one model and number of samples beside each other."""
    order = list(dict.fromkeys(run.group for run in runs))
    return sorted(runs, key=lambda run: order.index(run.group))


def table(runs: Sequence[ComparedRun]) -> list[JsonObject]:
    """A row for each run: number, name, group, label, verdict, page, its errors and costs, and where it stands.

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
    from markupsafe import Markup

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
    failed = sum(run.verdict in ("failed", "crashed") for run in runs)
    return rendered(_TEMPLATE, {"groups": groups, "count": len(runs), "failed": failed}, {"number": number})


def _link(place: object, folder: Path) -> str | None:
    if not isinstance(place, str) or place.startswith(("http://", "https://")):
        return place if isinstance(place, str) else None
    return quote(os.path.relpath(place, folder))


def _print_diff(first: ComparedRun, second: ComparedRun, out: Path | None) -> None:
    found = changes(first, second)
    print(f"{first.name} ({first.title}) -> {second.name} ({second.title})")
    for key in sorted({*first.params, *second.params}):
        before, after = first.params.get(key, "absent"), second.params.get(key, "absent")
        if before != after and NO_EFFECT not in (before, after):
            print(f"  {key}: {before} -> {after}")
    print(f"{len(found)} nodes have another precision")
    groups = summary(found)
    for what, nodes in groups:
        more = f" and {len(nodes) - _NAMED} more" if len(nodes) > _NAMED else ""
        print(f"  {len(nodes):5d}  {what}\n         {', '.join(nodes[:_NAMED])}{more}")
    if out is None and any(len(nodes) > _NAMED for _, nodes in groups):
        print("--json FILE writes all of them")
    if out:
        _write(out, json.dumps([asdict(change) for change in found], indent=2) + "\n")
