"""Lint of a model: what it finds, as a report."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path

from truehalf.errors import StageError
from truehalf.io_spec.in_file import names_of, spec_inside
from truehalf.ir.facts import all_nodes
from truehalf.ir.model_forms import Model, as_ir
from truehalf.ir.normalize import InferTypes, SortNodes
from truehalf.linting import RULES, Finding, lint
from truehalf.linting.ignoring import parse_ignores, split_ignored
from truehalf.linting.report import LintReport
from truehalf.linting.support import parse_version


def lint_report(model: Model, tensorrt: str | None, ignore: Sequence[str], plugin_ops: Collection[str]) -> LintReport:
    """The report of a model, see truehalf.api.lint.

    Raises:
        StageError: a model that cannot be read, a graph with a cycle, an option that is none.
    """
    ignores, versions = parse_ignores(ignore, RULES), parse_version(tensorrt)
    path = str(model) if isinstance(model, (str, Path)) else None
    try:
        findings = _findings(model, tensorrt, plugin_ops)
    except StageError as error:
        prefix = "" if path is None or str(error).startswith(path) else f"{path}: "
        raise StageError(error.code, f"{prefix}{error}") from error
    kept, ignored = split_ignored(findings, ignores)
    shown = tuple(f"{major}.{minor}" for major, minor in versions)
    return LintReport(path or type(model).__name__, path, shown, tuple(kept), ignored)


def _findings(model: Model, tensorrt: str | None, plugin_ops: Collection[str]) -> list[Finding]:
    """Findings of a model as it was loaded; it is sorted, and its types are inferred where the file lacks them."""
    loaded = as_ir(model)
    SortNodes()(loaded)
    if any(value.type is None for node in all_nodes(loaded) for value in node.outputs if value.name):
        InferTypes()(loaded)
    inputs = names_of(spec_inside(loaded).inputs)
    return lint(loaded, tensorrt=tensorrt, plugin_ops=plugin_ops, inputs=inputs)
