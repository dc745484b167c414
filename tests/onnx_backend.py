"""ONNX's backend tests: one small model for each operator and what it can do, as data for our own tests.

`make test` takes the sample, `make test-all` the whole: in the order of their names of every eight the one whose
inputs are smallest, and of what is left over the first of each operator that the others do not have.
"""

from __future__ import annotations

import functools
import math
import warnings
from collections.abc import Iterable, Iterator
from typing import Any

import onnx
import pytest

FLOAT = onnx.TensorProto.FLOAT
_ONE_OF = 8
# For a test's parameter `whole`.
SAMPLE_AND_WHOLE = [pytest.param(False, id="sample"), pytest.param(True, id="whole", marks=pytest.mark.slow)]

Case = tuple[str, onnx.ModelProto, list[Any]]  # name, model, its first set of inputs


def cases(whole: bool = True) -> Iterator[Case]:
    """The valid tests with a float32 input or output."""
    found = _valid_cases()
    kept = None if whole else sampled((name, model) for name, model, _ in found)
    for name, model, inputs in found:
        if kept is None or name in kept:
            copied = onnx.ModelProto()
            copied.CopyFrom(model)
            yield name, copied, inputs


def sampled(models: Iterable[tuple[str, onnx.ModelProto]]) -> set[str]:
    """The names of the sample."""
    in_order = sorted(models, key=lambda pair: pair[0])
    starts = range(0, len(in_order), _ONE_OF)
    groups = [sorted(in_order[i : i + _ONE_OF], key=lambda pair: _numbers(pair[1])) for i in starts]
    kept, left = [group[0] for group in groups], [each for group in groups for each in group[1:]]
    names, seen = {name for name, _ in kept}, {each for _, model in kept for each in operators_of(model)}
    for name, model in left:
        if not operators_of(model) <= seen:
            names.add(name)
            seen |= operators_of(model)
    return names


def _numbers(model: onnx.ModelProto) -> int:
    """In all inputs together, as far as their axes are fixed."""
    shapes = [value.type.tensor_type.shape.dim for value in model.graph.input]
    return sum(math.prod(axis.dim_value or 1 for axis in shape) for shape in shapes)


def operators_of(model: onnx.ModelProto) -> set[tuple[str, str]]:
    return {(node.domain, node.op_type) for node in model.graph.node}


@functools.cache
def loaded(kind: str) -> tuple[Any, ...]:
    """The tests of a kind as ONNX has them; to be read only."""
    from onnx.backend.test.loader import load_model_tests

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return tuple(load_model_tests(kind=kind))


@functools.cache
def _valid_cases() -> tuple[Case, ...]:
    found = []
    for test in [*loaded("node"), *loaded("simple")]:
        model = test.model or onnx.load(f"{test.model_dir}/model.onnx")
        if FLOAT in [t for _, t in io_types(model)] and is_valid(model):
            found.append((test.name, model, (test.data_sets or [([], [])])[0][0]))
    return tuple(found)


def io_types(model: onnx.ModelProto) -> list[tuple[str, int]]:
    return [(v.name, v.type.tensor_type.elem_type) for v in [*model.graph.input, *model.graph.output]]


def is_valid(model: onnx.ModelProto) -> bool:
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError):
        return False
    return True
