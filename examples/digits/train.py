"""Train the embedded detector on digit scenes, on a CPU or a GPU, from scratch.

    python examples/digits/train.py --decoder dfine
    python examples/digits/train.py --decoder rtdetrv2

Architecture: conf/model/ltdetr_nano.yaml. The run is a function of --seed and the arguments; its state after each
epoch lies in --state (resumed when the command is repeated). At the end the averaged weights (EMA) go to
<decoder>.safetensors in --weights, and the log of average precision per epoch to <decoder>.log.
"""

from __future__ import annotations

import argparse
import copy
import math
import os
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import torch
import yaml
from safetensors.torch import save_file

HERE = Path(__file__).resolve().parent
ROOT = HERE.parent.parent
sys.path.insert(0, str(ROOT))

from examples.digits.detector import build  # noqa: E402
from examples.digits.scenes import Scene, scene  # noqa: E402
from truehalf.io_spec.decode import (  # noqa: E402
    Detections,
    corners,
    of_queries,
)
from truehalf.io_spec.spec import OutputSpec  # noqa: E402
from truehalf.verification.metrics.average_precision import average_precision  # noqa: E402

LOGITS = OutputSpec("logits", "logits", activation="sigmoid")
BOXES = OutputSpec("boxes", "boxes", format="cxcywh", normalized=True)


def main() -> None:
    args = parse_arguments()
    torch.set_num_threads(args.threads)
    device = torch.device(args.device)
    values = yaml.safe_load((ROOT / "conf/model/ltdetr_nano.yaml").read_text())
    given = values["options"]["kwargs"] | {"decoder": args.decoder, "classes": values["classes"]}
    size, classes = values["image_size"][0], len(values["classes"])
    torch.manual_seed(args.seed)
    model = build(**given)
    initialize(model)
    model.to(device).train()
    average = copy.deepcopy(model).eval()
    optimizer = torch.optim.AdamW(parameter_groups(model), lr=args.lr, weight_decay=1e-4)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: learning_rate_factor(step, args))
    state_file = args.state / f"{args.decoder}.pt"
    log: list[str] = []
    first_epoch = 0
    if state_file.exists():
        state = torch.load(state_file, map_location=device, weights_only=True)
        model.load_state_dict(state["model"])
        average.load_state_dict(state["average"])
        optimizer.load_state_dict(state["optimizer"])
        schedule.load_state_dict(state["schedule"])
        torch.set_rng_state(state["rng"].cpu())
        log, first_epoch = list(state["log"]), int(state["epoch"])
    truth = [scene(i, "val", size) for i in range(args.val_scenes)]
    with ThreadPoolExecutor(1) as pool:  # makes the next batch while torch works on this one
        for epoch in range(first_epoch, args.epochs):
            loss = train_one_epoch(epoch, model, average, optimizer, schedule, pool, size, device, args)
            ap = evaluate(average, truth, size, classes, device)
            log.append(f"epoch {epoch + 1:3d}  loss {loss:7.3f}  AP50 {ap['ap50']:.4f}  AP50-95 {ap['ap50_95']:.4f}")
            print(log[-1], flush=True)
            save_state(state_file, model, average, optimizer, schedule, log, epoch + 1)
    weights = args.weights
    weights.mkdir(parents=True, exist_ok=True)
    tensors = {name: tensor.detach().cpu().contiguous() for name, tensor in average.state_dict().items()}
    save_file(unshared(tensors), weights / f"{args.decoder}.safetensors")
    (weights / f"{args.decoder}.log").write_text("\n".join(log) + "\n")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decoder", choices=["dfine", "rtdetrv2"], required=True)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--epochs", type=int, default=12)
    parser.add_argument("--steps-per-epoch", type=int, default=300)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--lr", type=float, default=6e-4)
    parser.add_argument("--warmup-steps", type=int, default=300)
    parser.add_argument("--ema", type=float, default=0.998)
    parser.add_argument("--val-scenes", type=int, default=500)
    parser.add_argument("--threads", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--state", type=Path, default=HERE / "state", help="folder of the resumable state")
    parser.add_argument("--weights", type=Path, default=HERE / "weights", help="folder of the weights and the log")
    return parser.parse_args()


def initialize(model: torch.nn.Module) -> None:
    """Give convolutions and norms of encoder and decoder torch's own initial values.

    transformers sets them for fine-tuning (convolutions N(0, 0.01), BatchNorm weights near 0), which hardly trains
    from scratch. The backbone, the heads and the sampling offsets keep theirs.
    """
    for name, module in model.named_modules():
        if "backbone" in name:
            continue
        if isinstance(module, (torch.nn.Conv2d, torch.nn.BatchNorm2d)):
            module.reset_parameters()


def parameter_groups(model: torch.nn.Module) -> list[dict]:
    """Weight decay for matrices only, as DETR recipes do."""
    matrices = [p for p in model.parameters() if p.ndim > 1]
    vectors = [p for p in model.parameters() if p.ndim <= 1]
    return [{"params": matrices}, {"params": vectors, "weight_decay": 0.0}]


def learning_rate_factor(step: int, args: argparse.Namespace) -> float:
    """Linear warm-up, then cosine to 2 %."""
    if step < args.warmup_steps:
        return (step + 1) / args.warmup_steps
    done = (step - args.warmup_steps) / max(1, args.epochs * args.steps_per_epoch - args.warmup_steps)
    return 0.02 + 0.98 * 0.5 * (1 + math.cos(math.pi * min(1.0, done)))


def train_one_epoch(epoch, model, average, optimizer, schedule, pool, size, device, args) -> float:
    first_step = epoch * args.steps_per_epoch
    total = 0.0
    upcoming = pool.submit(make_batch, first_step, size, args)
    for step in range(first_step, first_step + args.steps_per_epoch):
        images, targets = upcoming.result()
        upcoming = pool.submit(make_batch, step + 1, size, args)
        images = images.to(device).float() / 255
        targets = [{key: value.to(device) for key, value in target.items()} for target in targets]
        loss = model(images, labels=targets).loss
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 0.5)
        optimizer.step()
        schedule.step()
        update_average(average, model, min(args.ema, (1 + step) / (10 + step)))
        total += float(loss.detach())
    return total / args.steps_per_epoch


def make_batch(step: int, size: int, args: argparse.Namespace) -> tuple[torch.Tensor, list[dict[str, torch.Tensor]]]:
    scenes = [scene(step * args.batch + i, "train", size, args.seed) for i in range(args.batch)]
    images = torch.from_numpy(np.stack([s.image for s in scenes])).permute(0, 3, 1, 2)
    return images, [target_of(s, size) for s in scenes]


def target_of(s: Scene, size: int) -> dict[str, torch.Tensor]:
    boxes = torch.from_numpy(s.boxes) / size
    centre_and_extent = torch.cat([(boxes[:, :2] + boxes[:, 2:]) / 2, boxes[:, 2:] - boxes[:, :2]], dim=1)
    return {"class_labels": torch.from_numpy(s.labels), "boxes": centre_and_extent}


@torch.no_grad()
def update_average(average: torch.nn.Module, model: torch.nn.Module, decay: float) -> None:
    for mean, value in zip(average.parameters(), model.parameters(), strict=True):
        mean.lerp_(value, 1 - decay)
    for mean, value in zip(average.buffers(), model.buffers(), strict=True):
        if mean.is_floating_point():
            mean.lerp_(value, 1 - decay)
        else:
            mean.copy_(value)


@torch.no_grad()
def evaluate(average, truth, size, classes, device) -> dict[str, float]:
    found: list[Detections] = []
    for start in range(0, len(truth), 50):
        images = torch.from_numpy(np.stack([s.image for s in truth[start : start + 50]])).permute(0, 3, 1, 2)
        outputs = average(images.to(device).float() / 255)
        boxes = corners(outputs.pred_boxes.cpu().numpy(), BOXES, (size, size))
        found += of_queries(outputs.logits.cpu().numpy(), boxes, LOGITS)
    labelled = [Detections(s.boxes, s.labels, np.ones(len(s.labels), np.float32)) for s in truth]
    return average_precision(found, labelled, classes)


def save_state(path: Path, model, average, optimizer, schedule, log: list[str], epoch: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_suffix(".tmp")
    state = {"model": model.state_dict(), "average": average.state_dict(), "optimizer": optimizer.state_dict()}
    state |= {"schedule": schedule.state_dict(), "rng": torch.get_rng_state(), "log": log, "epoch": epoch}
    torch.save(state, temporary)
    temporary.replace(path)


def unshared(tensors: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """Drop the second name of a tied tensor: safetensors stores each storage once, and loading ties it again."""
    seen: dict[int, str] = {}
    return {name: t for name, t in tensors.items() if seen.setdefault(t.data_ptr(), name) == name or t.numel() == 0}


if __name__ == "__main__":
    main()
