"""Inputs and outputs as the configuration declares them."""

from collections.abc import Sequence
from typing import Any

import pytest
import torch

from conf.validate import ConfigErrors
from stages.configuration import validated
from stages.data.preprocessing import Preprocessing
from stages.models.declared import declared_inputs, faults_of_declared, outputs_of, takes_pictures
from tests.conftest import composed

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


def faults(*overrides: str) -> list[str]:
    """Of a configuration that may be wrong: what is declared alone."""
    with pytest.raises(ConfigErrors) as raised:
        config(*overrides)
    return str(raised.value).splitlines()


def test_a_model_that_declares_nothing_takes_pictures() -> None:
    (images,) = declared_inputs(config())
    assert (images.name, images.kind, images.dtype, images.shape) == ("images", "images", "float32", None)
    assert images.preprocessing == Preprocessing(size=[640, 640]) and takes_pictures(config())


def test_what_is_configured_goes_before_what_the_source_knows() -> None:
    known = Preprocessing(size=[32, 32], channels="BGR", mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    changed = config("model.preprocessing.channels=RGB", "model.image_size=[64,96]", "trace.input_shape=[1,3,64,96]")
    (images,) = declared_inputs(changed, known)
    assert images.preprocessing == Preprocessing(size=[64, 96], channels="RGB", mean=known.mean, std=known.std)


def test_inputs_keep_their_order_and_kinds() -> None:
    inputs = declared_inputs(config(f"model.inputs=[{IMAGES}, {SIZES}, {TOKENS}]"))
    assert [(each.name, each.kind, each.dtype, each.shape) for each in inputs] == [
        ("x", "images", "float32", None),
        ("sizes", "picture_size", "int64", (2,)),
        ("tokens", "tensor", "int64", (None, 4)),
    ]
    assert [each.preprocessing is None for each in inputs] == [False, True, True]


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


def test_without_a_declaration_every_tensor_is_an_output_but_those_that_are_dropped() -> None:
    returned = {"y": torch.zeros(1, 2), "auxiliary": torch.zeros(1, 2)}
    outputs, takes = outputs_of(config("model.drop_outputs=[auxiliary]"), returned)
    assert ([each.name for each in outputs], takes) == (["y"], ["y"])


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("model.inputs=[]", "model.inputs: expected one input or more"),
        (f"model.inputs=[{IMAGES.replace('float32', 'floaty')}]", "model.inputs[0].dtype: expected a type as numpy"),
        (f"model.inputs=[{IMAGES.replace('float32', 'float16')}]", "model.inputs[0].dtype: the model is run in FP32"),
        (f"model.inputs=[{TOKENS.replace('[null, 4]', 'null')}]", "model.inputs[0].shape: expected the sides"),
        (f"model.inputs=[{TOKENS.replace('4]', '0]')}]", "model.inputs[0].shape: expected positive sides"),
        (f"model.inputs=[{SIZES.replace('null', '[3]')}]", "model.inputs[0].shape: height and width"),
        ("model.outputs=[]", "model.outputs: expected one output or more"),
        (f"model.outputs=[{output('images')}]", "model.outputs: 'images' is the name of an input, too"),
        (f"model.outputs=[{output('l', 'logits', activation='sigmoid')}]", "model.outputs: "),
    ],
)
def test_faults_name_the_key(override: str, said: str) -> None:
    assert any(said in line for line in faults(override))


def test_a_sound_declaration_has_no_faults() -> None:
    pair = output("l", "logits", activation="sigmoid"), output("b", "boxes", format="xyxy", normalized=False)
    assert list(faults_of_declared(config(f"model.outputs=[{', '.join(pair)}]"))) == []
