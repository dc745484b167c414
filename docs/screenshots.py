"""Pictures for the documentation, docs/images/: pages by headless Chromium, terminals by rich.

    make run
    python -m pipeline precision=fp32      a second run, for MLflow's compare view
    python docs/screenshots.py

report.png                  top of reports/report.html, as the last run of the pipeline has written it
mlflow-compare.png          MLflow's compare view of the last two runs in mlflow.db
terminal-<columns>-<theme>  what a run prints on a terminal: all stages are unchanged, and the verdict is printed again
"""

from __future__ import annotations

import fcntl
import io
import json
import os
import pty
import re
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import termios
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

from PIL import Image

ROOT = Path(__file__).resolve().parent.parent
IMAGES, REPORT, STORE = ROOT / "docs" / "images", ROOT / "reports" / "report.html", ROOT / "mlflow.db"
COLUMNS, STARTS_WITHIN_S = (80, 120), 120
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")
_ASIDE = 1100  # pixels of a page that are kept; right of them MLflow shows its assistant


def shoot(browser: str, address: str, size: tuple[int, int], target: Path) -> None:
    """Write the top of a page as a PNG file, without a network, in the light colours.

    Args:
        size: width and height, CSS pixels.
    """
    with tempfile.TemporaryDirectory() as profile:
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}"]
        options += ["--host-resolver-rules=MAP * ~NOTFOUND, EXCLUDE 127.0.0.1", "--virtual-time-budget=20000"]
        options += [f"--window-size={size[0]},{size[1]}", f"--screenshot={target}", address]
        subprocess.run([browser, *options], check=True, capture_output=True)
    Image.open(target).crop((0, 0, _ASIDE, size[1])).quantize(128).save(target, optimize=True)


def shoot_mlflow(browser: str, target: Path) -> None:
    from mlflow import MlflowClient

    client = MlflowClient(f"sqlite:///{STORE}")
    experiments = [each.experiment_id for each in client.search_experiments(filter_string="name = 'truehalf'")]
    runs = [run.info.run_id for run in client.search_runs(experiments, max_results=2)]
    if len(runs) < 2:
        sys.exit("screenshots: mlflow.db holds no two runs: python -m pipeline precision=fp32")
    chosen = f"runs={quote(json.dumps(runs[::-1]))}&experiments={quote(json.dumps(experiments))}"
    with server() as address:
        shoot(browser, f"{address}/#/compare-runs?{chosen}", (1460, 940), target)


@contextmanager
def server() -> Iterator[str]:
    """MLflow's server over the local runs; yields its address."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    line = [sys.executable, "-m", "mlflow", "server", "--backend-store-uri", f"sqlite:///{STORE}", "--workers", "1"]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "start_new_session": True}
    process = subprocess.Popen([*line, "--host", "127.0.0.1", "--port", str(port)], **quiet)
    address, end = f"http://127.0.0.1:{port}", time.monotonic() + STARTS_WITHIN_S
    try:
        while True:
            with suppress(OSError):
                urllib.request.urlopen(f"{address}/health").close()
                break
            if process.poll() is not None or time.monotonic() > end:
                sys.exit("screenshots: MLflow's server does not start")
            time.sleep(0.5)
        yield address
    finally:
        os.killpg(process.pid, 9)
        process.wait()


def printed(command: list[str], columns: int) -> str:
    """What a command leaves on a terminal of this width, with its colours."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", 50, columns, 0, 0))
    process = subprocess.Popen(command, stdin=its, stdout=its, stderr=its, cwd=ROOT, close_fds=True)
    os.close(its)
    parts = []
    with suppress(OSError):  # Linux's way to say that the other end is closed
        while part := os.read(ours, 65536):
            parts.append(part)
    if process.wait():
        sys.exit(f"screenshots: {' '.join(command)} ended with {process.returncode}")
    lines = b"".join(parts).decode().replace("\r\n", "\n").split("\n")
    return "\n".join(re.sub(r"\x1b\[\d*K", "", line.rstrip("\r").rpartition("\r")[2]) for line in lines)


def draw_terminals() -> None:
    from rich.console import Console
    from rich.terminal_theme import DEFAULT_TERMINAL_THEME, SVG_EXPORT_THEME
    from rich.text import Text

    for columns in COLUMNS:
        text = printed([sys.executable, "-m", "pipeline"], columns).strip("\n")
        for theme, colours in (("dark", SVG_EXPORT_THEME), ("light", DEFAULT_TERMINAL_THEME)):
            console = Console(record=True, width=columns, file=io.StringIO(), force_terminal=True)
            console.print(Text("$ python -m pipeline"), Text.from_ansi(text), sep="\n")
            target = IMAGES / f"terminal-{columns}-{theme}.svg"
            drawn = console.export_svg(title="", theme=colours, unique_id="terminal")
            target.write_text(re.sub(r"@font-face \{.*?\}\s*", "", drawn, flags=re.DOTALL))  # nothing is loaded
            print(target)


def main() -> None:
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        sys.exit("screenshots: no Chromium here: apt-get install chromium")
    for needed in (REPORT, STORE):
        if not needed.exists():
            sys.exit(f"screenshots: {needed} is missing: make run")
    shoot(browser, REPORT.as_uri(), (1100, 1180), IMAGES / "report.png")
    shoot_mlflow(browser, IMAGES / "mlflow-compare.png")
    draw_terminals()


if __name__ == "__main__":
    main()
