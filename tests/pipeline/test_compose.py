"""What Hydra has composed becomes plain values, whatever the size of pictures was set to."""

from typing import Any

import pytest
from hydra import compose, initialize_config_dir

from conf.schema import CONF
from conf.validate import ConfigErrors
from pipeline.compose import resolved
from stages.configuration import validated


def values_of(*overrides: str) -> dict[str, Any]:
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return resolved(compose("config", overrides=list(overrides)))


@pytest.mark.parametrize("size", ["640", "[64]", "[64,64,3]", "null", "wide"])
def test_a_size_that_is_no_pair_is_named_with_all_else_that_is_wrong(size: str) -> None:
    with pytest.raises(ConfigErrors) as caught:
        validated(values_of(f"model.image_size={size}", "verify.batch=0"))
    first, second = sorted(caught.value.errors)
    assert first.startswith("model.image_size: expected [height, width], such as [640, 640]")
    assert second.startswith("verify.batch")


def test_declarations_are_written_with_every_key() -> None:
    values = values_of("model.outputs=[{name: logits, kind: classes}]")
    names = ["name", "kind", "take", "activation", "format", "normalized", "no_object"]
    assert list(values["model"]["outputs"][0]) == names


def test_a_pair_is_resolved_in_what_is_made_of_it() -> None:
    values = values_of("model.image_size=[96,96]")
    assert values["trace"]["input_shape"] == [2, 3, 96, 96]
    assert values["engine"]["profiles"][0]["images"]["max"] == [8, 3, 96, 96]
