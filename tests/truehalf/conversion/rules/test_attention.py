"""Types that keep an attention fused: decided, and as NVIDIA's compiler, which needs no GPU, sees them."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import onnx
import onnx_ir as ir
import pytest

from tests.measuring.attention_graphs import FORMS, PARTS, Everything, Form, attention, is_fused
from tests.measuring.converted import only
from tests.messages import expect
from tests.tiers import compiled, first_of
from tests.truehalf.conversion.conversion import check_invariants
from truehalf.config.precision import Precision
from truehalf.conversion.casts import CleanCasts
from truehalf.conversion.convert import Conversion, convert_model
from truehalf.ir.model_file import UNFUSED_KEY
from truehalf.ir.selectors import Lists


def convert(form: Form, wide: Any, **options: Any) -> tuple[Conversion, onnx.ModelProto]:
    """An attention converted with the parts `wide` kept FP32 by a list, and all else decided by cost."""
    proto = attention(form, Everything())
    block = Lists(node=tuple(f"^{part}[.]" for part in wide))
    result = convert_model(ir.from_proto(proto), only(block, **options))
    mixed = ir.to_proto(result.model)
    check_invariants(proto, mixed, keep_io_types=True)
    return result, mixed


def rules_of(result: Conversion) -> dict[str, tuple[str, str]]:
    return {row["node"].rpartition(".")[0]: (row["precision"], row["rule"]) for row in result.decisions}


# By form and parts that are FP32 by a list: the parts that are FP16 to keep the attention fused.
KEPT = [
    (Form(), ("qk", "softmax"), {"scale", "pv", "project_q", "project_k"}),
    (Form(), ("qk",), {"scale", "pv", "project_q", "project_k"}),
    (Form(mask="constant"), ("qk", "mask", "softmax"), {"scale", "pv", "project_q", "project_k"}),
    (Form(scale="before"), ("qk", "mask", "pv"), {"scale", "softmax", "project_k", "project_v", "project_o"}),
    (Form(scale="both", mask="where"), ("qk", "softmax"), {"scale", "mask", "pv"}),
    (Form(scale="none", rank=3, mask="input"), ("softmax", "qk"), {"mask", "pv", "project_q", "project_k"}),
    (Form(queries=8, keys=24, scale="none"), ("pv",), {"qk", "softmax", "project_v", "project_o"}),
    (Form(joint=True), ("pv", "split3"), {"qk", "softmax", "project", "project_o"}),
    (Form(), ("softmax", "scale"), {"qk", "pv"}),
]


@pytest.mark.parametrize(("form", "wide", "kept"), KEPT)
def test_what_no_rule_keeps_fp32_is_fp16_where_that_keeps_it_fused(form: Form, wide: Any, kept: set[str]) -> None:
    result, _ = convert(form, wide, placement="min_cut")
    found = rules_of(result)
    assert {part for part, (_, rule) in found.items() if rule == "fused_attention"} == kept
    assert {part for part, (precision, _) in found.items() if precision == "fp16"} >= kept
    assert result.report().unfused_attention == {} and UNFUSED_KEY not in result.model.metadata_props


LOST = [
    (Form(), ("qk", "scale"), "qk.0", "scale.2"),
    (Form(scale="before"), ("qk", "softmax"), "qk.0", "softmax.0"),
    (Form(scale="both"), ("scale", "qk"), "qk.0", "scale.1"),
    (Form(rank=3, mask="input", scale="none"), ("mask", "qk"), "qk.0", "mask.0"),
    (Form(mask="where", scale="before"), ("mask", "qk"), "qk.0", "mask.0"),
    (Form(), ("softmax", "pv"), "pv.0", "softmax.0"),
    (Form(), ("pv", "project_v"), "pv.0", "project_v.0"),
    (Form(), ("pv", "project_o"), "pv.0", "project_o.0"),
    (Form(joint=True), ("qk", "project"), "qk.0", "project.0"),
]


@pytest.mark.parametrize(
    ("form", "wide", "product", "beside", "rules"), [*((*each, "default") for each in LOST), (*LOST[0], "autocast")]
)
def test_evidence_that_rules_it_out_is_named(form: Form, wide: Any, product: str, beside: str, rules: str) -> None:
    result, _ = convert(form, wide, rules=rules)
    ((softmax, reason),) = result.report().unfused_attention.items()
    assert softmax == "softmax.0" and not any(rule == "fused_attention" for _, rule in rules_of(result).values())
    expect(reason, None, product, beside, "node_block_list")
    (row,) = (row for row in result.decisions if row["node"] == product)
    expect(row["reason"], None, beside, "softmax.0", "node_block_list")
    assert json.loads(result.model.metadata_props[UNFUSED_KEY]) == {softmax: reason}


def test_autocasts_rules_are_autocasts() -> None:
    result, _ = convert(Form(), ("qk", "softmax"), rules="autocast", placement="min_cut")
    assert not any(rule == "fused_attention" for _, rule in rules_of(result).values())
    assert result.report().unfused_attention == {}


@pytest.mark.parametrize("name", ["data_max", "overflow"])
def test_ranges_are_evidence(name: str) -> None:
    """Scores beyond the bound keep both Q K^T and what reads them FP32."""
    largest = {"data_max": 1000.0, "overflow": 1e5}[name]
    model = ir.from_proto(attention(Form(scale="none"), Everything()))
    result = convert_model(model, Precision(data_max=512), {"tensors": {"scores": {"absmax": largest, "sample": "s"}}})
    (reason,) = result.report().unfused_attention.values()
    expect(reason, None, name, "scores", "qk.0", "softmax.0")


def test_an_attention_of_another_type_is_left_alone() -> None:
    result = convert_model(ir.from_proto(attention(Form(), ("softmax", "x"))), Precision())
    assert result.report().unfused_attention == {}


# --- compiled ---------------------------------------------------------------------------------------------------------

EVERY = {"encoder, heads of 32": 7, "decoder, mask where": 11, "cross": 4, "encoder, Q, K, V split from one": 9}


@compiled
@pytest.mark.parametrize("name", first_of(EVERY))
def test_a_conversion_is_fused_unless_its_decisions_rule_it_out(name: str, tmp_path: Path) -> None:
    """With any parts kept FP32 by a list, and the cheapest casts."""
    form = FORMS[name]
    beside = ("project", "heads_k", "split3") if form.joint else ("project_q", "heads_k", "project_o")
    sets = [each for n in range(1, 4) for each in itertools.combinations((*form.parts, *beside), n)]
    seen = set()
    for wide in sets[:: EVERY[name]]:
        result, mixed = convert(form, wide, placement="min_cut")
        model = ir.from_proto(mixed)
        CleanCasts()(model)
        is_kept = is_fused(ir.to_proto(model), tmp_path)
        assert is_kept is not bool(result.report().unfused_attention), wide
        seen.add(is_kept)
    assert seen == {True, False}


# docs/explanation/attention.md: what the kernel takes, by the parts that are FP32.
@compiled
@pytest.mark.parametrize(
    ("wide", "fused"),
    [
        ((), True),
        (("softmax",), True),
        (("qk",), True),
        (("scale", "mask", "softmax"), True),
        (("qk", "softmax"), True),
        (("qk", "scale"), False),
        (("softmax", "pv"), False),
        (PARTS, False),
    ],
)
def test_the_compiler_fuses_what_the_docs_say(wide: tuple[str, ...], fused: bool, tmp_path: Path) -> None:
    assert is_fused(attention(Form(mask="constant"), wide), tmp_path) is fused


@compiled
@pytest.mark.parametrize("name", first_of(FORMS))
def test_it_fuses_no_more_where_the_softmax_joins_a_product(name: str, tmp_path: Path) -> None:
    assert is_fused(attention(FORMS[name], ("softmax",)), tmp_path)
    assert not is_fused(attention(FORMS[name], ("softmax", "pv")), tmp_path)
