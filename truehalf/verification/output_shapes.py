"""Shapes of a file's outputs against the reference's: what differs, and what can be compared all the same.

another number of detections, top-k inside    they are matched, and the file fails
another shape                                 of that output nothing is compared, and the file fails
a shape that varies from run to run           nothing is compared, and the file fails
"""

from __future__ import annotations

from truehalf.codes import coded
from truehalf.errors import StageError
from truehalf.io_spec.checks import check_values
from truehalf.io_spec.outputs import OF_CLASSES, Outputs, columns_in, detecting, finds_top_k, read_columns
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
    problems = []
    if {*other} & {*detecting(spec)} and finds_top_k(spec) and decodable(expected, outputs, spec):
        counts = [read_columns(side, spec)["boxes"].shape[1] for side in (expected, outputs)]
        if counts[0] != counts[1]:
            reason = f"expected {counts[0]} detections an image, as the reference has, got {counts[1]}"
            problems.append(coded("outputs-differ", reason))
            other = [each for each in other if each not in detecting(spec)]
    return problems + [
        coded(
            "wrong-shape",
            f"output {name!r}: expected shape {list(expected[name].shape)}, got {list(outputs[name].shape)}",
        )
        for name in other
    ]


def decodable(expected: Outputs, outputs: Outputs, spec: IoSpec) -> bool:
    """Whether the outputs that make up detections still do, of as many images."""
    for each in (each for each in spec.outputs if columns_in(each) or each.kind in OF_CLASSES):
        images = slice(0, 0 if each.batched is False else 1)
        if each.name not in outputs or outputs[each.name].shape[images] != expected[each.name].shape[images]:
            return False
    try:
        check_values(outputs, spec)
    except StageError:
        return False
    return True
