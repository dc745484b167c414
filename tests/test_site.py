"""The site of docs/: it is built without a warning or a network, and read in a browser."""

from __future__ import annotations

import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest

from tests.browser import needs_chromium, shown
from tests.conftest import ROOT


class Page(HTMLParser):
    """Addresses that a page links to, loads, and has."""

    def __init__(self, file: Path) -> None:
        super().__init__()
        self.links: set[str] = set()
        self.loaded: set[str] = set()
        self.ids: set[str] = {""}
        self.feed(file.read_text())

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given[name] for name in ("id", "name") if name in given}
        if tag in ("img", "script", "source", "iframe"):
            self.loaded |= {given["src"]} if "src" in given else set()
        elif "href" in given:
            (self.links if tag == "a" else self.loaded).add(given["href"])


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    line = [sys.executable, "-m", "sphinx", "--quiet", "--fail-on-warning", "--keep-going", "-d", str(folder / "trees")]
    done = subprocess.run([*line, str(ROOT / "docs"), str(folder / "html")], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return folder / "html"


@pytest.mark.slow
def test_every_page_is_in_it_and_its_links_hold(site: Path) -> None:
    pages = {file: Page(file) for file in site.rglob("*.html")}
    sources = {page.relative_to(ROOT / "docs").with_suffix(".html") for page in (ROOT / "docs").rglob("*.md")}
    assert sources - {file.relative_to(site) for file in pages} == {Path("NOTES.html")}
    assert [link for page in pages.values() for link in page.loaded if urlsplit(link).scheme not in ("", "data")] == []
    for file, page in pages.items():
        for link in page.links | page.loaded:
            scheme, host, path, _, anchor = urlsplit(link)
            target = (file.parent / unquote(path)).resolve() if path else file
            if not scheme and not host and link != "#":
                assert target.exists(), (file, link)
                assert target not in pages or unquote(anchor) in pages[target].ids, (file, link)


@pytest.mark.slow
@needs_chromium
@pytest.mark.parametrize(
    ("word", "page"), [("overflow", "explanation/"), ("sweeps", "how-to/"), ("GridSample", "reference/")]
)
def test_its_search_leads_from_a_word_to_a_page(site: Path, tmp_path: Path, word: str, page: str) -> None:
    found = shown(site / "search.html", tmp_path, f"?q={word}")
    assert found.errors == []
    results = re.search(r'<div id="search-results">.*?</div>', found.html, re.DOTALL)
    assert results is not None and f'href="{page}' in results[0]


@pytest.mark.slow
@needs_chromium
@pytest.mark.parametrize("page", ["index.html", "reference/lint.html", "how-to/sweeps.html"])
def test_a_page_opens_with_its_heading_and_the_menu(site: Path, tmp_path: Path, page: str) -> None:
    found = shown(site / page, tmp_path)
    assert found.errors == []
    menu = re.findall(r'class="toctree-l1.*?href="([^"]*)"', found.html)
    assert len(menu) == 6 and found.html.count("<h1>") == 1
