"""Pages of the documentation as tests read them: headings, links, code blocks and the commands in them."""

from __future__ import annotations

import re
import shlex
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

_FENCE = re.compile(r"^( *)```(.*?)\n(.*?)^ *```", re.MULTILINE | re.DOTALL)


def code_blocks(text: str) -> list[tuple[str, str]]:
    """Each fenced block: its language, as it is written, and its text."""
    return [(language.strip(), textwrap.dedent(block)) for _, language, block in _FENCE.findall(text)]


def anchors(text: str) -> set[str]:
    """The addresses of a page's headings, as GitHub and the site form them."""
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    """Links of a page to files that are not there, or to headings that no page has."""
    found = []
    for link in re.findall(r"\]\(((?!https?:)[^)\s]+)\)", _FENCE.sub("", page.read_text())):
        file, _, anchor = link.partition("#")
        target = page.parent / file if file else page
        if not target.exists() or (anchor and anchor not in anchors(target.read_text())):
            found.append(link)
    return found


def command_lines(block: str) -> Iterator[list[str]]:
    """The words of each command of a shell block, without comments, continued lines put together."""
    for line in block.replace("\\\n", " ").splitlines():
        words = shlex.split(line, comments=True)
        while words and re.fullmatch(r"[A-Z_]+=.*", words[0]):
            del words[0]
        if words:
            yield words


class Step(NamedTuple):
    """What a reader of a tutorial does: a file that is saved, or a command.

    Attributes:
        file: where `text` is saved; "": it is run.
        text: content of the file, or a line for the shell.
        exit_code: that the page states.
    """

    file: str
    text: str
    exit_code: int = 0


def steps(page: str) -> Iterator[Step]:
    """Of a tutorial, in order. A block whose first line is a comment with a file's name is that file. Other Python and
    shell blocks are run, but for lines that end with `# not run: <why>`; a line may end with `# exit code N`.
    """
    for language, block in code_blocks(page):
        first, _, rest = block.partition("\n")
        if name := re.fullmatch(r"# ([\w/-]+\.\w+)", first):
            yield Step(name[1], rest)
        elif language == "python":
            yield Step("", f"python -c {shlex.quote(block)}")
        elif language == "bash":
            for line in block.replace("\\\n", " ").splitlines():
                if line.strip() and not line.lstrip().startswith("#") and "# not run: " not in line:
                    stated = re.search(r"# exit code (\d+)", line)
                    yield Step("", line, int(stated[1]) if stated else 0)
