"""Text on a terminal: its width, verdicts in colour, pipes that close."""

from __future__ import annotations

import argparse
import atexit
import gc
import io
import os
import re
import shutil
import sys
from collections.abc import Callable
from typing import Any, TextIO

import click

_COLOURS = {"passed": "green", "done": "green", "converted": "green", "built": "green", "failed": "red", "error": "red"}
_COLOURS |= {"not verified": "yellow", "planned": "yellow", "compiled": "yellow", "warning": "yellow"}
_STATES = "|".join(_COLOURS)
_COLOURED = re.compile(rf"^(?:{_STATES})(?=:|  )|(?<=  )(?:{_STATES})$", re.MULTILINE)  # a line's first or last word


class _Output(io.FileIO):
    """A stream of the process; what its reader no longer takes goes nowhere."""

    def write(self, data: Any) -> int:
        try:
            return super().write(data)
        except BrokenPipeError:
            os.dup2(os.open(os.devnull, os.O_WRONLY), self.fileno())
            return len(data)


def run_program(main: Callable[[], int | None]) -> None:
    """Call the `main` of a program and end the process with its exit code.

    Where the reader of its output has gone (`| head`), the program goes on and ends as it would have: a run that has
    begun is of use without its lines.
    """
    for name in ("stdout", "stderr"):
        stream: TextIO | None = getattr(sys, name)
        if stream is not None:
            raw = io.BufferedWriter(_Output(stream.fileno(), "w", closefd=False))
            by_line = name == "stderr" or stream.isatty()
            setattr(sys, name, io.TextIOWrapper(raw, stream.encoding, "backslashreplace", line_buffering=by_line))
    atexit.register(gc.freeze)  # what is left goes with the process: Python need not look for garbage in it
    sys.exit(main())


def parser_of(module: str, text: str | None, epilog: str | None = None) -> argparse.ArgumentParser:
    """The arguments of `python -m <module>`, whose help shows a text, such as the module's docstring, as it stands."""
    form = argparse.RawDescriptionHelpFormatter
    return argparse.ArgumentParser(f"python -m {module}", description=text, epilog=epilog, formatter_class=form)


def show(text: str, stream: TextIO | None = None) -> None:
    """Print, on a terminal with verdicts in colour."""
    stream = stream or sys.stdout
    if has_colour(stream):
        text = _COLOURED.sub(lambda found: click.style(found[0], fg=_COLOURS[found[0]], bold=True), text)
    print(text, file=stream, flush=True)


def has_colour(stream: TextIO | None) -> bool:
    if stream is None or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return False
    return stream.isatty()


def terminal_width() -> int:
    """Columns of the terminal; of a pipe 120."""
    return shutil.get_terminal_size((120, 24)).columns
