"""All findings on the final file of a chain: on its outputs, and on what was looked at beside them."""

from __future__ import annotations

from truehalf.config.verification import VerifyConfig
from truehalf.verification.chain.stage_results import FileResult
from truehalf.verification.findings import Finding
from truehalf.verification.judging.checks import of_conditions, shape_findings, unmet
from truehalf.verification.judging.judge import findings_on


def judge_final(final: FileResult, options: VerifyConfig) -> list[Finding]:
    """What is wrong with shapes comes first, as it explains the others; then outputs, checks, what is required."""
    facts = final.facts
    wrong = [*facts["shape_faults"], *filter(None, [facts["unrounded_shapes"]])]
    reached = facts["reached"]["reference"], facts["reached"]["file"]
    found = findings_on(final.seen, final.ran, shape_findings(wrong, facts["shapes_unknown"]), reached, final.drop)
    found += of_conditions(facts)
    return found + unmet(found, options.require)
