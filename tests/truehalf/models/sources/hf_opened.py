"""Models of `transformers` in folders, opened as a configuration says."""

from __future__ import annotations

from pathlib import Path

import torch

from tests.configurations import composed
from tests.messages import raises
from tests.truehalf.models.sources.hf_families import (
    DETECTORS,
)
from truehalf.config.schema import Config
from truehalf.models.configuration import validated
from truehalf.models.model import Model
from truehalf.models.source import open_model


def config(identity: Path | str, *overrides: str, model: str = "huggingface") -> Config:
    return validated(composed(f"model={model}", "data.folder=pictures", f"model.options.id={identity}", *overrides))


def opened(folder: Path, *overrides: str, model: str = "huggingface") -> Model:
    return open_model(config(folder, *overrides, model=model), folder)


def choice_of(model_type: str) -> str:
    return "huggingface" if model_type in DETECTORS else "huggingface_classifier"


def pictures(count: int, size: int = 64) -> torch.Tensor:
    return torch.rand(count, 3, size, size, generator=torch.Generator().manual_seed(count))


def refused(folder: Path, *overrides: str, code: str, model: str = "huggingface") -> str:
    with raises(code) as error:
        opened(folder, *overrides, model=model)
    return str(error.value)
