"""Pictures of pages for the documentation: docs/images/<name>.png, by headless Chromium.

    make run
    python docs/screenshots.py

report.png is the top of reports/report.html, as the last run of the pipeline has written it.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
IMAGES = ROOT / "docs" / "images"
PAGES = {"report": (ROOT / "reports" / "report.html", (1100, 720))}  # width and height, CSS pixels
_BROWSERS = ("chromium", "chromium-browser", "google-chrome")


def shoot(browser: str, page: Path, size: tuple[int, int], target: Path) -> None:
    """Write the top of a page as a PNG file, without a network, in the light colours."""
    with tempfile.TemporaryDirectory() as profile:
        options = ["--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", f"--user-data-dir={profile}"]
        options += ["--host-resolver-rules=MAP * ~NOTFOUND", "--virtual-time-budget=10000"]
        options += [f"--window-size={size[0]},{size[1]}", f"--screenshot={target}", page.as_uri()]
        subprocess.run([browser, *options], check=True, capture_output=True)


def main() -> None:
    browser = next(filter(None, map(shutil.which, _BROWSERS)), None)
    if browser is None:
        sys.exit("screenshots: no Chromium here: apt-get install chromium")
    for name, (page, size) in PAGES.items():
        if not page.exists():
            sys.exit(f"screenshots: {page} is missing: make run")
        shoot(browser, page, size, IMAGES / f"{name}.png")
        print(IMAGES / f"{name}.png")


if __name__ == "__main__":
    main()
