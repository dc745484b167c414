"""What the cases of the corpus are found to be, and that each rule has one."""

from __future__ import annotations

import pytest
import torch

from tests.corpus import CASES
from tests.truehalf.exporting.source_lint.linting import rules
from truehalf.exporting.source_lint import RULES, lint_source

Tensor = torch.Tensor


@pytest.mark.parametrize("name", CASES)
def test_bad_modules_are_found(name: str) -> None:
    assert tuple(rules(CASES[name].Bad)) == CASES[name].SOURCE_RULES


@pytest.mark.parametrize("name", CASES)
def test_good_modules_are_clean(name: str) -> None:
    assert rules(CASES[name].Good) == []


def test_each_rule_has_a_case() -> None:
    assert {rule for case in CASES.values() for rule in case.SOURCE_RULES} == set(RULES) - {"py-not-followed"}


def test_each_rule_is_explained() -> None:
    assert [id for id, rule in RULES.items() if not rule.explanation.partition("\n\n")[2] or not rule.title] == []


def test_a_finding_says_where() -> None:
    (finding,) = lint_source(CASES["tensor_len"].Bad)
    assert (finding.file, finding.line) == ("tests/corpus/tensor_len.py", 18)
    assert finding.scope == "tests.corpus.tensor_len.Bad.forward"
    assert finding.severity == "warning" and finding.remedy == "tensor.shape[0]"
    assert finding.link == "truehalf lint --explain py-tensor-len"
