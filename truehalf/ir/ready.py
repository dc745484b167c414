"""The form in which graphs are measured, judged and converted: constants alike, nodes named, sorted and typed.

    function calls                     inlined
    Constant nodes of float32          initializers of the same name, in bodies too (sparse ones stay)
    weights listed among the inputs    no inputs (until IR version 3 all of them had to stand there)

None of it changes what a model computes.
"""

from __future__ import annotations

import onnx_ir as ir

from truehalf.ir.normalize import normalize
from truehalf.ir.opset import list_weights_apart


def make_ready(model: ir.Model) -> None:
    """Bring a model, in place, into the form that ranges are measured in and truehalf.conversion.halve expects.

    Raises:
        StageError: when the graph has a cycle.
    """
    import onnx_ir.passes.common as common_passes

    if model.functions:
        common_passes.InlinePass()(model)
    list_weights_apart(model)
    for graph in model.graphs():
        _lift_constants(graph)
    normalize(model)


def _lift_constants(graph: ir.Graph) -> None:
    """Make float32 Constant nodes initializers of the same name."""
    for node in [node for node in graph if node.op_type == "Constant" and node.domain == ""]:
        value = node.outputs[0]
        tensor = ir.convenience.get_const_tensor(value)
        if tensor is None or tensor.dtype != ir.DataType.FLOAT:  # None: sparse
            continue
        lifted = ir.Value(
            name=value.name,
            type=ir.TensorType(ir.DataType.FLOAT),
            shape=ir.Shape(tensor.shape.numpy()),
            const_value=tensor,
        )
        value.replace_all_uses_with(lifted, replace_graph_outputs=True)
        graph.remove(node, safe=True)
        graph.register_initializer(lifted)
