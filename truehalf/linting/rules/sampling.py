"""Sampling of images and feature maps: GridSample, Resize, Upsample."""

from __future__ import annotations

from collections.abc import Iterator

import onnx_ir as ir

from truehalf.linting.base import REFUSED, Check, LocatedFinding, Rule, Subject
from truehalf.linting.values import Origin


class GridSample(Rule):
    """GridSample, which TensorRT computes wrongly in DETR models

    TensorRT, FP32 too, has given wrong boxes without a message on DETR models that sample with `GridSample`
    (NVIDIA/TensorRT#4813, #4646: D-FINE and DEIMv2 lose three quarters of their detections;
    lightly-ai/lightly-train#917). The ONNX file is right, so parity of the file proves nothing about the engine: verify
    the engine.

    Repair pass: `grid_sample_gather`, in the default list: bilinear sampling as gathers and arithmetic. In torch:
    "plugin operator" of docs/how-to/trt-friendly.md.
    """

    id = "grid-sample"
    source = "NVIDIA/TensorRT#4813, #4646; lightly-ai/lightly-train#917"


class ResizeMode(Rule):
    """a way of resizing that TensorRT refuses

    What TensorRT's `Resize` refuses: `tf_crop_and_resize` and other coordinate transformations than half_pixel,
    pytorch_half_pixel, asymmetric, align_corners and tf_half_pixel_for_nn (this one with round_prefer_floor only);
    antialiasing; an aspect ratio policy; scales for some axes only; sizes that are computed on the device.

    ```python
    y = interpolate(x, size, mode="bilinear", antialias=True)  # instead: antialias=False, or before the engine
    ```
    """

    id, severity = "resize-mode", "error"
    source = "TensorRT's operator matrix (Resize) and the static checks of its ONNX parser"
    compiled = REFUSED


_UPSAMPLE_MODES = {"bilinear", "linear", "nearest"}
_CHOICES = (  # attributes of Resize: default, what TensorRT takes, why another is refused, what to write instead
    ("mode", "nearest", {"cubic", "linear", "nearest"}, "TensorRT has no Resize mode", "Use linear or nearest."),
    (
        "coordinate_transformation_mode",
        "half_pixel",
        {"align_corners", "asymmetric", "half_pixel", "pytorch_half_pixel", "tf_half_pixel_for_nn"},
        "TensorRT has no coordinate transformation",
        "Use half_pixel or align_corners; crop with a slice.",
    ),
    (
        "nearest_mode",
        "round_prefer_floor",
        {"ceil", "floor", "round_prefer_ceil", "round_prefer_floor"},
        "TensorRT has no nearest mode",
        "Use floor.",
    ),
    (
        "keep_aspect_ratio_policy",
        "stretch",
        {"stretch"},
        "TensorRT has no aspect ratio policy",
        "Compute the size, and stretch to it.",
    ),
)


def grid_samples(subject: Subject) -> Iterator[LocatedFinding]:
    for node in subject.of_type("GridSample"):
        yield GridSample.at(
            node,
            "TensorRT, FP32 too, has given wrong boxes without a word where deformable attention samples with "
            "GridSample: parity of the ONNX file proves nothing about the engine.",
            "Repair pass grid_sample_gather (in the default list), or gathers in torch; verify the engine itself.",
        )


def resizes(subject: Subject) -> Iterator[LocatedFinding]:
    for node in subject.of_type("Resize", "Upsample"):
        for reason, remedy in _refusals(node):
            yield ResizeMode.at(node, reason, remedy)
        if any(subject.values.origin(value) is Origin.DATA for value in node.inputs[1:]):
            yield ResizeMode.at(
                node,
                "Its scales or sizes are computed on the device; TensorRT wants them on the host.",
                "Resize to a number, or to the size of a tensor.",
            )


def _refusals(node: ir.Node) -> Iterator[tuple[str, str]]:
    mode = node.attributes.get_string("mode", "nearest")
    if node.op_type == "Upsample":
        if mode not in _UPSAMPLE_MODES:
            yield f"TensorRT has no Upsample mode {mode!r}.", "Use linear or nearest."
        return
    given = {name: node.attributes.get_string(name, default) for name, default, *_ in _CHOICES}
    for name, _, allowed, why, remedy in _CHOICES:
        if given[name] not in allowed and (name != "nearest_mode" or mode == "nearest"):
            yield f"{why} {given[name]!r}.", remedy
    nearest = given["nearest_mode"]
    if given["coordinate_transformation_mode"] == "tf_half_pixel_for_nn" and nearest != "round_prefer_floor":
        yield (
            f"TensorRT has tf_half_pixel_for_nn with round_prefer_floor only, not with {nearest!r}.",
            "Use half_pixel, or round_prefer_floor.",
        )
    if node.attributes.get_int("antialias", 0):
        yield "TensorRT resizes without antialiasing.", "antialias=False, or resize before the engine."
    axes = node.attributes.get_ints("axes")
    scales = node.inputs[2] if len(node.inputs) > 2 else None
    dims = node.inputs[0].shape if node.inputs[0] is not None else None
    if axes is not None and scales is not None and scales.name and dims is not None:
        wanted = list(range(len(dims)))
        if [axis % len(dims) for axis in axes] != wanted:
            yield "TensorRT wants scales for all axes, in order.", "Leave axes out, and give 1 for those that stay."


RULES: tuple[type[Rule], ...] = (GridSample, ResizeMode)
CHECKS: tuple[Check, ...] = (grid_samples, resizes)
