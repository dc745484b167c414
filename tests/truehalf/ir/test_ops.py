"""The table of operator traits: complete, and the only one."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import onnx
import onnx_ir as ir
import pytest

from truehalf.ir.ops import MOVES, TABLE, Trait, adds_up, has, moved_inputs, row_of, with_trait

ROOT = Path(__file__).resolve().parents[3] / "truehalf"
SCHEMAS = {
    f"{schema.domain}::{schema.name}" if schema.domain else schema.name: schema
    for schema in sorted(onnx.defs.get_all_schemas_with_history(), key=lambda schema: schema.since_version)
}
MANY = 3  # names of operators in one literal

# Where names of operators stand beside each other outside the table, and why.
ELSEWHERE = {
    ("calibration/sums.py", "_SUMS"): "what is added up, for each",
    (
        "config/precision.py",
        "PRODUCTS",
    ): "what an option without entries means, which users read; config stands above ir",
    ("conversion/masks.py", "_JOINS"): "what a mask passes beside moves",
    ("conversion/rules/epsilons.py", "_GUARDS"): "the positions where each reads an epsilon",
    ("conversion/rules/variance.py", "_MEANS"): "what a mean is written as, and no other reduction",
    ("emulation/pessimistic.py", "_BY_ONNX"): "what is spelled as ONNX defines it",
    ("emulation/pessimistic.py", "_RULES"): "a function for each",
    ("emulation/split_products.py", "_CUTS"): "a function for each",
    ("ir/arithmetic.py", "_DEPTHS"): "a function for each",
    ("ir/arithmetic.py", "_PRODUCTS"): "a function for each",
    ("patterns/restrictions.py", "_CHECKS"): "a function for each",
    ("patterns/restrictions.py", "_CONSTANT"): "what TensorRT refuses, by its documentation",
    ("patterns/restrictions.py", "_FIRST_OUTPUT_ONLY"): "what TensorRT refuses, by its documentation",
    ("patterns/restrictions.py", "_TAKEN"): "what TensorRT refuses, by its documentation",
    ("patterns/support.py", "_BUILT"): "what TensorRT has, by its documentation",
    ("patterns/support.py", "_SINCE"): "what TensorRT has, by its documentation",
}


def test_every_operator_of_onnx_has_a_row() -> None:
    missing = {name for name in SCHEMAS if "::" not in name} - set(TABLE)
    assert not missing, f"write a row for each in truehalf/ir/ops.py: {sorted(missing)}"
    assert set(TABLE) <= set(SCHEMAS), "a row of an operator that onnx does not have"


@pytest.mark.parametrize("name", [name for name, row in TABLE.items() if row != type(row)(row.traits)])
def test_positions_and_names_are_those_of_the_schema(name: str) -> None:
    versions = [each for each in onnx.defs.get_all_schemas_with_history() if (each.domain, each.name) == ("", name)]
    row, inputs = TABLE[name], max(schema.max_input for schema in versions)
    assert all(position < inputs for position in (*(row.moved or ()), *row.scaled, *(row.sizes or ())))
    assert row.choice is None or row.choice < max(schema.max_output for schema in versions)
    assert {*row.coordinates, *row.decides} <= {each.name for schema in versions for each in schema.inputs}
    assert row.moves_when is None or row.moves_when[0] in SCHEMAS[name].attributes


def test_traits_that_say_the_same_agree() -> None:
    assert with_trait(Trait.VIEW) < with_trait(Trait.PERMUTES) & with_trait(Trait.LAYOUT)
    assert with_trait(Trait.PERMUTES | Trait.LAYOUT) < MOVES
    assert with_trait(Trait.FILLS) < MOVES
    assert not with_trait(Trait.NO_ARITHMETIC) & with_trait(Trait.ACCUMULATES)
    assert MOVES - with_trait(Trait.NO_ARITHMETIC) == {"Scatter", "ScatterElements", "ScatterND"}


def test_logic_and_comparisons_give_booleans() -> None:
    for name in with_trait(Trait.LOGIC | Trait.COMPARES):
        assert SCHEMAS[name].outputs[0].types == {"tensor(bool)"}


def test_sequences_are_what_reads_or_writes_a_list_or_an_optional_tensor() -> None:
    def lists(schema: onnx.defs.OpSchema) -> bool:
        types = [set(each.types) for each in [*schema.inputs, *schema.outputs]]
        return any(kinds and all(kind.startswith(("seq", "optional")) for kind in kinds) for kinds in types)

    found = {name for name, schema in SCHEMAS.items() if "::" not in name and lists(schema)}
    assert found - with_trait(Trait.SEQUENCE) == set()


@pytest.mark.parametrize(
    ("op_type", "attributes", "adds", "moved"),
    [
        ("ScatterND", {}, False, (0, 2)),
        ("ScatterND", {"reduction": "add"}, True, ()),
        ("Concat", {"axis": 0}, False, (0, 1, 2)),
        ("Where", {}, False, (1, 2)),
        ("Resize", {"mode": "linear"}, True, ()),
        ("Resize", {}, False, ()),
        ("MatMul", {}, True, ()),
        ("Relu", {}, False, ()),
    ],
)
def test_a_node_says_whether_it_adds_up_or_moves(
    op_type: str, attributes: dict[str, int | str], adds: bool, moved: tuple[int, ...]
) -> None:
    node = ir.node(op_type, [ir.Value(name=name) for name in "abc"], attributes)
    assert (adds_up(node), moved_inputs(node)) == (adds, moved)


def test_operators_of_other_domains_have_none_of_these_traits() -> None:
    node = ir.node("Reshape", [ir.Value(name="a")], domain="com.acme")
    assert not has(node, Trait.VIEW)
    assert moved_inputs(node) == ()
    assert row_of(node).traits == Trait(0)
    assert not has(None, Trait.VIEW)


# --- the only table ---------------------------------------------------------------------------------------------------


def literals(tree: ast.AST, target: str = "") -> Iterator[tuple[str, ast.AST]]:
    """Sets, tuples, lists and dictionaries, each with the name that it is assigned to."""
    for node in ast.iter_child_nodes(tree):
        name = target
        if isinstance(node, ast.Assign | ast.AnnAssign):
            first = node.targets[0] if isinstance(node, ast.Assign) else node.target
            name = first.id if isinstance(first, ast.Name) else ""
        if isinstance(node, ast.Set | ast.Tuple | ast.List | ast.Dict):
            yield name, node
        yield from literals(node, name)


def operators_in(node: ast.AST) -> set[str]:
    elements = node.keys if isinstance(node, ast.Dict) else node.elts  # type: ignore[attr-defined]
    texts = [each.value for each in elements if isinstance(each, ast.Constant) and isinstance(each.value, str)]
    return {word for text in texts for word in text.split()} & set(TABLE)


def test_names_of_operators_stand_in_the_table_alone() -> None:
    found = {}
    for path in sorted(ROOT.rglob("*.py")):
        where = path.relative_to(ROOT).as_posix()
        for name, node in literals(ast.parse(path.read_text())) if where != "ir/ops.py" else ():
            if len(operators_in(node)) >= MANY:
                found[where, name] = getattr(node, "lineno", 0)
    assert set(found) - set(ELSEWHERE) == set(), "say it by a trait of truehalf/ir/ops.py"
    assert set(ELSEWHERE) - set(found) == set(), "no exception any more"
