"""Attentions that will not be fused, with the node at fault; files that NVIDIA's compiler judges alike."""

from __future__ import annotations

import itertools
import json
from pathlib import Path

import onnx_ir as ir
import pytest

from tests.measuring.attention_graphs import FORMS, Everything, Form, attention, is_fused
from tests.messages import expect
from tests.tiers import compiled, first_of
from truehalf.ir.model_file import UNFUSED_KEY
from truehalf.ir.normalize import InferTypes
from truehalf.patterns import Finding, lint


def found(form: Form, *wide: str, evidence: str = "") -> list[Finding]:
    model = ir.from_proto(attention(form, wide))
    InferTypes()(model)
    if evidence:
        model.metadata_props[UNFUSED_KEY] = json.dumps({"softmax.0": evidence})
    return [each for each in lint(model) if each.rule == "attention-will-not-fuse"]


@pytest.mark.parametrize(
    ("form", "wide", "product", "node"),
    [
        (Form(), ("qk", "scale"), "qk.0", "scale.2"),
        (Form(), ("qk", "scale", "softmax"), "qk.0", "scale.2"),
        (Form(scale="before"), ("qk", "softmax"), "qk.0", "softmax.0"),
        (Form(scale="both", mask="where"), ("qk", "mask"), "qk.0", "mask.0"),
        (Form(mask="input", rank=3), ("pv", "softmax"), "pv.0", "softmax.0"),
        (Form(), ("pv", "heads_v", "split_v", "project_v"), "pv.0", "project_v.0"),
        (Form(joint=True), ("qk", "heads_k", "split_k", "split3", "project"), "qk.0", "project.0"),
    ],
)
def test_the_nodes_at_fault_are_named(form: Form, wide: tuple[str, ...], product: str, node: str) -> None:
    (finding,) = found(form, *wide)
    assert (finding.severity, finding.node, finding.op_type) == ("warning", "softmax.0", "Softmax")
    expect(finding.message, None, product, node)


@pytest.mark.parametrize(
    "wide", [(), ("softmax",), ("qk",), ("qk", "softmax"), ("scale", "softmax"), ("pv", "heads_v"), ("project_q",)]
)
def test_what_the_kernel_takes_is_none(wide: tuple[str, ...]) -> None:
    assert found(Form(), *wide) == []


def test_evidence_of_the_conversion_is_in_it() -> None:
    (finding,) = found(Form(), "qk", "scale", evidence="overflow of scores")
    expect(finding.message, None, "overflow of scores")


def test_a_file_without_float16_has_none() -> None:
    model = ir.from_proto(attention(Form(), Everything()))
    InferTypes()(model)
    findings = lint(model)
    assert [each for each in findings if each.rule == "attention-will-not-fuse"] == []


@compiled
@pytest.mark.parametrize("name", first_of(["decoder, 3 axes, mask constant", "ViT, scale both", "cross, mask where"]))
def test_the_compiler_finds_the_same(name: str, tmp_path: Path) -> None:
    form, seen = FORMS[name], set()
    parts = (*form.parts, "heads_k", "project_o")
    for wide in [each for n in (1, 2, 3) for each in itertools.combinations(parts, n)][::7]:
        seen.add(is_lost := bool(found(form, *wide)))
        assert is_fused(attention(form, wide), tmp_path) is not is_lost, wide
    assert seen == {True, False}
