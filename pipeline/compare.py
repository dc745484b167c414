"""compare: runs beside each other, and the frontier of detection error against cost: runs/compare.html and a table.

python -m pipeline.compare                                  the runs under runs/
python -m pipeline.compare --experiment truehalf            those of an experiment of MLflow's
python -m pipeline.compare --diff RUN RUN                   which nodes have another precision, and why
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from pipeline.compared_runs import ComparedRun, NothingToCompare, labels, of_folders, of_mlflow
from pipeline.frontier import COSTS, ERRORS, chosen, front_of, measured
from pipeline.frontier_plot import INK, drawn
from pipeline.node_diff import changes, summary
from pipeline.template import rendered
from pipeline.workspace import root, write_text

_TEMPLATE = "compare.html.j2"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
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
    project = root()
    try:
        runs = _runs(project, arguments.experiment)
        if arguments.diff:
            first, second = (_named(runs, name) for name in arguments.diff)
            _print_diff(first, second, arguments.json)
            return
        runs = [run for run in runs if arguments.filter in run.title or arguments.filter in json.dumps(run.params)]
        if not runs:
            raise NothingToCompare(f"no run has {arguments.filter!r} in its title or params")
    except NothingToCompare as error:
        print(f"compare: {error}", file=sys.stderr)
        sys.exit(2)
    rows = table(runs)
    place = arguments.out or project / "runs" / "compare.html"
    write_text(place, page(runs, rows))
    if arguments.json:
        write_text(arguments.json, json.dumps(rows, indent=2) + "\n")
    _print_table(rows)
    print(f"compare: {len(runs)} runs: {place}")


def _runs(project: Path, experiment: str | None) -> list[ComparedRun]:
    if experiment is not None:
        return of_mlflow(project, experiment)
    return of_folders(project)


def _named(runs: Sequence[ComparedRun], name: str) -> ComparedRun:
    if name.isdecimal() and 1 <= int(name) <= len(runs):
        return runs[int(name) - 1]
    found = [run for run in runs if run.name == name] or [run for run in runs if run.name.startswith(name)]
    if len(found) != 1:
        said = "no run" if not found else f"{len(found)} runs"
        raise NothingToCompare(f"{said} of the name {name!r}; there are {', '.join(run.name for run in runs)}")
    return found[0]


def table(runs: Sequence[ComparedRun]) -> list[dict[str, Any]]:
    """A row for each run: number, name, label, verdict, its errors and costs, and where it stands.

    `frontier`: how many of the pairs of an error and a cost it is on the frontier of; `chosen`: the cheapest inside its
    gates, see pipeline.frontier.chosen.
    """
    errors, costs = measured(ERRORS, runs), measured(COSTS, runs)
    pairs = [(error, cost) for error in errors for cost in costs]
    fronts = [front_of(runs, error, cost) for error, cost in pairs]
    best = chosen(runs)
    return [
        {
            **{"number": position + 1, "run": run.name, "title": run.title, "label": label, "verdict": run.verdict},
            **{axis.key: axis.of(run.numbers) for axis in (*errors, *costs)},
            **{"frontier": sum(position in each for each in fronts), "pairs": len(pairs), "chosen": position == best},
        }
        for position, (run, label) in enumerate(zip(runs, labels(runs), strict=True))
    ]


def page(runs: Sequence[ComparedRun], rows: Sequence[dict[str, Any]]) -> str:
    """One page that opens anywhere: it loads nothing, and holds no date."""
    from markupsafe import Markup

    errors, costs = measured(ERRORS, runs), measured(COSTS, runs)
    best = chosen(runs)
    picture = drawn(runs, errors, costs, best).replace(INK, "currentColor") if errors and costs else None
    content = {
        "rows": rows,
        "axes": [*errors, *costs],
        "chosen": None if best is None else rows[best],
        "picture": None if picture is None else Markup(picture),
        "failed": sum(run.verdict in ("failed", "crashed") for run in runs),
    }
    return rendered(_TEMPLATE, {"number": number}, content)


def number(value: float | None) -> str:
    """Three significant digits, without an exponent where one is not needed; a dash for what was not measured."""
    if value is None:
        return "–"
    return f"{value:.3g}" if value == 0 or 1e-4 <= abs(value) < 1e4 else f"{value:.2e}"


def _print_table(rows: Sequence[dict[str, Any]]) -> None:
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    width = None if sys.stdout.isatty() else max(140, shutil.get_terminal_size().columns)
    shown = Table()
    axes = [axis for axis in (*ERRORS, *COSTS) if axis.key in rows[0]]
    shown.add_column("#", no_wrap=True)
    shown.add_column("what differs", overflow="fold", ratio=1)
    for name in ("verdict", *(axis.key for axis in axes), "frontier"):
        shown.add_column(name, justify="left" if name == "verdict" else "right")
    for row in rows:
        mark = "* " if row["chosen"] else ""
        values = [number(row[axis.key]) for axis in axes]
        on = f"{row['frontier']}/{row['pairs']}"
        shown.add_row(f"{mark}{row['number']}", escape(row["label"]), row["verdict"], *values, on)
    Console(width=width, highlight=False).print(shown)
    if any(row["chosen"] for row in rows):
        print("* the cheapest run inside its gates")


def _print_diff(first: ComparedRun, second: ComparedRun, out: Path | None) -> None:
    found = changes(first, second)
    print(f"{first.name} ({first.title}) -> {second.name} ({second.title})")
    for key in sorted({*first.params, *second.params}):
        before, after = first.params.get(key, "absent"), second.params.get(key, "absent")
        if before != after and "no effect" not in (before, after):
            print(f"  {key}: {before} -> {after}")
    print(f"{len(found)} nodes have another precision")
    for what, count in summary(found):
        print(f"  {count:5d}  {what}")
    for change in found:
        print(f"{change.node} ({change.op}): {change.before} -> {change.after}: {change.why}")
    if out:
        write_text(out, json.dumps([asdict(change) for change in found], indent=2) + "\n")


if __name__ == "__main__":
    main()
