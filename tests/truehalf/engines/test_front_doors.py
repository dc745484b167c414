"""The reference that verify has frozen in a workspace, read as what an engine is held against."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from tests.configurations import composed
from tests.messages import raises
from tests.truehalf.verification.small_detector import SPEC, Detector
from truehalf.config.schema import Config
from truehalf.config.validate import validate
from truehalf.data.fitting import adversarial_samples
from truehalf.data.run_samples import run_samples
from truehalf.engines.build import evidence_of
from truehalf.files import write_json
from truehalf.verification.chain.reference import freeze, write_reference

PICTURES = {"size": (32, 32), "channels": "RGB", "range": (0, 1), "resize": "stretch", "layout": "NCHW"}
IMAGES = replace(SPEC.image_input, kind="images", **PICTURES)
SPEC_OF_PICTURES = replace(SPEC, inputs=(IMAGES,), class_names=tuple("0123456789"))


@pytest.fixture
def config(tmp_path: Path) -> Config:
    """Of a workspace in which the small detector is the reference on six digit scenes."""
    config = validate(composed("data.verification_samples=6"))
    samples = run_samples("verification", config, tmp_path, SPEC_OF_PICTURES)
    adversarial = adversarial_samples(config, SPEC_OF_PICTURES)
    write_json(tmp_path / "artifacts/trace/io_spec.json", SPEC_OF_PICTURES.to_json())
    write_reference(
        tmp_path / "artifacts/reference",
        freeze(Detector(), samples, SPEC_OF_PICTURES, 6),
        freeze(Detector(), adversarial, SPEC_OF_PICTURES, 3),
        6,
    )
    return config


def test_the_evidence_is_that_of_verify(config: Config, tmp_path: Path) -> None:
    evidence = evidence_of(config, tmp_path)
    assert len(evidence.reference.names) == 6 and evidence.reference.truth
    assert not isinstance(evidence.images, str) and len(evidence.images.names) == 3
    assert evidence.options == replace(config.verify, batch=evidence.options.batch)


def test_a_reference_on_other_samples_is_refused(config: Config, tmp_path: Path) -> None:
    with raises("wrong-file", 6, 5, "dvc repro reference"):
        evidence_of(validate(composed("data.verification_samples=5")), tmp_path)
