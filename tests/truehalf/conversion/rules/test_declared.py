"""What a node's own metadata say of its precision."""

from __future__ import annotations

import onnx_ir as ir

from tests.measuring.converted import only
from tests.messages import expect
from tests.truehalf.conversion.rules.judging import HEAD
from truehalf.config.precision import Precision
from truehalf.conversion.decide import decide
from truehalf.conversion.rules.base import Verdict
from truehalf.float16 import KEEP_FLOAT32
from truehalf.ir.normalize import NORMALIZE
from truehalf.ir.selectors import Lists

TEXT = "(float[2] x) => (float[2] y) { [p] a = Relu(x) [q] y = Exp(a) }"
WHY = "last-bits-count"


def decided(rules: Precision) -> dict[str | None, tuple[str, Verdict, str]]:
    model = ir.from_onnx_text(HEAD + TEXT)
    NORMALIZE(model)
    next(node for node in model.graph if node.name == "q").metadata_props[KEEP_FLOAT32] = WHY
    return {
        node.name: (found.rule, found.verdict, found.reason) for node, found in decide(model, None, rules).nodes.items()
    }


def test_a_declared_node_stays_fp32_for_its_reason() -> None:
    found = decided(only())
    assert found["p"][0] == "none"
    assert found["q"][:2] == ("declared", Verdict.fp32)
    expect(found["q"][2], None, WHY)


def test_an_include_list_beats_it() -> None:
    found = decided(only(include=Lists(op=("Exp",))))["q"]
    assert found[:2] == ("op_include_list", Verdict.fp16)
    expect(found[2], None, "op_include_list: Exp", "declared", WHY)


def test_autocast_does_not_know_it() -> None:
    assert decided(only(rules="autocast"))["q"][0] == "none"
