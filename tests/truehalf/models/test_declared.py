"""Inputs and outputs as the configuration declares them."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from tests.configurations import composed
from tests.truehalf.models.refusing import refuses
from truehalf.data.preprocessing import Preprocessing, declared_by
from truehalf.models.configuration import validated
from truehalf.models.declared import declared_inputs, outputs_of, problems_of_declared, takes_images

FACTORY = ("model=torch", "model.options.factory=my:build", "data.folder=pictures")
IMAGES = "{name: x, kind: images, dtype: float32, shape: null}"
SIZES = "{name: sizes, kind: picture_size, dtype: int64, shape: null}"
TOKENS = "{name: tokens, kind: tensor, dtype: int64, shape: [null, 4]}"


def output(name: str, kind: str = "tensor", **said: Any) -> str:
    rest = dict.fromkeys(("take", "activation", "format", "normalized", "no_object")) | said
    values = ", ".join(f"{key}: {'null' if value is None else str(value).lower()}" for key, value in rest.items())
    return f"{{name: {name}, kind: {kind}, {values}}}"


def config(*overrides: str) -> Any:
    return validated(composed(*FACTORY, *overrides))


def test_a_model_that_declares_nothing_takes_pictures() -> None:
    (images,) = declared_inputs(config())
    shape = ("batch", 3, 640, 640)
    assert (images.name, images.kind, images.dtype, images.shape) == ("images", "images", "float32", shape)
    assert declared_by(images) == Preprocessing(size=[640, 640]) and takes_images(config())


def test_what_is_configured_goes_before_what_the_source_knows() -> None:
    known = Preprocessing(size=[32, 32], channels="BGR", mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    changed = config("model.preprocessing.channels=RGB", "model.image_size=[64,96]")
    (images,) = declared_inputs(changed, known)
    assert declared_by(images) == Preprocessing(size=[64, 96], channels="RGB", mean=known.mean, std=known.std)


def test_inputs_keep_their_order_and_kinds() -> None:
    inputs = declared_inputs(config(f"model.inputs=[{IMAGES}, {SIZES}, {TOKENS}]"))
    assert [(each.name, each.kind, each.dtype, each.shape) for each in inputs] == [
        ("x", "images", "float32", ("batch", 3, 640, 640)),
        ("sizes", "picture_size", "int64", ("batch", 2)),
        ("tokens", "tensor", "int64", ("batch", "?", 4)),
    ]


@pytest.mark.parametrize(
    ("returned", "takes"),
    [
        ((torch.zeros(1, 2), torch.zeros(1, 3)), ["0", "1"]),
        ({"first": torch.zeros(1, 2), "second": torch.zeros(1, 3)}, ["first", "second"]),
    ],
)
def test_declared_outputs_are_taken_by_name_or_else_by_position(returned: Any, takes: Sequence[str]) -> None:
    declared = config(f"model.outputs=[{output('first', 'classes')}, {output('second')}]")
    outputs, found = outputs_of(declared, returned)
    assert found == list(takes) and [each.kind for each in outputs] == ["classes", None]


def test_the_names_that_positions_are_given_stay_theirs() -> None:
    """Whatever is taken out of a proposed list, or moved in it."""
    returned = tuple(torch.zeros(1, count) for count in (2, 3, 4))
    for names in (["output_1"], ["output_2", "output_0"], ["output_0", "output_1", "output_2"]):
        declared = config(f"model.outputs=[{', '.join(output(name) for name in names)}]")
        assert outputs_of(declared, returned)[1] == [name[-1] for name in names]


def test_without_a_declaration_every_tensor_is_an_output_but_those_that_are_dropped() -> None:
    returned = {"y": torch.zeros(1, 2), "auxiliary": torch.zeros(1, 2)}
    outputs, takes = outputs_of(config("model.drop_outputs=[auxiliary]"), returned)
    assert ([each.name for each in outputs], takes) == (["y"], ["y"])


@pytest.mark.parametrize(
    ("override", "key", "code", "facts"),
    [
        ("model.inputs=[]", "model.inputs", "needs-value", ["'images'"]),
        (
            f"model.inputs=[{IMAGES.replace('float32', 'floaty')}]",
            *("model.inputs[0].dtype", "unknown-choice", ["float32", "int64", "'floaty'"]),
        ),
        (
            f"model.inputs=[{IMAGES.replace('float32', 'float16')}]",
            *("model.inputs[0].dtype", "wrong-dtype", ["float32", "float16"]),
        ),
        (f"model.inputs=[{TOKENS.replace('[null, 4]', 'null')}]", "model.inputs[0].shape", "needs-value", ["null"]),
        (
            f"model.inputs=[{TOKENS.replace('4]', '0]')}]",
            *("model.inputs[0].shape", "out-of-range", ["null", "[None, 0]"]),
        ),
        (f"model.inputs=[{SIZES.replace('null', '[3]')}]", "model.inputs[0].shape", "wrong-shape", ["[2]", "[3]"]),
        ("model.outputs=[]", "model.outputs", "needs-value", ["null"]),
        (f"model.outputs=[{output('images')}]", "model.outputs", "given-twice", ["'images'"]),
        (
            f"model.outputs=[{output('l', 'logits', activation='sigmoid')}]",
            *("model.outputs", "in-conflict", ["logits", "boxes"]),
        ),
    ],
)
def test_faults_name_the_key(override: str, key: str, code: str, facts: list[str]) -> None:
    with refuses(key, code, *facts):
        config(override)


def test_a_sound_declaration_has_no_faults() -> None:
    pair = output("l", "logits", activation="sigmoid"), output("b", "boxes", format="xyxy", normalized=False)
    assert list(problems_of_declared(config(f"model.outputs=[{', '.join(pair)}]"))) == []
    rows = "{name: y, kind: rows, columns: [boxes, scores, others], axis: 1, format: cxcywh, normalized: false}"
    whole = config(f"model.outputs=[{rows}]", "model.classes=[cat, dog]")
    assert list(problems_of_declared(whole)) == []
    with refuses("model.outputs", "missing-key", "others"):
        config(f"model.outputs=[{rows}]")
