"""Attentions of FP16 files that TensorRT does not compute in its fused kernel (docs/explanation/attention.md).

Lost where a product, Q K^T or that with V, is FP32 and stands beside a node that computes in FP32.
"""

from __future__ import annotations

import json
from collections.abc import Iterator

import onnx_ir as ir

from truehalf.ir.model_file import UNFUSED_KEY
from truehalf.ir.patterns import Neighbours, beside
from truehalf.patterns.frame import Match, Pattern, Subject


class AttentionWillNotFuse(Pattern):
    """an attention that FP32 nodes keep out of the fused kernel

    `softmax(Q K^T) V` in a file with float16, where one of the products is FP32 and a node beside it computes in FP32,
    too. TensorRT for RTX then computes scores, Softmax and product in separate layers and writes the scores to memory.
    It fuses all other combinations of types that were tried. Casts around the Softmax cost nothing: it may be FP32.

    Instead: FP16 for one of the two; Softmax alone may be FP32: (q @ k.mT).float().softmax(-1).to(v.dtype) @ v.

    ```python
    weights = (q.float() @ k.float().transpose(-2, -1) * scale).softmax(-1).to(v.dtype)
    weights = (q @ k.transpose(-2, -1) * scale).float().softmax(-1).to(v.dtype)  # instead
    ```

    The conversion keeps attentions fused unless ranges or lists keep such neighbours FP32; the finding then names them,
    and why. Source: compiled by TensorRT for RTX 1.7, with every set of nodes in FP32.
    """

    id = "attention-will-not-fuse"

    def find(self, subject: Subject) -> Iterator[Match]:
        if not any(value.dtype == ir.DataType.FLOAT16 for node in subject.nodes for value in node.outputs):
            return
        evidence = json.loads(subject.model.metadata_props.get(UNFUSED_KEY, "{}"))
        for attention in Neighbours(subject.model).attentions():
            wide = [product for product in attention.products if product.outputs[0].dtype == ir.DataType.FLOAT]
            pairs = ((product, node) for product in wide for node in beside(product))
            if (pair := next(pairs, None)) is not None:
                product, node = pair
                why = evidence.get(attention.softmax.name)
                yield Match(
                    attention.softmax,
                    f"Its attention is computed in separate layers: {product.op_type} {product.name!r} is FP32, and so "
                    f"is {node.op_type} {node.name!r} beside it."
                    + (f" The conversion has evidence for it: {why}." if why else ""),
                )


PATTERNS = (AttentionWillNotFuse(),)
