"""All findings on the final file of a chain: on its outputs, and on what was looked at beside them."""

from __future__ import annotations

from truehalf.config.verification import VerifyConfig
from truehalf.verification.chain.stage_results import StageResult
from truehalf.verification.findings import Finding
from truehalf.verification.judging.checks import checks_of, shape_findings, unmet
from truehalf.verification.judging.judge import judge_reactions


def judge_final(final: StageResult, options: VerifyConfig) -> list[Finding]:
    """What is wrong with shapes comes first, as it explains the others; then outputs, checks, what is required."""
    facts = final.facts
    shapes = [*facts["shape_faults"], *filter(None, [facts.get("unrounded_shapes")])]
    reacted = judge_reactions(final.seen, (facts["reached"]["reference"], facts["reached"]["file"]))
    found = shape_findings(shapes, facts.get("shapes_unknown"))
    found += [*final.judged(), *checks_of(facts, reacted)]
    return found + unmet(found, options.require)
