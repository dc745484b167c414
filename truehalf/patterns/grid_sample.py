"""GridSample, and bilinear GridSample as gathers and arithmetic."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import onnx_ir as ir

from truehalf.float16 import KEEP_FLOAT32
from truehalf.ir.facts import constant_of, lengths_of
from truehalf.patterns.frame import Pattern, Subject
from truehalf.patterns.rewrite import Build, NotEqualError, Writer, fix_each, graph_of

_BILINEAR = {"bilinear", "linear"}  # its name until opset 19, and since
_FLOATS = {ir.DataType.FLOAT, ir.DataType.FLOAT16}
_EXACT = "it computes where an image is sampled, and float16 would move that by a part of a pixel"
_CORNERS_X, _CORNERS_Y = [0, 1, 0, 1], [0, 0, 1, 1]


class GridSample(Pattern):
    """GridSample, which TensorRT computes wrongly in DETR models

    TensorRT, FP32 too, has given wrong boxes without a word where deformable attention samples with GridSample: parity
    of the ONNX file proves nothing about the engine.

    Instead: Repair pass grid_sample_gather (in the default list), or gathers in torch; verify the engine itself.

    TensorRT, FP32 too, has given wrong boxes without a message on DETR models that sample with `GridSample`
    (NVIDIA/TensorRT#4813, #4646: D-FINE and DEIMv2 lose three quarters of their detections;
    lightly-ai/lightly-train#917). The ONNX file is right, so parity of the file proves nothing about the engine: verify
    the engine.

    Repair pass: `grid_sample_gather`, in the default list: bilinear sampling as gathers and arithmetic. In torch:
    "plugin operator" of docs/how-to/trt-friendly.md.
    """

    id, repair, op_types = "grid-sample", "grid_sample_gather", ("GridSample",)

    def fix(self, writer: Writer) -> None:
        """Replace bilinear GridSample by gathers and arithmetic, for runtimes whose GridSample is wrong or missing.

        With x of [n, c, h, w], a pixel position p = (px, py) for each grid point, computed as ONNX Runtime does,

            align_corners=0:  p = ((g + 1) * (w, h) - 1) / 2          align_corners=1:  p = (g + 1) / 2 * (w - 1, h - 1)
            padding border:   p = min(max(p, 0), (w - 1, h - 1))

            b = min(max(floor(p), 0), (w - 2, h - 2))                                    the upper left of four pixels
            y = sum over i, j in {0, 1} of  t(px - bx - i) * t(py - by - j) * x[by + j, bx + i],  t(d) = max(0, 1 - |d|)

        t is the weight of bilinear interpolation itself, so pixels outside have none: zeros padding needs no
        comparison, and b may be clamped. If p lies in the cell of b, these are its four neighbours; if p is outside the
        image by less than 1, the neighbours that exist are among the four, and the others of the four are 1 or more
        away, t = 0; farther out all are. An image of less than two pixels along an axis, or of unknown size, gets a row
        and a column of 0 first.

        y is continuous in p, and b is only a choice of pixels: with any p' for p in b, |p - p'| <= e, a pixel that is
        left out has a weight of at most e. Positions, and how far they are inside b, are float32 whatever the types of
        x and grid, and say so in their metadata (truehalf.conversion.rules.custom): at 80 pixels float16 has 1/16 of
        one between its numbers.

        The four rows of channels are gathered in one GatherND from x as [n, h * w, c]; GridSamples of one x share that
        table. A NaN in the grid gives NaN, an infinity what is far outside; neither reads outside x. Infinite pixels of
        weight 0 give NaN (0 * inf).

        Refused: nearest and cubic modes, reflection, volumes (5-D), other types than float32 and float16.
        """
        tables: dict[tuple[ir.Value, int], _Table] = {}

        def rewrite(node: ir.Node) -> None:
            x, grid = _checked(node)
            build = writer.at(node)
            key = x, id(graph_of(node))
            tables[key] = tables.get(key) or _table(build, x)
            writer.replace(node, _sampled(build, x, grid, tables[key]))

        fix_each(writer, [match.node for match in self.find(Subject(writer.model))], rewrite)


@dataclass(frozen=True)
class _Table:
    """x as rows of channels.

    Attributes:
        rows: [n, h * w, c], of the padded image.
        size: (w, h) of the image itself.
        last: (w - 2, h - 2) of the padded image: the last upper left pixel.
        stride: w of the padded image.
        corners: [4], row offsets of the four pixels from the first.
    """

    rows: ir.Value
    size: ir.Value
    last: ir.Value
    stride: ir.Value
    corners: ir.Value


def _checked(node: ir.Node) -> tuple[ir.Value, ir.Value]:
    x, grid = node.inputs
    mode, padding = node.attributes.get_string("mode", "linear"), node.attributes.get_string("padding_mode", "zeros")
    if mode not in _BILINEAR:
        raise NotEqualError(f"mode {mode}: only bilinear sampling is made of gathers; sample with mode='bilinear'")
    if padding not in ("zeros", "border"):
        raise NotEqualError(f"padding_mode {padding}: only zeros and border are made of gathers")
    if x is None or x.shape is None or grid is None or grid.shape is None:
        raise NotEqualError("the rank of its inputs is not known: expected 4, an image with channels")
    if (rank := len(x.shape)) != 4:
        raise NotEqualError(f"its input has rank {rank}: expected 4, volumes are not sampled by gathers")
    for value in (x, grid):
        if value.dtype not in _FLOATS:
            raise NotEqualError(f"{value.name!r} is {value.dtype}: expected FLOAT or FLOAT16")
    return x, grid


def _table(build: Build, x: ir.Value) -> _Table:
    dims = lengths_of(x) or []
    height, width = dims[2], dims[3]
    if height is None or width is None:
        return _table_of_unknown_size(build, x)
    pads = [int(height < 2), int(width < 2)]
    if any(pads):
        x = _padded(build, x, pads)
    rows, columns = height + pads[0], width + pads[1]
    return _Table(
        _rows(build, x, build.ints([0, 0, rows * columns], "flat")),
        build.floats([width, height], "size"),
        build.ints([columns - 2, rows - 2], "last"),
        build.ints(columns, "stride"),
        build.ints([0, 1, columns, columns + 1], "corners"),
    )


def _table_of_unknown_size(build: Build, x: ir.Value) -> _Table:
    size = build.op("Gather", build.op("Shape", x), build.ints([3, 2]), axis=0, label="size")
    padded = build.op("Add", size, build.ints(1), label="padded")
    stride = build.op("Gather", padded, build.ints([0]), axis=0, label="width")
    count = build.op("Mul", stride, build.op("Gather", padded, build.ints([1]), axis=0, label="height"), label="count")
    # Sizes of x and no zeros that copy them: beside those ONNX Runtime makes the count a -1, unknown where n or c is 0.
    flat = build.op("Concat", build.op("Shape", x, end=2), count, axis=0, label="flat")
    rows_down = build.op("Mul", stride, build.ints(_CORNERS_Y), label="rows_down")
    return _Table(
        _rows(build, _padded(build, x, [1, 1]), flat, allowzero=1),
        _exact(build.cast(size, ir.DataType.FLOAT)),
        build.op("Sub", size, build.ints(1), label="last"),
        stride,
        build.op("Add", rows_down, build.ints(_CORNERS_X), label="corners"),
    )


def _padded(build: Build, x: ir.Value, pads: list[int]) -> ir.Value:
    return build.op("Pad", x, build.ints([0, 0, 0, 0, 0, 0, *pads], "pads"))  # type: ignore[no-any-return]


def _rows(build: Build, x: ir.Value, flat: ir.Value, **attributes: Any) -> ir.Value:
    flattened = build.op("Reshape", x, flat, **attributes)
    return build.op("Transpose", flattened, perm=[0, 2, 1], label="rows")  # type: ignore[no-any-return]


def _sampled(build: Build, x: ir.Value, grid: ir.Value, table: _Table) -> ir.Value:
    """Sample x of [n, c, h, w] at a grid of [n, p, q, 2]; returns [n, c, p, q]."""
    position = _positions(build, build.cast(grid, ir.DataType.FLOAT), table)
    cell = build.cast(_exact(build.op("Floor", position)), ir.DataType.INT64, "cell")
    first = build.op("Min", build.op("Max", cell, build.ints(0)), table.last, label="first")  # whatever NaN became
    first_position = _exact(build.op("Cast", first, to=int(ir.DataType.FLOAT)))
    inside = _exact(build.op("Sub", position, first_position, label="inside"))
    column, row = build.op("Split", first, build.ints([1, 1]), axis=-1, count=2)
    first_row = build.op("Add", build.op("Mul", row, table.stride), column, label="row")
    rows = build.op("Unsqueeze", build.op("Add", first_row, table.corners, label="rows_of_four"), build.ints([-1]))
    pixels = build.op("GatherND", table.rows, rows, batch_dims=1)  # [n, p, q, 4, c]
    across, down = build.op("Split", inside, build.ints([1, 1]), axis=-1, count=2)
    weights = build.op("Mul", _tent(build, across, _CORNERS_X), _tent(build, down, _CORNERS_Y), label="weights")
    if x.dtype == ir.DataType.FLOAT16:
        weights = build.cast(weights, x.dtype)
    weights = build.op("Unsqueeze", weights, build.ints([-1]))
    products = build.op("Mul", pixels, weights, label="weighted")
    mixed = build.op("ReduceSum", products, build.ints([3]), keepdims=0)  # of an empty tensor ONNX Runtime ignores -2
    return build.op("Transpose", mixed, perm=[0, 3, 1, 2])  # type: ignore[no-any-return]


def _positions(build: Build, grid: ir.Value, table: _Table) -> ir.Value:
    """Convert the grid to pixels by the operations of ONNX Runtime in their order, so that every bit is the same."""
    node, one, half = build.node, build.floats(1.0), build.floats(0.5)
    shifted = _exact(build.op("Add", grid, one, label="shifted"))
    border = node.attributes.get_string("padding_mode", "zeros") == "border"
    aligned = bool(node.attributes.get_int("align_corners", 0))
    extent = _extent(build, table.size) if aligned or border else None
    if aligned:
        position = _exact(build.op("Mul", _exact(build.op("Mul", shifted, half)), extent, label="position"))
    else:
        scaled = _exact(build.op("Mul", shifted, table.size, label="scaled"))
        position = _exact(build.op("Mul", _exact(build.op("Sub", scaled, one)), half, label="position"))
    if border:
        inside = _exact(build.op("Max", position, build.floats(0.0)))
        position = _exact(build.op("Min", inside, extent, label="clamped"))
    return position


def _exact(value: ir.Value) -> ir.Value:
    """Declare that the node of a value stays FP32, whatever it is converted to."""
    node = value.producer()
    assert node is not None, "just made"
    node.metadata_props[KEEP_FLOAT32] = _EXACT
    return value


def _extent(build: Build, size: ir.Value) -> ir.Value:
    """Compute (w - 1, h - 1)."""
    if (known := constant_of(size)) is not None:
        return build.floats(known - 1, "extent")
    return _exact(build.op("Sub", size, build.floats(1.0), label="extent"))


def _tent(build: Build, distance: ir.Value, corners: list[int]) -> ir.Value:
    """Compute max(0, 1 - |d - corner|) for each of the four."""
    away = build.op("Abs", build.op("Sub", distance, build.floats(corners)), label="away")
    return build.op("Relu", build.op("Sub", build.floats(1.0), away))  # type: ignore[no-any-return]


PATTERNS = (GridSample(),)
