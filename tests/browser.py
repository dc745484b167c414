"""Headless Chromium: a page as it is after its scripts have run, and what they complained of."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

import pytest

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
needs_chromium = pytest.mark.skipif(CHROMIUM is None, reason="needs Chromium: apt-get install chromium")


class Shown(NamedTuple):
    """A page in the browser.

    Attributes:
        html: the document after scripts have run.
        errors: messages of its console.
    """

    html: str
    errors: list[str]


def shown(page: Path | str, folder: Path, query: str = "", options: tuple[str, ...] = ()) -> Shown:
    """Open a file of this machine, or an address of it, without a network; `folder` is the browser's own."""
    alone = "--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1"
    given = ["--headless=new", "--no-sandbox", "--disable-gpu", alone, *options]
    given += [f"--user-data-dir={folder}", "--enable-logging=stderr", "--virtual-time-budget=10000", "--dump-dom"]
    address = page if isinstance(page, str) else page.as_uri()
    line = [CHROMIUM or "", *given, address + query]
    done = subprocess.run(line, capture_output=True, text=True, check=True)
    return Shown(done.stdout, re.findall(r":CONSOLE:\d+\] (.*)", done.stderr))
