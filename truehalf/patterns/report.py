"""Findings as text, as JSON, and as the summary that stages put into their reports."""

from __future__ import annotations

import dataclasses
import textwrap
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

from truehalf.codes import coded, uncoded
from truehalf.config.schema import FailOn, LintConfig
from truehalf.errors import StageError, attempted
from truehalf.io_spec.in_file import names_of, spec_inside
from truehalf.ir.model_forms import as_ir
from truehalf.ir.normalize import InferTypes
from truehalf.json_values import JsonObject
from truehalf.patterns import RULES, SEVERITIES, Finding, Pattern, lint
from truehalf.patterns.frame import link_to
from truehalf.patterns.ignoring import parse_ignores, split_ignored
from truehalf.patterns.support import parse_version
from truehalf.report.text import WHOLE_WORDS

if TYPE_CHECKING:
    import onnx_ir as ir

    from truehalf.ir.model_forms import Model

PLACES_SHOWN = 5
FIRST_FINDINGS = 20
_WIDTH_MIN, _WIDTH_MAX = 60, 120


@dataclasses.dataclass(frozen=True)
class LintReport:
    """Findings of one model.

    Attributes:
        target: what was looked at, for the first line.
        model: path of the ONNX file, None of a model in memory.
        tensorrt: the versions it was checked for, such as "10.16".
        findings: errors first, then in graph order; what is ignored is not there.
        ignored: by entry of lint.ignore, how many findings it took away; 0: it matches nothing.
    """

    target: str
    model: str | None
    tensorrt: tuple[str, ...]
    findings: tuple[Finding, ...]
    ignored: Mapping[str, int]

    def reaches(self, severity: str) -> bool:
        """Return True if a finding is at least this severe; "never": none is."""
        return bool(failing(self.findings, severity))

    def to_json(self) -> JsonObject:
        return {
            "target": self.target,
            "model": self.model,
            "tensorrt": list(self.tensorrt),
            **counts(self.findings),
            "ignored": dict(self.ignored),
            "findings": [finding.as_dict() for finding in self.findings],
        }


class LintSummary(TypedDict, total=False):
    """Places found by severity and by rule; the first findings; what each entry of lint.ignore took away; why lint is
    missing, where it raised.
    """

    counts: dict[str, int]
    rules: dict[str, int]
    first: list[JsonObject]
    ignored: dict[str, int]
    missing: list[str]


def failing(findings: Iterable[Finding], severity: str) -> list[Finding]:
    """List the findings that are at least this severe; "never": none."""
    worst = SEVERITIES[: SEVERITIES.index(severity) + 1] if severity != "never" else ()
    return [finding for finding in findings if finding.severity in worst]


def counts(findings: Iterable[Finding]) -> dict[str, dict[str, int]]:
    """Count places by severity, and by rule."""
    severities, rules = dict.fromkeys(SEVERITIES, 0), Counter[str]()
    for finding in findings:
        severities[finding.severity] += finding.count
        rules[finding.rule] += finding.count
    return {"counts": severities, "rules": dict(rules)}


def summary(findings: Sequence[Finding], ignored: Mapping[str, int]) -> LintSummary:
    """Sum up findings for a stage's report: the counts, the first ones, and how many lint.ignore took away."""
    counted, first = counts(findings), [finding.as_dict() for finding in findings[:FIRST_FINDINGS]]
    return {"counts": counted["counts"], "rules": counted["rules"], "first": first, "ignored": dict(ignored)}


def failure(findings: Iterable[Finding]) -> str:
    """Format the findings that end a stage, a line for each rule with its first place."""
    return "\n  ".join(
        f"{first.severity} {first.rule} ({_total([first, *rest])}): {first.message} First at {_place(first)}."
        for first, *rest in _groups(findings)
    )


def unmatched(ignored: Mapping[str, int]) -> list[str]:
    """Format a line for each entry of lint.ignore that took nothing away."""
    return [
        coded("no-match", f"lint.ignore: {text!r} matches no finding") for text, number in ignored.items() if not number
    ]


def lint_report(model: Model, tensorrt: str | None, ignore: Sequence[str], plugin_ops: Collection[str]) -> LintReport:
    """Look for the patterns in a model, see truehalf.api.lint.

    Raises:
        StageError: a model that cannot be read, a graph with a cycle, an option that is none.
    """
    ignores, versions = parse_ignores(ignore, RULES), parse_version(tensorrt)
    path = str(model) if isinstance(model, (str, Path)) else None
    try:
        loaded = as_ir(model)
        InferTypes(missing=True)(loaded)
        inputs = names_of(spec_inside(loaded).inputs)
        findings = lint(loaded, tensorrt=tensorrt, plugin_ops=plugin_ops, inputs=inputs)
    except StageError as error:
        prefix = "" if path is None or str(error).startswith(path) else f"{path}: "
        raise StageError(error.code, f"{prefix}{error}") from error
    kept, ignored = split_ignored(findings, ignores)
    checked = tuple(f"{major}.{minor}" for major, minor in versions)
    return LintReport(path or type(model).__name__, path, checked, tuple(kept), ignored)


def lint_of_trace(
    model: ir.Model, options: LintConfig, plugin_ops: Sequence[str], repair: Sequence[str]
) -> LintSummary:
    """Lint a traced model for its report; the gate leaves out patterns that repair fixes.

    Raises:
        StageError: when there are findings of the severity that ends the stage, with all their rules, or lint raises
            and such findings are to end it.
    """
    missing: list[str] = []
    ignores = parse_ignores(options.ignore, RULES)
    all_findings = attempted("lint of the file", missing.append, lambda: lint(model, plugin_ops=plugin_ops))
    if missing and options.fail_on is not FailOn.never:
        raise StageError(
            "lint-fails", f"lint.fail_on is {options.fail_on.value}, and nothing is known: {uncoded(missing[0])}"
        )
    if all_findings is None:
        return {**summary([], {}), "missing": missing}
    findings, ignored = split_ignored(all_findings, ignores)
    left = [finding for finding in findings if RULES[finding.rule].repair not in repair]
    fail_on = options.fail_on.value
    if fatal := failing(left, fail_on):
        raise StageError(
            "lint-fails",
            f"lint.fail_on is {fail_on}, and the traced graph has\n  {failure(fatal)}\n"
            f"`{link_to('RULE')}` says what to write instead; leave a rule out with lint.ignore",
        )
    return summary(findings, ignored)


# --- text -------------------------------------------------------------------------------------------------------------


def text(report: LintReport, width: int, places: int | None = PLACES_SHOWN) -> str:
    """Format findings, those of one kind together, in lines of at most `width` columns where names allow it.

    Args:
        places: of each kind only the first nodes; None: all of them.
    """
    width = max(_WIDTH_MIN, min(width, _WIDTH_MAX))
    number = counts(report.findings)["counts"]
    error, warning = ("" if number[severity] == 1 else "s" for severity in ("error", "warning"))
    total = f"{number['error']} error{error}, {number['warning']} warning{warning}, {number['info']} info"
    versions = f" (TensorRT {' and '.join(report.tensorrt)})" if report.tensorrt else ""
    lines = [f"{report.target}: {total}{versions}"]
    for group in _groups(report.findings):
        lines += ["", *_block(group, width, places)]
    matched = [f"ignored: {number} by {text!r}" for text, number in report.ignored.items() if number]
    for about_ignored in (matched, unmatched(report.ignored)):
        lines += ["", *about_ignored] if about_ignored else []
    return "\n".join(lines)


def _groups(findings: Iterable[Finding]) -> Iterator[list[Finding]]:
    """Yield groups of findings with the same text, in the order of the first of each."""
    groups: dict[tuple[str, ...], list[Finding]] = {}
    for finding in findings:
        key = (finding.severity, finding.rule, finding.message, finding.remedy)
        groups.setdefault(key, []).append(finding)
    yield from sorted(groups.values(), key=lambda group: SEVERITIES.index(group[0].severity))


def _block(group: list[Finding], width: int, places: int | None) -> Iterator[str]:
    first, total = group[0], _total(group)
    yield f"{first.severity}  {first.rule}" + (f"  ({total})" if total > 1 else "")
    yield from textwrap.wrap(first.message, width, initial_indent="  ", subsequent_indent="  ", **WHOLE_WORDS)
    indent = "           "
    yield from textwrap.wrap(f"  instead: {first.remedy}", width, subsequent_indent=indent, **WHOLE_WORDS)
    yield f"  {first.link}"
    yield from (f"    {_place(finding)}" for finding in group[:places])
    if left := len(group[places:]) if places is not None else 0:
        yield f"    ... and {left} more"


def _place(finding: Finding) -> str:
    return (finding.node or "the model") + (f" ({finding.op_type})" if finding.op_type else "")


def _total(group: Iterable[Finding]) -> int:
    return sum(finding.count for finding in group)


def explained(rule: str, rules: Mapping[str, Pattern]) -> str:
    """Return the documentation of a rule: why it is a finding, and what to write instead.

    Raises:
        StageError: none of `rules`.
    """
    if rule not in rules:
        raise StageError("unknown-choice", f"--explain: expected one of {', '.join(sorted(rules))}; got {rule!r}")
    return f"{rule}\n\n{rules[rule].explanation}"
