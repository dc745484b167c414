"""Progress of long steps: a bar or a spinner on a terminal, nothing in a pipe."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


def track(items: Iterable[T], description: str, total: int | None = None) -> Iterator[T]:
    """Yield the items; on a terminal show how many of `total` (default: len(items) where it has one) are done."""
    if not sys.stderr.isatty():
        yield from items
        return
    from rich.console import Console
    from rich.progress import track as rich_track

    yield from rich_track(items, description, total=total, console=Console(stderr=True), transient=True)


@contextlib.contextmanager
def step(description: str) -> Iterator[None]:
    """Show on a terminal that a step is running whose length is unknown; no bar may begin inside it."""
    if not sys.stderr.isatty():
        yield
        return
    from rich.console import Console

    with Console(stderr=True).status(description):
        yield
