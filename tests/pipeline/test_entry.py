"""Every choice of conf/ composes, and what Hydra has composed becomes plain values."""

import subprocess
from typing import Any

import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra.errors import ConfigCompositionException

from pipeline.entry import effective_values, plain_values, with_open_keys
from pipeline.workspace import CONF
from tests.configurations import composed
from truehalf.codes import codes_in
from truehalf.config.typed import ConfigErrors
from truehalf.config.validate import validate
from truehalf.models.configuration import validated


def values_of(*overrides: str) -> dict[str, Any]:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return plain_values(compose("config", overrides=list(overrides)))


CHOICES = [f"{path.parent.name}={path.stem}" for path in sorted(CONF.glob("*/*.yaml"))]
OF_DATA = {  # what a choice cannot do without
    "data=coco": ["data.folder=pictures", "data.annotations=instances.json"],
    "data=npz": ["data.file=samples.npz"],
    "data=function": ["data.function=mine:sample"],
}


@pytest.mark.parametrize("choice", CHOICES)
@pytest.mark.parametrize("decoder", ["dfine", "rtdetrv2"])
def test_every_shipped_choice_composes_and_is_valid(choice: str, decoder: str) -> None:
    """And is what tests/configurations.py puts together without Hydra."""
    told = [f"decoder={decoder}", choice, *OF_DATA.get(choice, ["data.folder=pictures"])]
    values = values_of(*told)
    validate(values)
    assert composed(*told) == values


def test_the_committed_params_yaml_is_the_default_configuration() -> None:
    show = subprocess.run(["git", "show", ":params.yaml"], cwd=CONF.parent, capture_output=True, text=True, check=True)
    committed = yaml.safe_load(show.stdout)
    del committed["composed"]
    assert committed == values_of()


@pytest.mark.parametrize("size", ["640", "[64]", "[64,64,3]", "null", "wide"])
def test_a_size_that_is_no_pair_is_named_with_all_else_that_is_wrong(size: str) -> None:
    with pytest.raises(ConfigErrors) as caught:
        validated(values_of(f"model.image_size={size}", "verify.batch=0"))
    told = sorted((error.split(":")[0], *codes_in(error)) for error in caught.value.errors)
    code = "wrong-shape" if size.startswith("[") else "wrong-type"
    assert told == [("model.image_size", code), ("verify.batch", "out-of-range")]


def test_keys_of_the_users_own_need_no_sign() -> None:
    told = [
        *("model=torch", "model.options.kwargs.classes=5", "model.options.kwargs.names=[a,b]"),
        *("trace.dynamic_axes.images={0: batch, 2: height}", "engine.workspace_gb=2"),
    ]
    values = values_of(*with_open_keys(told))
    assert values["model"]["options"]["kwargs"] == {"classes": 5, "names": ["a", "b"]}
    assert values["trace"]["dynamic_axes"] == {"images": {0: "batch", 2: "height"}}
    assert values["engine"]["workspace_gb"] == 2
    assert values_of(*with_open_keys(["model=torch", "model.options.kwargs={classes: 5}"]))["model"]["options"][
        "kwargs"
    ]


def test_other_arguments_are_left_as_they_are() -> None:
    told = ["--cfg", "job", "-m", "+model.options.kwargs.x=1", "~trace.dynamic_axes.images", "model.options.kwarg.x=1"]
    assert with_open_keys(told) == told
    with pytest.raises(ConfigCompositionException, match="kwarg"):
        values_of(*with_open_keys(["model=torch", "model.options.kwarg.x=1"]))


def test_declarations_are_written_with_every_key() -> None:
    module = ("model=torch", "model.options.factory=mine:build", "data.folder=pictures")
    values = effective_of(*module, "model.outputs=[{name: logits, kind: classes}]")
    names = ["name", "kind", "take", "activation", "format", "normalized", "no_object", "columns", "axis"]
    assert list(values["model"]["outputs"][0]) == names


def effective_of(*overrides: str) -> dict[str, Any]:
    values = values_of(*overrides)
    return effective_values(validated(values))


@pytest.mark.parametrize(
    "told",
    [
        ("precision.data_max=512", "precision.data_max=512.0"),
        ("model.preprocessing.mean=[0,0,1]", "model.preprocessing.mean=[0.0,0.0,1.0]"),
        ("engine.workspace_gb=2", "engine.workspace_gb=2.0"),
    ],
)
def test_a_number_is_written_in_one_way(told: tuple[str, str]) -> None:
    as_integer, as_float = (effective_of(*with_open_keys([each])) for each in told)
    assert (
        yaml.safe_dump(as_integer) == yaml.safe_dump(as_float) == yaml.safe_dump(values_of(*with_open_keys([told[1]])))
    )


def test_what_is_written_of_the_defaults_is_what_they_say() -> None:
    assert yaml.safe_dump(effective_of()) == yaml.safe_dump(values_of())


def test_in_fp32_what_has_no_effect_says_nothing() -> None:
    plain = effective_of("precision=fp32")
    told = ("precision.data_max=128", "precision.op_block_list=[Softmax]", "precision.custom_rule=mine:rule")
    assert effective_of("precision=fp32", *told) == plain == values_of("precision=fp32")
    assert effective_of("precision=fp32", "decoder=rtdetrv2") != plain
    for told in (["precision.data_max=128"], ["precision.method=half"]):
        assert effective_of(*told) == values_of(*told)


def test_keys_of_fp16_do_not_differ_in_fp32() -> None:
    assert effective_of("precision=fp32", "precision.data_max=100") == effective_of("precision=fp32")
