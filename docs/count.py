"""Words of the documentation, page by page: written by hand, and generated (whole pages of docs/generate.py, and what
stands between <!-- name --> and <!-- /name -->).

python docs/count.py
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FILLED = re.compile(r"<!-- ([\w-]+) -->.*?<!-- /\1 -->", re.DOTALL)


def pages() -> list[Path]:
    """The README and the site's pages."""
    return [ROOT / "README.md", *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.name != "NOTES.md")]


def words(page: Path, whole: bool) -> tuple[int, int]:
    """Of one page: words written by hand, and generated ones; `whole`: all of it is generated."""
    text = page.read_text(encoding="utf-8")
    every, written = len(text.split()), 0 if whole else len(FILLED.sub(" ", text).split())
    return written, every - written


def main() -> None:
    sys.path.insert(0, str(ROOT))
    from docs.generate import GENERATED

    sums = [0, 0]
    for page in pages():
        counts = words(page, page.relative_to(ROOT / "docs").as_posix() in GENERATED if "docs" in page.parts else False)
        sums = [total + count for total, count in zip(sums, counts, strict=True)]
        print(f"{counts[0]:7} {counts[1]:7}  {page.relative_to(ROOT)}")
    print(f"{sums[0]:7} {sums[1]:7}  written, generated")


if __name__ == "__main__":
    main()
