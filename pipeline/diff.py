"""Options, figures and nodes that differ between two runs.

python -m pipeline.diff RUN RUN      folders of runs/ by name, or how that begins; . is the run of the workspace
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pipeline.tracking.record import ABOUT, NO_EFFECT, flat_params, in_effect, run_name
from pipeline.workspace import crash_of, json_of, reports_of_run, root
from truehalf.codes import coded
from truehalf.config.params import read_params
from truehalf.errors import StageError, some_of
from truehalf.report.forms import Decision
from truehalf.report.terminal import parser_of, run_program

_NAMED = 12  # names at most in a message


@dataclass(frozen=True)
class _Side:
    """A run.

    Attributes:
        params: dotted keys, values as text; NO_EFFECT for options that change nothing.
        decisions: by node; None of a run that decided nothing: it is FP32, or was traced in FP16.
        crash: why it crashed; "" where it did not.
    """

    name: str
    params: dict[str, str]
    figures: dict[str, Any]
    decisions: dict[str, Decision] | None
    crash: str

    def precision(self, node: str) -> str:
        if self.decisions is None:
            return "fp32"
        return str(self.decisions[node]["precision"]) if node in self.decisions else "absent"


def main() -> int:
    parser = parser_of("pipeline.diff", __doc__)
    parser.add_argument("runs", nargs=2, metavar="RUN")
    try:
        first, second = (_side(_folder(root(), name)) for name in parser.parse_args().runs)
        nodes = list(_nodes(first, second))
    except StageError as error:
        print(f"diff: {error}", file=sys.stderr)
        return 2
    print(f"{first.name} -> {second.name}")
    for before, after in ((first.params, second.params), (first.figures, second.figures)):
        for key in sorted({*before, *after}):
            values = before.get(key, "absent"), after.get(key, "absent")
            if values[0] != values[1] and NO_EFFECT not in values:
                print(f"  {key}: {values[0]} -> {values[1]}")
    print(*nodes, sep="\n")
    return 0


def _folder(project: Path, name: str) -> Path:
    """The folder of a run.

    Raises:
        StageError: none has this name, or several begin with it.
    """
    if (Path(name) / "params.yaml").is_file():
        return Path(name)
    known = sorted(path.parent for path in (project / "runs").glob(f"*/{ABOUT}") if path.parent.suffix != ".partial")
    found = [each for each in known if each.name == name] or [each for each in known if each.name.startswith(name)]
    if len(found) == 1:
        return found[0]
    names = some_of((each.name for each in found or known), _NAMED) or "none"
    message = f"expected the name of one run in {project / 'runs'}, got {name!r}; there are: {names}"
    raise StageError("unknown-choice", message)


def _side(folder: Path) -> _Side:
    crash, params = crash_of(folder), read_params(folder)
    reports = reports_of_run(folder, crash["stage"] if crash else None)
    rows: list[Decision] = (json_of(folder / "artifacts/fp16/decisions.json") if "fp16" in reports else None) or []
    name = f"{folder.name or '.'} ({run_name(params)})"
    figures = {} if crash else json_of(folder / "reports" / "metrics.json") or {}
    decisions = {row["node"]: row for row in rows} or None
    return _Side(name, in_effect(flat_params(params)), figures, decisions, crash["message"] if crash else "")


def _nodes(first: _Side, second: _Side) -> Iterator[str]:
    """Lines on the nodes of another precision, by change and rule, the most first."""
    for side in (first, second):
        if side.decisions is None and side.crash:
            message = f"{side.name} crashed before it had decided over nodes ({side.crash})"
            raise StageError("no-decisions", coded("no-decisions", message))
    before, after = first.decisions or {}, second.decisions or {}
    changes: dict[str, list[str]] = {}
    for node in dict.fromkeys((*after, *before)):
        was, now = first.precision(node), second.precision(node)
        rows = [side[node] for side in (after, before) if node in side]
        why = next((row for row in rows if row["precision"] == "fp32"), rows[0])["rule"]
        if was != now:
            whole = next((side.name for side in (first, second) if side.decisions is None), "")
            reason = f"{whole} decided over no nodes" if whole else why
            changes.setdefault(f"{was} -> {now}: {reason}", []).append(f"{node} ({rows[0]['op']})")
    yield f"{sum(map(len, changes.values()))} nodes have another precision"
    for change, nodes in sorted(changes.items(), key=lambda item: (-len(item[1]), item[0])):
        yield f"  {len(nodes):5d}  {change}\n         {some_of(nodes)}"


if __name__ == "__main__":
    run_program(main)
