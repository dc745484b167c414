"""Shapes at which costs are compared."""

from __future__ import annotations

import onnx_ir as ir

from truehalf.ir.normalize import NORMALIZE, concrete_shapes


def test_sibling_bodies_that_share_names_have_their_own_shapes() -> None:
    model = ir.from_onnx_text("""<ir_version: 8, opset_import: ["": 17]>
        g (float[B,3] x, float[5,C] v, bool c) => (float[K,L] y) { y = If(c) <
            then_branch = t () => (float[A,B] ty) { n = Shape(x) r = Expand(x, n) ty = Identity(r) },
            else_branch = e () => (float[C,D] ey) { n = Shape(v) r = Expand(v, n) ey = Identity(r) }> }""")
    NORMALIZE(model)
    shapes = concrete_shapes(model, {"x": (2, 3), "v": (5, 7)})
    branches = list(model.graphs())[1:]
    found = [[shapes[value] for node in graph for value in node.outputs if value.name == "r"] for graph in branches]
    assert found == [[(2, 3)], [(5, 7)]]
