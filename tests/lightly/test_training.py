"""What the training of lightly-train really writes, opened: one step on four pictures."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from PIL import Image

from examples.digits.scenes import scene
from tests.configurations import composed
from tests.messages import raises
from truehalf.data.preprocessing import declared_by
from truehalf.models.configuration import validated
from truehalf.models.source import open_model

TRAINING = """
import lightly_train
lightly_train.train_object_detection(
    out="out", model="dinov2/_vittest14-ltdetr", model_args={"decoder_name": "rtdetrv2"},
    data={"path": "set", "train": "images/train", "val": "images/val", "names": {0: "cat", 3: "dog"}},
    steps=1, batch_size=2, num_workers=0, devices=1, accelerator="cpu", precision="32-true",
    transform_args={"image_size": (224, 224)},
)
"""


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("training")
    for part in ("train", "val"):
        (folder / "set/images" / part).mkdir(parents=True)
        (folder / "set/labels" / part).mkdir(parents=True)
        for index in range(2):
            Image.fromarray(scene(index, part).image).save(folder / "set/images" / part / f"{index}.png")
            (folder / "set/labels" / part / f"{index}.txt").write_text("0 0.5 0.5 0.3 0.3\n3 0.3 0.3 0.2 0.2\n")
    environment = os.environ | {"LIGHTLY_TRAIN_EVENTS_DISABLED": "1", "LIGHTLY_TRAIN_CACHE_DIR": str(folder / "cache")}
    done = subprocess.run([sys.executable, "-c", TRAINING], cwd=folder, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    return folder


def test_an_exported_model_is_opened(trained: Path) -> None:
    overrides = ("model=lightly_train", "decoder=rtdetrv2", "data.folder=pictures")
    config = validated(composed(*overrides, "model.checkpoint=out/exported_models/exported_last.pt"))
    model = open_model(config, trained)
    assert model.trained and model.class_names == ["cat", "dog"]
    content = torch.load(trained / "out/exported_models/exported_last.pt", weights_only=True)
    known, arguments = declared_by(model.inputs[0]), content["model_init_args"]
    assert known is not None and known.size == [224, 224]
    assert known.mean == arguments["image_normalize"]["mean"] and known.std == arguments["image_normalize"]["std"]
    state = model.module.network.state_dict()  # type: ignore[union-attr]
    averaged = content["train_model"]
    assert all(torch.equal(tensor, averaged[f"ema_model.model.{name}"]) for name, tensor in state.items())


def test_a_checkpoint_to_go_on_training_from_holds_objects_and_is_refused(trained: Path) -> None:
    overrides = ("model=lightly_train", "decoder=rtdetrv2", "data.folder=pictures")
    config = validated(composed(*overrides, "model.checkpoint=out/checkpoints/last.ckpt"))
    with raises("code-refused", trained / "out/checkpoints/last.ckpt", "exported_models/exported_best.pt"):
        open_model(config, trained)
