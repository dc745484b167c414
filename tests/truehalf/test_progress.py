"""Progress on a terminal, and nothing of it in a pipe."""

import contextlib
import io
import sys
from collections.abc import Iterator

import pytest

from truehalf.progress import step, track


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@contextlib.contextmanager
def on_terminal(monkeypatch: pytest.MonkeyPatch) -> Iterator[Terminal]:
    """What is shown on a terminal; in the test itself, since pytest changes stderr after the fixtures."""
    monkeypatch.setenv("TERM", "xterm")
    with contextlib.redirect_stderr(Terminal()) as made:
        yield made


def test_a_pipe_gets_the_items_and_no_bar(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe = io.StringIO()
    monkeypatch.setattr(sys, "stderr", pipe)
    with step("slim"):
        assert list(track(iter("abc"), "verify", 3)) == ["a", "b", "c"]
    assert pipe.getvalue() == ""


def test_bars_inside_a_step_stand_below_it_and_all_vanish(monkeypatch: pytest.MonkeyPatch) -> None:
    with on_terminal(monkeypatch) as terminal:
        with step("slim"):
            assert list(track([1, 2], "first")) == [1, 2] and list(track(iter([3]), "second")) == [3]
            unfinished = track([4, 5], "third")
            assert next(unfinished) == 4
        assert list(track([6], "after")) == [6]
        unfinished.close()  # when its display is gone
        with step("again"):
            pass
    shown = terminal.getvalue()
    assert "slim" in shown and "again" in shown and shown.count("\x1b[?25l") == 3, "one display at a time"


def test_an_error_ends_the_display(monkeypatch: pytest.MonkeyPatch) -> None:
    with on_terminal(monkeypatch) as terminal, pytest.raises(ValueError), step("slim"), step("inside"):
        raise ValueError
    assert terminal.getvalue().rstrip().endswith("\x1b[2K\x1b[?25h"), "the line is empty, the cursor is back"
