"""A detector of coloured squares with its images and labels: a stand-in for a model of yours in docs/tutorials.

python examples/squares.py FOLDER      writes images/, instances.json (COCO), weights.pt and model.onnx there
"""

from __future__ import annotations

import json
import random
import sys
import warnings
from pathlib import Path

import torch
from PIL import Image

SIZE, SIDE, STRIDE = 128, 16, 8  # of images and squares, and from place to place, pixels
IMAGES = 40
COLORS = ("red", "green", "blue")


class Squares(torch.nn.Module):
    """Looks for a square at each of 15 x 15 places.

    images [n, 3, 128, 128] in 0..1 -> logits [n, 225, 3]; boxes [n, 225, 4], cxcywh as a share of the image.
    """

    centers: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.head = torch.nn.Conv2d(3, 4, SIDE, stride=STRIDE)  # three classes and the side of the box
        y, x = torch.meshgrid(torch.arange(15), torch.arange(15), indexing="ij")
        self.register_buffer("centers", (torch.stack([x, y], -1).reshape(1, -1, 2) + 1) / 16, persistent=False)

    def forward(self, images: torch.Tensor) -> dict[str, torch.Tensor]:
        found = self.head(images).flatten(2).transpose(1, 2)
        sides = found[..., 3:].expand(-1, -1, 2)
        return {"logits": found[..., :3], "boxes": torch.cat([self.centers.expand_as(sides), sides], -1)}


def build() -> torch.nn.Module:
    return Squares()


def weights() -> dict[str, torch.Tensor]:
    """State dict that finds the squares: a class is its colour and none of the other two."""
    head = torch.zeros(4, 3)
    head[:3], head[3] = torch.eye(3) * 48 - 24, SIDE / SIZE
    kernel = head[..., None, None].repeat(1, 1, SIDE, SIDE) / SIDE**2
    return {"head.weight": kernel, "head.bias": torch.tensor([-18.0, -18.0, -18.0, 0.0])}


def write_images(folder: Path) -> None:
    """Images with three squares each, and their annotations."""
    random.seed(0)
    images, annotations = [], []
    for number in range(IMAGES):
        name, image = f"{number:02}.png", Image.new("RGB", (SIZE, SIZE))
        for place in random.sample(range(49), 3):
            color, x, y = random.randrange(3), place % 7 * SIDE, place // 7 * SIDE
            bright = random.randrange(240, 256)
            pixel = (bright * (color == 0), bright * (color == 1), bright * (color == 2))
            image.paste(pixel, (x, y, x + SIDE, y + SIDE))
            box = {"bbox": [x, y, SIDE, SIDE], "area": SIDE**2, "iscrowd": 0}
            annotations.append({"id": len(annotations), "image_id": number, "category_id": color, **box})
        image.save(folder / "images" / name)
        images.append({"id": number, "file_name": name, "width": SIZE, "height": SIZE})
    categories = [{"id": number, "name": name} for number, name in enumerate(COLORS)]
    content = {"images": images, "annotations": annotations, "categories": categories}
    (folder / "instances.json").write_text(json.dumps(content))


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1].startswith("-"):
        sys.exit(__doc__)
    folder = Path(sys.argv[1])
    (folder / "images").mkdir(parents=True, exist_ok=True)
    write_images(folder)
    torch.save(weights(), folder / "weights.pt")
    module = build()
    module.load_state_dict(weights())
    # The exporter that this warning names writes another graph, and has warnings of its own.
    warnings.filterwarnings("ignore", "You are using the legacy TorchScript", DeprecationWarning)
    torch.onnx.export(
        module.eval(),
        (torch.zeros(1, 3, SIZE, SIZE),),
        str(folder / "model.onnx"),
        input_names=["pixel_data"],
        output_names=["logits", "boxes"],
        dynamic_axes={name: {0: "batch"} for name in ("pixel_data", "logits", "boxes")},
        dynamo=False,
    )


if __name__ == "__main__":
    main()
