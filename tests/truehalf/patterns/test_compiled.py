"""What lint says of the corpus, and what NVIDIA's compiler does with it, hold together.

A file with an error is refused; any other is built, but for operators that TensorRT for RTX lacks and TensorRT has.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest

from tests.corpus import CASES, exported
from tests.measuring.attention_graphs import compiled as engine_of
from tests.tiers import compiled, first_of
from truehalf.io_spec.profiles import dynamic_inputs
from truehalf.ir.facts import all_nodes
from truehalf.ir.model_file import load_model
from truehalf.patterns import RULES, lint
from truehalf.patterns.frame import BUILT, NO_NONZERO, REFUSED


def profiles(name: str, model: ir.Model) -> list[dict[str, Any]]:
    """Every axis that varies from 1 to twice its size, values of inputs that become shapes from 1 to 3."""
    found, case = {}, CASES[name]
    varying = dynamic_inputs(model)
    for input_name, array in zip(case.INPUT_NAMES, case.examples()[0], strict=True):
        if input_name in varying and input_name not in case.DYNAMIC_AXES:
            found[input_name] = {end: [value] * array.numel() for end, value in (("min", 1), ("opt", 2), ("max", 3))}
        elif input_name in varying:
            sizes, axes = list(array.shape), case.DYNAMIC_AXES[input_name]
            low, high = ([change(n) if axis in axes else n for axis, n in enumerate(sizes)] for change in _ENDS)
            found[input_name] = {"min": low, "opt": sizes, "max": high}
    return [found] if found else []


_ENDS = (lambda size: 1, lambda size: 2 * size)


@compiled
@pytest.mark.parametrize("kind", ["Bad", "Good"])
@pytest.mark.parametrize("name", first_of(CASES))
def test_errors_are_refused_and_nothing_else_is(name: str, kind: str, tmp_path: Path) -> None:
    case = CASES[name]
    path = exported(getattr(case, kind)(), case.examples(), tmp_path)
    model = load_model(path)
    rules = {finding.rule for finding in lint(model, inputs=case.INPUT_NAMES)}
    expected = REFUSED if any(RULES[rule].compiled == REFUSED for rule in rules) else BUILT
    if any(node.op_type == "NonZero" for node in all_nodes(model)):
        expected = NO_NONZERO
    report = engine_of(path, tmp_path, profiles(name, model))
    outcome = BUILT if report.status == "compiled" else NO_NONZERO if "NonZero" in str(report.reason) else REFUSED
    assert outcome == expected


def test_errors_are_what_is_refused() -> None:
    """By severity: errors are what the compiler refuses."""
    for rule in RULES.values():
        assert (rule.severity == "error") == (rule.compiled == REFUSED), rule.id
