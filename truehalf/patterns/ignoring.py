"""Findings to ignore: "rule", or "rule@<regular expression>" on the node's name or scope."""

from __future__ import annotations

import difflib
import re
from collections.abc import Collection, Iterable, Mapping

from truehalf.errors import refuse
from truehalf.patterns.frame import Finding

Ignores = Mapping[str, tuple[str, re.Pattern[str]]]  # by entry: its rule, and where


def parse_ignores(entries: Iterable[str], rules: Collection[str]) -> Ignores:
    """Read entries of lint.ignore.

    Raises:
        StageError: naming every entry that is not of the form, or names no rule.
    """
    ignores: dict[str, tuple[str, re.Pattern[str]]] = {}
    problems = []
    for text in entries:
        rule, _, where = text.partition("@")
        if rule not in rules:
            near = difflib.get_close_matches(rule, sorted(rules), n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f", one of {', '.join(sorted(rules))}"
            problems.append(f"{text!r}: expected a rule's id before the @{hint}")
            continue
        try:
            ignores[text] = rule, re.compile(where)
        except re.error as error:
            problems.append(f"{text!r}: expected a regular expression after the @ ({error})")
    refuse("bad-syntax", "bad entries in lint.ignore", problems)
    return ignores


def split_ignored(findings: Iterable[Finding], ignores: Ignores) -> tuple[list[Finding], dict[str, int]]:
    """Return the findings that are left, and by entry how many it took away (0: it matches nothing)."""
    kept: list[Finding] = []
    counts = dict.fromkeys(ignores, 0)
    for finding in findings:
        matching = [
            text
            for text, (rule, where) in ignores.items()
            if rule == finding.rule and (where.search(finding.node) or where.search(finding.scope))
        ]
        for text in matching:
            counts[text] += 1
        if not matching:
            kept.append(finding)
    return kept, counts
