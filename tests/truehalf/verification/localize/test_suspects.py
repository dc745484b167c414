"""One selector against all suspects: nodes where rounding is at fault, modules where values are beyond FP16."""

import re

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from truehalf.verification.localize.both_files import BothFiles
from truehalf.verification.localize.locate import Suspect, locate, pins_of


def model(nodes: list[tuple[str, str]], others: int = 40) -> ir.Model:
    """A chain of Relus, of one (node name, operator) each, and nodes of another module behind it."""
    chain = [*nodes, *((f"/head/layer{i}/Relu", "Relu") for i in range(others))]
    names = ["x", *(f"t{i}" for i in range(len(chain) - 1)), "y"]
    lines = [
        f"[{f'n{i}'}] {names[i + 1]} = {op}({names[i]})" for i, (_, op) in enumerate(chain)
    ]  # the text form has no "/" in names
    text = f'<ir_version: 10, opset_import: ["" : 17]>\ng (float[4] x) => (float[4] y) {{\n{chr(10).join(lines)}\n}}'
    made = ir.from_proto(onnx.parser.parse_model(text))
    for node, (name, _) in zip(made.graph, chain, strict=True):
        node.name = name
    return made


def suspect(name: str, cause: str) -> Suspect:
    numbers = {"local_error": 0.1, "effect": 0.1, "output_absmax": 1.0}
    words = {"op_type": "Relu", "tensor": "t", "can_be_pinned": True, "sentence": ""}
    return Suspect(node=name, cause=cause, explained=False, **numbers, **words)  # type: ignore[arg-type]


ATTENTION = [("/enc.0/attn/v_proj/Relu", "Relu"), ("/enc.0/attn/v_proj/Abs", "Abs"), ("/enc.0/attn/Relu", "Relu")]
CASES = [
    (["/enc.0/attn/v_proj/Relu"], "nonfinite", [r"^/enc\.0/attn/v_proj/"], "what reads it is in the same module"),
    (["/enc.0/attn/v_proj/Abs"], "nonfinite", [r"^/enc\.0/attn/"], "a module further out reads it"),
    (["/enc.0/attn/v_proj/Relu", "/enc.0/attn/v_proj/Abs"], "nonfinite", [r"^/enc\.0/attn/"], "the wider covers both"),
    (["/enc.0/attn/v_proj/Abs"], "error", [r"^/enc\.0/attn/v_proj/Abs$"], "rounding is the node's own"),
    (
        *(["/enc.0/attn/Relu"], "nonfinite", [r"^/enc\.0/attn/Relu$", "^/head/layer0/Relu$"]),
        "what reads it has no module in common with it",
    ),
    (
        *(["/head/layer3/Relu", "/head/layer9/Relu"], "nonfinite"),
        [f"^/head/layer{number}/Relu$" for number in (3, 4, 9, 10)],
        "the module is most of the graph: the nodes, and what reads them",
    ),
]


@pytest.mark.parametrize(("names", "cause", "expected", "why"), CASES, ids=[case[3] for case in CASES])
def test_what_is_pinned(names: list[str], cause: str, expected: list[str], why: str) -> None:
    made = model(ATTENTION)
    found = pins_of([suspect(name, cause) for name in names], BothFiles(made, made))
    assert found == expected, why
    matched = {node.name for node in made.graph if any(re.search(entry, str(node.name)) for entry in found)}
    assert set(names) <= matched


@pytest.mark.parametrize("seed", range(3))
def test_every_suspect_is_matched_whatever_the_names(seed: int) -> None:
    random = np.random.default_rng(seed)
    parts = ["a", "a.0", "b+", "(c)"]
    nodes = [("/" + "/".join([*random.choice(parts, random.integers(0, 4)), f"n{i}"]), "Relu") for i in range(12)]
    made = model(nodes)
    files = BothFiles(made, made)
    chosen = [nodes[i][0] for i in random.choice(12, 5, replace=False)]
    causes = random.choice(["nonfinite", "error"], 5)
    pinned = pins_of([suspect(*each) for each in zip(chosen, causes, strict=True)], files)
    assert all(any(re.search(entry, name) for entry in pinned) for name in chosen)
    one_in_ten = [entry for entry in pinned if sum(bool(re.search(entry, n)) for n, _ in nodes) > 5]
    assert not one_in_ten, "no module that is more than a tenth of the graph"


def test_suspects_of_a_search_are_pinned_by_name_where_they_have_none() -> None:
    text = """<ir_version: 10, opset_import: ["" : 17]> g (float[2] x) => (float[2] y) <float[1] k = {1000.0}>
    { a = Mul(x, k)  y = Div(a, k) }"""
    half = text.replace("{ a = Mul(x, k)  y = Div(a, k) }", "") + (
        "{ xh = Cast<to = 10>(x)  kh = Cast<to = 10>(k)  a = Mul(xh, kh)  z = Div(a, kh)  y = Cast<to = 1>(z) }"
    )
    reference, candidate = (ir.from_proto(onnx.parser.parse_model(each)) for each in (text, half))
    files = BothFiles(reference, candidate)
    found = locate(files, [{"x": np.float32([100, 1])}])
    assert found[0].cause == "nonfinite" and pins_of(found, files)[0] == "^Mul_a$"
