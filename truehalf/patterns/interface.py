"""Inputs, outputs and names."""

from __future__ import annotations

import re
from collections.abc import Iterator

import onnx_ir as ir

from truehalf.ir.facts import fed_inputs, name_of
from truehalf.ir.normalize import NameNodes, apart, rename
from truehalf.patterns.frame import Match, Pattern, Subject
from truehalf.patterns.rewrite import Writer

_BINDINGS = {
    ir.DataType.FLOAT, ir.DataType.FLOAT16, ir.DataType.BFLOAT16, ir.DataType.INT32, ir.DataType.INT64,
    ir.DataType.INT8, ir.DataType.UINT8, ir.DataType.BOOL, ir.DataType.DOUBLE, ir.DataType.FLOAT8E4M3FN,
}  # fmt: skip
_NO_NVINFER = "DeepStream's nvinfer has no such type"
# Types of inputs and outputs that TensorRT binds and servers do not. DeepStream's nvinfer has FLOAT, HALF, INT8 and
# INT32, and INT64 in newer versions; Triton's configuration has no float8.
_SERVERS = {
    ir.DataType.BOOL: (_NO_NVINFER, "warning"),
    ir.DataType.UINT8: (_NO_NVINFER, "warning"),
    ir.DataType.BFLOAT16: (_NO_NVINFER, "warning"),
    ir.DataType.FLOAT8E4M3FN: ("neither Triton's configuration nor DeepStream's nvinfer has such a type", "warning"),
    ir.DataType.INT64: ("older versions of DeepStream's nvinfer have no such type, and read it as another", "info"),
}
_SEPARATORS = re.compile(r"[,:;\s'\"*]")


class DeploymentIo(Pattern):
    """an input or output that TensorRT, Triton or DeepStream cannot take

    What TensorRT, Triton or DeepStream cannot take as input or output.

    - Error: types without a binding (string, uint16, sequences).
    - Warning: float64 (bound as float32); bool, uint8 and bfloat16 (DeepStream's nvinfer has none); float8 (nor has
      Triton's configuration); scalars (no batch axis); names with a comma, colon, semicolon, quote, star or space,
      which trtexec and DeepStream separate by.
    - Info: int64 (older nvinfer has none; RT-DETR's labels are).

    Source: types of TensorRT's bindings, Triton's model configuration and DeepStream's nvinfer.
    """

    id = "deployment-io"

    def find(self, subject: Subject) -> Iterator[Match]:
        for kind, values in {"input": fed_inputs(subject.model), "output": subject.model.graph.outputs}.items():
            for value in values:
                yield from (Match(None, *problem, name=value.name or "") for problem in _problems(value, kind))


def _problems(value: ir.Value, kind: str) -> Iterator[tuple[str, str, str]]:
    """Yield message, remedy and severity of each problem of an input or output."""
    dtype = value.dtype
    if isinstance(value.type, (ir.SequenceType, ir.OptionalType)):
        yield f"The {kind} is no tensor; TensorRT binds tensors only.", "Give tensors.", "error"
        return
    if dtype is not None and dtype not in _BINDINGS:
        yield f"TensorRT has no {kind} of type {dtype.name}.", "Use float32 or int32.", "error"
    elif dtype == ir.DataType.DOUBLE:
        yield (
            f"The {kind} is float64; the engine binds float32 in its place, and a client that sends or expects float64 "
            "reads other numbers.",
            "Convert to float32 before the engine, and after it.",
            "warning",
        )
    elif dtype in _SERVERS:
        lacking, severity = _SERVERS[dtype]
        remedy = "Use float32, float16 or int32 where it is to run there."
        yield f"The {kind} is {dtype.name.lower()}: {lacking}.", remedy, severity
    if value.shape is not None and len(value.shape) == 0:
        message = f"The {kind} is a scalar; Triton and DeepStream expect a batch axis."
        yield message, "Give it an axis: x[None].", "warning"
    if _SEPARATORS.search(value.name or ""):
        message = "Its name holds a character that trtexec's shapes or DeepStream's lists of names separate by."
        yield message, "Use letters, digits, dots, slashes and underscores.", "warning"


class BakedItem(Pattern):
    """an input that nothing reads: its traced value is a constant now

    Nothing reads this input, or the file lost it though its I/O spec names it. What Python computed from it (`.item()`,
    `int(...)`, `if`) is a constant with the traced value.

    Instead: Compute with the tensor itself; leave out an input that is not needed.

    ```python
    logits / temperature.item()  # every run divides by the traced temperature
    logits / temperature  # instead
    ```

    Source: NVIDIA's guidance on exporting for TensorRT.
    """

    id = "baked-item"

    def find(self, subject: Subject) -> Iterator[Match]:
        unread = [each for each in fed_inputs(subject.model) if not each.uses() and each not in subject.outputs]
        inputs = {each.name for each in subject.model.graph.inputs}
        lost = [name for name in subject.expected_inputs if name not in inputs]
        return (Match(None, name=name) for name in [*(each.name or "" for each in unread), *lost])


class EmptyNodeName(Pattern):
    """nodes without a unique name

    Errors, layer tables and lists of nodes cannot tell them from others.

    Instead: Name them when exporting; repair pass deduplicate_names, and slim, name them.

    One finding with the number of nodes. TensorRT names layers, errors and profiles after nodes.
    """

    id, severity, repair = "empty-node-name", "info", "deduplicate_names"

    def find(self, subject: Subject) -> Iterator[Match]:
        first = {node.name: node for node in reversed(subject.nodes) if node.name}
        nameless = [node for node in subject.nodes if first.get(node.name or "") is not node]
        if nameless:
            yield Match(
                nameless[0],
                f"{len(nameless)} without a unique name, first {name_of(nameless[0])!r}. {self.message}",
                count=len(nameless),
            )

    def fix(self, writer: Writer) -> None:
        """Name every node, so that no two nodes or values of a model share a name.

            node without a name        ->  <OpType>_<first output>
            second node of one name    ->  <name>_1, <name>_2, ...
            value of a name in use     ->  <name>_1, ...           sibling subgraphs may share names

        Inputs and outputs of the graph keep their names; so does the first of several.
        """
        writer.done.counts["nodes"] += NameNodes()(writer.model).counts.total()
        repeated = apart(writer.model)
        rename(writer.model, repeated)
        writer.done.counts["values"] += len(repeated)


PATTERNS = (DeploymentIo(), BakedItem(), EmptyNodeName())
