"""Options, figures and nodes that differ between two runs.

python -m pipeline.diff RUN RUN      folders of runs/ by name, or the beginning of one; . is the run of the workspace
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

from pipeline.figures import FIGURES, value_of
from pipeline.run_record import Run, flat_params
from pipeline.workspace import root
from truehalf.codes import coded
from truehalf.conversion.report import Decision
from truehalf.errors import StageError, some_of
from truehalf.report.terminal import parser_of, run_program

_ABSENT = "–"
_NAMES_SHOWN = 12
Row = tuple[str, str, str]  # name, value before, value now


def main() -> int:
    parser = parser_of("pipeline.diff", __doc__)
    parser.add_argument("runs", nargs=2, metavar="RUN")
    try:
        before, now = (Run.read(_folder(root(), name)) for name in parser.parse_args().runs)
        nodes = list(node_lines(before, now))
    except StageError as error:
        print(f"diff: {error}", file=sys.stderr)
        return 2
    print(f"{_called(before)} -> {_called(now)}")
    for name, old, new in (*differing_options(before, now), *differing_figures(before, now)):
        print(f"  {name}: {old} -> {new}")
    print(*nodes, sep="\n")
    return 0


def differing_options(before: Run, now: Run) -> list[Row]:
    """Parameters that differ, by dotted key."""
    old, new = flat_params(before.params), flat_params(now.params)
    rows = [(key, old.get(key, _ABSENT), new.get(key, _ABSENT)) for key in sorted({*old, *new})]
    return [row for row in rows if row[1] != row[2]]


def differing_figures(before: Run, now: Run) -> list[Row]:
    """Figures that differ as they are shown, the headline ones first, and the verdict."""
    rows = [("verdict", before.verdict, now.verdict)]
    for figure in FIGURES:
        values = [value_of(run, figure) for run in (before, now)]
        old, new = (_ABSENT if value is None else figure.shown(value) for value in values)
        if figure.key != "seconds":
            rows.append((figure.label, old, new))
    return [row for row in rows if row[1] != row[2]]


def node_lines(before: Run, now: Run) -> Iterator[str]:
    """Number of nodes whose precision differs, then two lines for each change and rule, the most frequent first.

    Raises:
        StageError: a run that crashed before it decided over nodes.
    """
    for run in (before, now):
        if run.crash and not run.decisions:
            message = f"{_called(run)} crashed before it had decided over nodes ({run.crash.message})"
            raise StageError("no-decisions", coded("no-decisions", message))
    sides = [{row["node"]: row for row in run.decisions or []} for run in (before, now)]
    changes: dict[str, list[str]] = {}
    for node in dict.fromkeys((*sides[1], *sides[0])):
        old, new = (_precision(side, node) for side in sides)
        if old == new:
            continue
        rows = [side[node] for side in reversed(sides) if node in side]
        rule = next((row for row in rows if row["precision"] == "fp32"), rows[0])["rule"]
        undecided = next((_called(run) for run, side in zip((before, now), sides, strict=True) if not side), "")
        reason = f"{undecided} decided over no nodes" if undecided else rule
        changes.setdefault(f"{old} -> {new}: {reason}", []).append(f"{node} ({rows[0]['op']})")
    yield f"{sum(map(len, changes.values()))} nodes have another precision"
    for change, nodes in sorted(changes.items(), key=lambda item: (-len(item[1]), item[0])):
        yield f"  {len(nodes):5d}  {change}\n         {some_of(nodes)}"


def _precision(decisions: Mapping[str, Decision], node: str) -> str:
    """Precision of a node; a run without decisions is FP32, or was traced in FP16, as a whole."""
    if not decisions:
        return "fp32"
    return str(decisions[node]["precision"]) if node in decisions else "absent"


def _called(run: Run) -> str:
    return f"{run.folder.name or '.'} ({run.name})"


def _folder(project: Path, name: str) -> Path:
    """Folder of the run with a name.

    Raises:
        StageError: none has this name, or several begin with it.
    """
    if (Path(name) / "params.yaml").is_file():
        return Path(name)
    known = sorted(path.parent for path in (project / "runs").glob("*/params.yaml"))
    matching = [folder for folder in known if folder.name == name]
    matching = matching or [folder for folder in known if folder.name.startswith(name)]
    if len(matching) == 1:
        return matching[0]
    names = some_of((folder.name for folder in matching or known), _NAMES_SHOWN) or "none"
    message = f"expected the name of one run in {project / 'runs'}, got {name!r}; there are: {names}"
    raise StageError("unknown-choice", message)


if __name__ == "__main__":
    run_program(main)
