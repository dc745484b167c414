"""Progress of long steps: bars and spinners on a terminal, nothing in a pipe. Steps inside a step stand below it."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from types import TracebackType

    from rich.progress import Progress

T = TypeVar("T")
_shown: list[Progress] = []  # the display of this process, while a step is at work


def track(items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
    """Yield the items; on a terminal show how many of `total` (default: len(items) where it has one) are done."""
    if total is None and isinstance(items, Sized):
        total = len(items)
    with _task(description, total) as advance:
        for item in items:
            yield item
            advance()


@contextlib.contextmanager
def step(description: str) -> Iterator[None]:
    """Show on a terminal that a step is running whose length is unknown."""
    with _task(description, None):
        yield


def say_nothing_when_stopped() -> None:
    """Ctrl-C while a program's modules are still imported, before its own answer to it, ends it without a traceback."""
    shown = sys.excepthook

    def hook(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
        if not issubclass(kind, KeyboardInterrupt):
            shown(kind, error, trace)

    sys.excepthook = hook


@contextlib.contextmanager
def _task(description: str, total: int | None) -> Iterator[Callable[[], object]]:
    """A line of the display; what is yielded counts one item."""
    if not sys.stderr.isatty():
        yield lambda: None
        return
    with _display() as display:
        task = display.add_task(description, total=total)
        try:
            yield lambda: display.advance(task)
        finally:
            display.remove_task(task)


@contextlib.contextmanager
def _display() -> Iterator[Progress]:
    """The display that there is, or a new one, which vanishes at its end."""
    if _shown:
        yield _shown[0]
        return
    from rich.console import Console
    from rich.progress import MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn

    columns = (SpinnerColumn(), TextColumn("{task.description}", markup=False), MofNCompleteColumn())
    console = Console(stderr=True)
    with Progress(*columns, TimeElapsedColumn(), console=console, transient=True, refresh_per_second=4) as display:
        _shown.append(display)
        try:
            yield display
        finally:
            _shown.clear()
