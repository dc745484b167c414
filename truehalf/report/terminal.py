"""Text on a terminal: its width, verdicts in colour, pipes that close."""

from __future__ import annotations

import os
import re
import shutil
import sys
import textwrap
from collections.abc import Iterable
from typing import TextIO

import click

_COLOURS = {"passed": "green", "done": "green", "converted": "green", "built": "green", "failed": "red", "error": "red"}
_COLOURS |= {"not verified": "yellow", "planned": "yellow", "compiled": "yellow", "warning": "yellow"}
_STATES = "|".join(_COLOURS)
_COLOURED = re.compile(rf"^(?:{_STATES})(?=:|  )|(?<=  )(?:{_STATES})$", re.MULTILINE)  # a line's first or last word


def show(text: str, stream: TextIO | None = None) -> None:
    """Print, on a terminal with verdicts in colour; a closed pipe is no error."""
    stream = stream or sys.stdout
    if has_colour(stream):
        text = _COLOURED.sub(lambda found: click.style(found[0], fg=_COLOURS[found[0]], bold=True), text)
    try:
        print(text, file=stream, flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def has_colour(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"


def wrapped(lines: Iterable[str]) -> list[str]:
    """Items of a list, in lines that fit the terminal."""
    width = max(60, min(terminal_width(), 120))
    wrapper = textwrap.TextWrapper(width, initial_indent="  - ", subsequent_indent="    ", break_long_words=False)
    return [wrapper.fill(line) for line in lines]


def terminal_width() -> int:
    """Columns of the terminal; of a pipe 120."""
    return shutil.get_terminal_size((120, 24)).columns
