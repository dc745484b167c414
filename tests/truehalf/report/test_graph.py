"""Islands of FP32 nodes, and stretches of the graph by stage of the network."""

from typing import Any

from truehalf.report.fp32_nodes import kept_in_fp32
from truehalf.report.graph import islands


def node(name: str, scope: str, flops: float, precision: str = "fp16", op: str = "MatMul", reads: Any = ()) -> Any:
    return {"node": name, "op": op, "scope": scope, "precision": precision} | {
        "flops": flops,
        "reads": list(reads),
    }


NODES = [
    node("/a", "", 1.0),
    node("/in", "", 0.0, "fp32", "Cast", [(0, "FP16")]),
    node("/s", "head", 1.0, "fp32", "Softmax", [(1, "FP32")]),
    node("/m", "head", 1.0, "fp32", "Mul", [(2, "FP32"), (-1, "FP32")]),
    node("/out", "", 0.0, "fp16", "Cast", [(3, "FP32")]),
    node("/b", "", 1.0, "fp16", "MatMul", [(4, "FP16"), (0, "FP16")]),
    node("/t", "", 1.0, "fp32", "Tanh", [(5, "FP16")]),
]


def test_islands_are_connected_by_fp32_tensors() -> None:
    assert islands(NODES) == [[2, 3], [6]]
    rows: Any = [
        {"node": each["node"], "op": each["op"], "scope": each["scope"], "precision": "fp32", "rule": "data_max"}
        for each in (NODES[2], NODES[3], NODES[6])
    ]
    shown: Any = kept_in_fp32(rows, NODES)
    assert [module["islands"] for module in shown["modules"]] == [["Softmax, Mul"], ["Tanh"]]


def test_a_file_without_fp16_has_no_islands() -> None:
    assert islands([node("/a", "", 1.0, "fp32"), node("/b", "", 1.0, "fp32", reads=[(0, "FP32")])]) == []
