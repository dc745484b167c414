"""Errors that the user can fix, and what is said of those of others."""

from __future__ import annotations

from collections.abc import Sequence

from truehalf.codes import coded, codes_in


class StageError(Exception):
    """A fault that the user can fix: its text says what, where, expected, got, and what to do.

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
    def text(self) -> str:
        """Its text without the code, for an error that says more and ends with that code itself."""
        first, newline, rest = self._message.partition("\n")
        return first.removesuffix(f" [{self.code}]") + newline + rest


def refuse(code: str, what: str, faults: Sequence[str], shown: int | None = None) -> None:
    """Raise StageError where there are faults: what they are of, and each on a line of its own.

    Args:
        shown: lines at most; of more faults the number is said. None: all.
    """
    if faults:
        more = [f"and {len(faults) - shown} more"] if shown is not None and len(faults) > shown else []
        raise StageError(code, "\n".join([f"{what}:", *(f"  - {fault}" for fault in [*faults[:shown], *more])]))


def first_line(error: BaseException) -> str:
    """The first line of an error's message, else the name of its type."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


def typed_line(error: BaseException) -> str:
    """The name of an error's type and the first line of its message."""
    return f"{type(error).__name__}: {first_line(error) if str(error).strip() else 'no message'}"
