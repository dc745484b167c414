"""Findings: what a verification looked at, each with its state and its reason. The verdict and every list follow.

    a finding    verified, failed, or not verified
    a file       failed           one of its findings failed
                 not verified     none failed, and one that decides was not verified
                 passed           neither

A finding that does not decide may be left open by a file that passes; it is listed as not verified.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from truehalf.codes import codes_in
from truehalf.json_values import JsonObject

VERIFIED, FAILED, NOT_VERIFIED = "verified", "failed", "not verified"
PASSED = "passed"


@dataclass(frozen=True)
class Finding:
    """One thing that was looked at.

    Attributes:
        check: what it belongs to, such as "detections" or "batch"; empty where it says what no check looks at.
        state: "verified", "failed" or "not verified".
        reason: why, as a full sentence, with its code where there is one.
        decides: True if a file cannot pass while this one is not verified.
        no_node: True if no node of the file is to blame.
        explains: True if it comes first among the reasons of a file that did not pass.
        facts: of a gate its name, the value and the limit (truehalf.verification.gates).
    """

    check: str
    state: str
    reason: str = ""
    decides: bool = True
    no_node: bool = False
    explains: bool = False
    facts: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> JsonObject:
        """For JSON: check, state, reason, its codes, and the facts."""
        content = {
            "check": self.check,
            "state": self.state,
            "reason": self.reason,
            "codes": sorted(codes_in(self.reason)),
        }
        return {**content, **self.facts}


def verdict_of(findings: Iterable[Finding]) -> str:
    """Derive the verdict of a file: "passed", "failed" or "not verified"; the last without findings, too."""
    states = {finding.state for finding in findings if finding.decides or finding.state == FAILED}
    return FAILED if FAILED in states else PASSED if states == {VERIFIED} else NOT_VERIFIED


def reasons_of(findings: Sequence[Finding]) -> list[str]:
    """List why a file did not pass: explanations, failures, then what was not verified and decides; each once."""
    opened = [_open(finding) for finding in findings if finding.state == NOT_VERIFIED and finding.decides]
    why = [finding.reason for finding in findings if finding.state == FAILED] + opened
    explained = [finding.reason for finding in findings if finding.explains]
    return list(dict.fromkeys(explained + why)) if why else []


def open_of(findings: Sequence[Finding]) -> list[str]:
    """List findings that were not verified, deciding ones first; each once."""
    opened = sorted((each for each in findings if each.state == NOT_VERIFIED), key=lambda finding: not finding.decides)
    return list(dict.fromkeys(map(_open, opened)))


def _open(finding: Finding) -> str:
    """Say why a finding was not verified; of gates that have no value for one reason, the check and it."""
    if "why" not in finding.facts:
        return finding.reason
    return f"{finding.check.replace('_', ' ')}: {finding.facts['why']}"


def not_checked(reason: str, explains: bool = False) -> Finding:
    """Make a caveat: no check looks at it, and the verdict can do without."""
    return Finding("", NOT_VERIFIED, reason, decides=False, explains=explains)


def worst_of(states: Iterable[str]) -> str:
    """ "failed" where one is, else "not verified" where one is, else "verified"."""
    given = set(states)
    return next((state for state in (FAILED, NOT_VERIFIED) if state in given), VERIFIED)


def by_check(findings: Sequence[Finding]) -> list[dict[str, str]]:
    """{check, state, reason} of each check: failed when one of its findings failed, else not verified when one is."""
    rows = []
    for name in filter(None, dict.fromkeys(finding.check for finding in findings)):
        of_check = [finding for finding in findings if finding.check == name]
        state = worst_of(one.state for one in of_check)
        reasons = dict.fromkeys(one.facts.get("why") or one.reason for one in of_check if one.state == state)
        rows.append({"check": name, "state": state, "reason": "; ".join(reasons)})
    return rows
