"""Findings to ignore: "rule", or "rule@<regular expression>" on the node's name or scope."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from truehalf.errors import refuse
from truehalf.linting.finding import Finding


@dataclass(frozen=True)
class Ignore:
    """One entry."""

    text: str
    rule: str
    where: re.Pattern[str] | None

    def matches(self, finding: Finding) -> bool:
        if finding.rule != self.rule:
            return False
        return self.where is None or any(self.where.search(name) for name in (finding.node, finding.scope))


def parse_ignores(entries: Iterable[str], rules: Collection[str]) -> list[Ignore]:
    """Read entries.

    Raises:
        StageError: naming every entry that is not of the form, or names no rule.
    """
    found, problems = [], []
    for text in entries:
        rule, at, where = text.partition("@")
        if rule not in rules:
            near = difflib.get_close_matches(rule, sorted(rules), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f", one of {', '.join(sorted(rules))}"
            problems.append(f"{text!r}: expected a rule's id before the @{hint}")
            continue
        try:
            found.append(Ignore(text, rule, re.compile(where) if at else None))
        except re.error as error:
            problems.append(f"{text!r}: expected a regular expression after the @ ({error})")
    refuse("bad-syntax", "bad entries in lint.ignore", problems)
    return found


def split_ignored(findings: Iterable[Finding], ignores: Sequence[Ignore]) -> tuple[list[Finding], dict[str, int]]:
    """What is left, and how many findings each entry took away (0: it matches nothing, a typo perhaps)."""
    kept: list[Finding] = []
    taken = {ignore.text: 0 for ignore in ignores}
    for finding in findings:
        matching = [ignore for ignore in ignores if ignore.matches(finding)]
        for ignore in matching:
            taken[ignore.text] += 1
        if not matching:
            kept.append(finding)
    return kept, taken
