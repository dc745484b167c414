"""Selecting nodes by type, by name and by scope."""

from __future__ import annotations

import onnx_ir as ir
import pytest

from tests.messages import expect
from truehalf.ir.selectors import Lists, scope_of, select, selectors, unmatched_message

GRAPH = """<ir_version: 8, opset_import: ["": 17, "com.acme": 1]> g (float[2,2] x) => (float[2,2] y)
    { a = MatMul(x, x)  b = Softmax(a)  c = MatMul(b, x)  d = com.acme.MatMul(c)  y = com.acme.Own(d) }"""
NAMES = [
    "/decoder/layers.0/cross_attn/q_proj/MatMul",
    "/decoder/layers.0/cross_attn/Softmax",
    "/encoder/layers.0/self_attn/MatMul",
    "/decoder/norm/MatMul",
    "Own_5",
]


def model() -> ir.Model:
    found = ir.from_onnx_text(GRAPH)
    for node, name in zip(found.graph, NAMES, strict=True):
        node.name = name
    return found


def matched(**lists: list[str]) -> tuple[list[str], list[str]]:
    """Names that one block list selects, and entries that select none."""
    wanted, _ = selectors(Lists(**{kind: tuple(texts) for kind, texts in lists.items()}), Lists())
    selection = select(model(), wanted)
    return [name for name in NAMES if name in {node.name for node in selection.nodes}], [
        str(selector) for selector in selection.unmatched
    ]


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("MatMul", [NAMES[0], NAMES[2], NAMES[3]]),
        ("ai.onnx::MatMul", [NAMES[0], NAMES[2]]),
        ("com.acme::MatMul", [NAMES[3]]),
        ("Own", [NAMES[4]]),
    ],
)
def test_op_types_are_equal_not_contained(text: str, names: list[str]) -> None:
    assert matched(op=[text, "Soft"]) == (names, ["op_block_list: Soft"])


def test_regular_expressions_are_found_anywhere() -> None:
    assert matched(node=[r"layers\.\d+/cross", "^Softmax$"]) == (NAMES[:2], ["node_block_list: ^Softmax$"])


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("decoder.layers.*.cross_attn", NAMES[:2]),  # the module and all inside it
        ("decoder.layers.0", NAMES[:2]),
        ("cross_attn", NAMES[:2]),  # may begin at any component
        ("layers.*.self_attn", [NAMES[2]]),
        ("decoder.*", [*NAMES[:2], NAMES[3]]),  # one component below decoder
        ("decoder.*.cross_attn", []),  # one, and there are two between
        ("decoder.**.cross_attn", NAMES[:2]),
        ("decoder.**.layers", NAMES[:2]),  # any number: none, too
        ("decoder.**", [*NAMES[:2], NAMES[3]]),
        ("**.q_proj", [NAMES[0]]),
        ("*_attn.q_*", [NAMES[0]]),  # a part of a component
        ("cross", []),  # components are equal, not contained
        ("Softmax", []),  # the last part of a name is no module
    ],
)
def test_scopes(text: str, names: list[str]) -> None:
    assert matched(scope=[text]) == (names, [] if names else [f"scope_block_list: {text}"])


def test_the_dynamo_exporters_scope_is_read_from_the_metadata() -> None:
    node = next(iter(model().graph))
    node.metadata_props["pkg.torch.onnx.name_scopes"] = "['', 'dec', 'dec.layers.0', 'linear']"
    assert scope_of(node) == "dec.layers.0"
    for broken in ("broken [", "{[1]: 2}", "[1", "7"):
        node.metadata_props["pkg.torch.onnx.name_scopes"] = broken
        assert scope_of(node) == "decoder.layers.0.cross_attn.q_proj"


def test_lists_keep_their_names_and_blocks_are_apart_from_includes() -> None:
    block, include = selectors(Lists(op=("Add",), pattern=("A -> B",)), Lists(scope=("a.b",)))
    assert [str(entry) for entry in [*block, *include]] == [
        "op_block_list: Add",
        "pattern_block_list: A -> B",
        "scope_include_list: a.b",
    ]


def test_a_selector_whose_nodes_others_took_first_is_not_unmatched() -> None:
    assert matched(op=["MatMul"], node=["encoder"])[1] == []


def test_an_unmatched_operator_type_comes_with_what_it_may_have_meant() -> None:
    (entry,), _ = selectors(Lists(op=("Sofmax",)), Lists())
    expect(unmatched_message(entry, model()), None, "op_block_list: Sofmax", "Softmax")
