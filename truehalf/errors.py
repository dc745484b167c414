"""Errors that the user can fix, and the texts of other libraries' errors."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TypeVar

from truehalf.codes import BAD_INPUT, coded, codes_in

RAISED = (Exception, SystemExit)  # by code of others, which may call sys.exit
T = TypeVar("T")
_SHOWN = 500  # characters of an error's message


class StageError(Exception):
    """An error that the user can fix: its text says what, where, expected, got, and what to do.

    Attributes:
        code: of truehalf.codes; where the text ends with another error's code already, that one.
    """

    def __init__(self, code: str, text: str) -> None:
        super().__init__(code, text)
        self._message = coded(code, text)
        self.code = (codes_in(self._message.partition("\n")[0]) or [code])[-1]

    def __str__(self) -> str:
        return self._message

    @property
    def is_bad_input(self) -> bool:
        """True if the configuration or a file, function or package that it names is at fault."""
        return self.code in BAD_INPUT

    @property
    def text(self) -> str:
        """Its text without the code, for an error that says more and ends with that code itself."""
        first, newline, rest = self._message.partition("\n")
        return first.removesuffix(f" [{self.code}]") + newline + rest


def refuse(code: str, what: str, problems: Sequence[str], shown: int | None = None) -> None:
    """Raise StageError where there are problems: what they are of, and one problem a line.

    Args:
        shown: lines at most; of further problems only the number is shown. None: all.
    """
    if problems:
        more = [f"and {len(problems) - shown} more"] if shown is not None and len(problems) > shown else []
        raise StageError(code, "\n".join([f"{what}:", *(f"  - {problem}" for problem in [*problems[:shown], *more])]))


def some_of(items: Iterable[str], shown: int = 10, between: str = ", ") -> str:
    """The first few, and how many more there are."""
    every = list(items)
    more = f"{';' if between == '; ' else ''} and {len(every) - shown} more" if len(every) > shown else ""
    return between.join(every[:shown]) + more


def first_line(error: BaseException) -> str:
    """The first line of an error's message, else the name of its type."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def typed_line(error: BaseException) -> str:
    """The name of an error's type and the first line of its message."""
    return f"{type(error).__name__}: {first_line(error) if str(error).strip() else 'no message'}"


def typed_text(error: BaseException) -> str:
    """The name of an error's type and its message, in one line of at most _SHOWN characters."""
    text = " ".join(str(error).split()) or "no message"
    return f"{type(error).__name__}: {text if len(text) <= _SHOWN else f'{text[:_SHOWN]} ...'}"


def told(error: Exception) -> str:
    """What to say of an error where it ends nothing."""
    return str(error) if isinstance(error, StageError) else typed_line(error)


def attempted(what: str, missing: Callable[[str], object], part: Callable[[], T], code: str = "") -> T | None:
    """Run an advisory part of an export, a conversion or a verification: what it returns, or None where it raises.

    Args:
        what: what the report lacks then.
        missing: is told so, in one line with the error.
        code: of that line; empty: part-missing.
    """
    try:
        return part()
    except MemoryError:
        raise
    except Exception as error:
        missing(coded(code or "part-missing", f"{what}: {told(error)}".partition("\n")[0]))
        return None


@contextlib.contextmanager
def failing(code: str, what: str, remedy: str = "") -> Iterator[None]:
    """Within, all that code of others raises is a StageError: "<what>: <error><remedy>". Where it asks for a GPU, the
    remedy is that of the CPU, which models are traced on.
    """
    try:
        yield
    except StageError:
        raise
    except RAISED as error:
        text = typed_text(error)
        if "CUDA" in text or "NVIDIA" in text:
            remedy = "; the model runs on the CPU here: take .cuda() and device=... out of its code"
        raise StageError(code, f"{what}: {text}{remedy}") from error
