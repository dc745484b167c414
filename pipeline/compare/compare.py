"""compare: runs beside each other, and the frontier of detection error against cost: runs/compare.html and a table.

python -m pipeline.compare                                  the runs under runs/
python -m pipeline.compare --experiment truehalf            those of an experiment of MLflow's
python -m pipeline.compare --diff RUN RUN                   which nodes have another precision, and why
"""

from __future__ import annotations

import argparse
import contextlib
import json
import shutil
import sys
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import cast

from pipeline.compare.compared_runs import ComparedRun, NothingToCompare, counted, labels, of_folders, of_mlflow
from pipeline.compare.frontier import COSTS, ERRORS, Axis, chosen, front_of, measured
from pipeline.compare.frontier_plot import drawn
from pipeline.compare.node_diff import changes, summary
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
        "--experiment", metavar="NAME", help="runs of this experiment of MLflow's, not those under runs/"
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
    runs = of_folders(project) if arguments.experiment is None else of_mlflow(project, arguments.experiment)
    if arguments.diff:
        first, second = (_named(runs, name) for name in arguments.diff)
        _print_diff(first, second, arguments.json)
        return
    runs = [run for run in runs if arguments.filter in run.title or arguments.filter in json.dumps(run.params)]
    if not runs:
        raise NothingToCompare(coded("no-match", f"no run has {arguments.filter!r} in its title or params"))
    rows = table(runs)
    place = arguments.out or _default_page(project)
    _write(place, page(runs, rows))
    if arguments.json:
        _write(arguments.json, json.dumps(rows, indent=2) + "\n")
    _print_table(rows)
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


def table(runs: Sequence[ComparedRun]) -> list[JsonObject]:
    """A row for each run: number, name, label, verdict, its errors and costs, and where it stands.

    `frontier`: how many of the pairs of an error and a cost it is on the frontier of; `chosen`: the cheapest inside its
    gates, see pipeline.compare.frontier.chosen.
    """
    errors, costs = measured(ERRORS, runs), measured(COSTS, runs)
    pairs = [(error, cost) for error in errors for cost in costs]
    fronts = [front_of(runs, error, cost) for error, cost in pairs]
    best = chosen(runs)
    return [
        {
            **{"number": position + 1, "run": run.name, "title": run.title, "label": label, "verdict": run.verdict},
            "reason": run.reason,
            **{axis.key: axis.of(run.numbers) for axis in (*errors, *costs)},
            **{"frontier": sum(position in each for each in fronts), "pairs": len(pairs), "chosen": position == best},
        }
        for position, (run, label) in enumerate(zip(runs, labels(runs), strict=True))
    ]


def page(runs: Sequence[ComparedRun], rows: Sequence[JsonObject]) -> str:
    """One page that opens anywhere: it loads nothing, and holds no date."""
    from markupsafe import Markup

    errors, costs = measured(ERRORS, runs), measured(COSTS, runs)
    best = chosen(runs)
    image = drawn(runs, errors, costs, best) if errors and costs else None
    content = {
        "rows": rows,
        "axes": [*errors, *costs],
        "chosen": None if best is None else rows[best],
        "image": None if image is None else Markup(image),
        "failed": sum(run.verdict in ("failed", "crashed") for run in runs),
    }
    return rendered(_TEMPLATE, content, {"number": number})


def number(value: float | None) -> str:
    """Three significant digits, without an exponent where one is not needed; a dash for what was not measured."""
    if value is None:
        return "–"
    return f"{value:.3g}" if value == 0 or 1e-4 <= abs(value) < 1e4 else f"{value:.2e}"


def _print_table(rows: Sequence[JsonObject]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    width = None if sys.stdout.isatty() else max(170, shutil.get_terminal_size().columns)
    shown = Table()
    axes = [axis for axis in (*ERRORS, *COSTS) if axis.key in rows[0]]
    shown.add_column("#", no_wrap=True)
    shown.add_column("what differs", overflow="fold", ratio=1, min_width=40)
    for name in ("verdict", *(axis.label for axis in axes), "on the frontier of"):
        shown.add_column(name, justify="left" if name == "verdict" else "right")
    for row in rows:
        mark = "* " if row["chosen"] else ""
        values = [number(cast("float | None", row[axis.key])) for axis in axes]
        on = f"{row['frontier']} of {row['pairs']}"
        shown.add_row(f"{mark}{row['number']}", escape(str(row["label"])), str(row["verdict"]), *values, on)
    Console(width=width, highlight=False).print(shown)
    for row in rows:
        if row["chosen"]:
            equal = [str(other["number"]) for other in rows if other is not row and _alike(row, other, axes)]
            print(
                "* the cheapest run inside its gates"
                + (f"; with the same numbers: {', '.join(equal)}" if equal else "")
            )


def _alike(row: JsonObject, other: JsonObject, axes: Sequence[Axis]) -> bool:
    return other["verdict"] == "passed" and all(row[axis.key] == other[axis.key] for axis in axes)


def _print_diff(first: ComparedRun, second: ComparedRun, out: Path | None) -> None:
    found = changes(first, second)
    print(f"{first.name} ({first.title}) -> {second.name} ({second.title})")
    for key in sorted({*first.params, *second.params}):
        before, after = first.params.get(key, "absent"), second.params.get(key, "absent")
        if before != after and "no effect" not in (before, after):
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
