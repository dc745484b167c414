"""Shapes of a file's outputs against the reference's: what differs, and what can be compared all the same.

another number of detections, top-k inside    they are matched, and the file fails
another shape                                 of that output nothing is compared, and the file fails
a shape that varies from run to run           nothing is compared, and the file fails
"""

from __future__ import annotations

from truehalf.codes import coded
from truehalf.errors import StageError
from truehalf.io_spec.outputs import DETECTIONS, Outputs, by_kind, check_values, task_of
from truehalf.io_spec.spec import IoSpec

UNLIKE = coded("not-comparable", "outputs that have not the reference's shape cannot be compared with it")


def comparable(expected: Outputs, outputs: Outputs) -> list[str]:
    """Names of the outputs that have the shape of the reference's."""
    return [name for name, value in expected.items() if name in outputs and outputs[name].shape == value.shape]


def shape_problems(expected: Outputs, outputs: Outputs, spec: IoSpec) -> list[str]:
    """A sentence for each output of another shape, and one for another number of detections.

    Args:
        expected, outputs: of the same samples; one that is missing had no shape to compare.
    """
    other = [name for name in expected if name in outputs and name not in comparable(expected, outputs)]
    kinds = by_kind(spec) if task_of(spec) == DETECTIONS else {}
    problems = []
    if "boxes" in kinds and "logits" not in kinds and decodable(expected, outputs, spec):
        name = kinds["boxes"].name
        if name in other:
            count = f"expected {expected[name].shape[1]} detections an image, as the reference has"
            problems.append(coded("outputs-differ", f"{count}, got {outputs[name].shape[1]}"))
            other = [each for each in other if each not in {kind.name for kind in kinds.values()}]
    return problems + [
        coded(
            "wrong-shape",
            f"output {name!r}: expected shape {list(expected[name].shape)}, got {list(outputs[name].shape)}",
        )
        for name in other
    ]


def decodable(expected: Outputs, outputs: Outputs, spec: IoSpec) -> bool:
    """Whether the outputs that make up detections still do, of as many images."""
    names = [each.name for each in by_kind(spec).values()]
    if any(name not in outputs or outputs[name].shape[:1] != expected[name].shape[:1] for name in names):
        return False
    try:
        check_values(outputs, spec)
    except StageError:
        return False
    return True
