"""Terminal tables of compared runs, one for each group; on a narrow terminal a block of lines for each run."""

from __future__ import annotations

import itertools
import textwrap
from collections.abc import Sequence

from pipeline.compare.frontier import COSTS, ERRORS, Axis
from truehalf.json_values import JsonObject
from truehalf.report.numbers import number
from truehalf.report.terminal import print_table, terminal_width

_NARROW = 120  # columns: no table below
_BESIDE = 62  # columns of a table beside its figures, of which a label has 30
_FIGURE = 13  # columns of a figure with its lines


def print_tables(rows: Sequence[JsonObject]) -> None:
    """Print rows of pipeline.compare.compare.table."""
    width = terminal_width()
    for title, group in itertools.groupby(rows, key=lambda row: str(row["group"])):
        own = list(group)
        axes = [axis for axis in (*ERRORS, *COSTS) if axis.key in own[0]]
        if width < max(_NARROW, _BESIDE + _FIGURE * len(axes)):
            print(title)
            _print_blocks(own, axes, width)
        else:
            columns = {"#": "left", "what differs": "left", "verdict": "left"} | {axis.label: "right" for axis in axes}
            print_table(title, columns | {"on the frontier of": "right"}, [_cells(row, axes) for row in own])
        for row in own:
            if row["chosen"]:
                equal = [str(other["number"]) for other in own if other is not row and _alike(row, other, axes)]
                more = f"; with the same numbers: {', '.join(equal)}" if equal else ""
                print(textwrap.fill(f"* the cheapest run inside its gates{more}", width))
        print()


def _print_blocks(rows: Sequence[JsonObject], axes: Sequence[Axis], width: int) -> None:
    for row in rows:
        head = f"{'*' if row['chosen'] else ' '} {row['number']:>2}  {row['label']}"
        values = [f"{axis.label}: {number(row[axis.key])}" for axis in axes]
        text = "; ".join([str(row["verdict"]), *values, f"on the frontier of {row['frontier']} of {row['pairs']}"])
        for line, indent in ((head, ""), (text, " " * 6)):
            print(textwrap.fill(line, width, initial_indent=indent, subsequent_indent=" " * 6))


def _cells(row: JsonObject, axes: Sequence[Axis]) -> list[str]:
    head = [f"{'* ' if row['chosen'] else ''}{row['number']}", str(row["label"]), str(row["verdict"])]
    return [*head, *(number(row[axis.key]) for axis in axes), f"{row['frontier']} of {row['pairs']}"]


def _alike(row: JsonObject, other: JsonObject, axes: Sequence[Axis]) -> bool:
    return other["verdict"] == "passed" and all(row[axis.key] == other[axis.key] for axis in axes)
