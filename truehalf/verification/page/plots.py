"""The images of a verification, drawn without a display: error distributions, node counts, boxes over samples.

One colour per meaning, from a palette that colour-blind readers can tell apart, and never colour alone: FP32 is blue
and solid, the final file orange and dashed, true boxes thin and grey. SVGs are transparent and their text is `INK`,
readable on white and on black; a page that embeds them may replace `INK` by its own colour. Equal input, equal files.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from truehalf.io_spec.outputs import class_name
from truehalf.verification.metrics.detections import Detections

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

INK = "#767676"
BLUE, ORANGE, GREY, PURPLE = "#0072b2", "#e69f00", "#999999", "#cc79a7"
_TRUTH = "#d8d8d8"
_SETTINGS = {
    "svg.fonttype": "none",
    "svg.hashsalt": "truehalf",
    "font.family": "sans-serif",
    "font.size": 10,
    "text.color": INK,
    "axes.labelcolor": INK,
    "axes.edgecolor": INK,
    "xtick.color": INK,
    "ytick.color": INK,
}


def error_distribution(values: np.ndarray, label: str, file: Path) -> None:
    """Histogram of absolute errors on a logarithmic axis, p50, p99 and the largest marked; zeros are counted.

    Args:
        values: float [n], 0 or more; may be empty.
        label: what was measured, with its unit.
        file: SVG to write.
    """
    with _drawing(5.6, 2.8) as (figure, axes):
        positive = values[values > 0]
        if len(positive):
            _histogram(axes, values, positive)
        else:
            text = f"all {len(values)} errors are exactly 0" if len(values) else "no detection was matched"
            axes.text(0.5, 0.5, text, ha="center", va="center", transform=axes.transAxes)
            axes.set(xticks=[], yticks=[])
        axes.set_xlabel(label)
        axes.set_ylabel("detections")
        _save(figure, file)


def _histogram(axes: Axes, values: np.ndarray, positive: np.ndarray) -> None:
    low, high = np.floor(np.log10(positive.min()) * 2) / 2, np.ceil(np.log10(positive.max()) * 2) / 2
    high = max(high, low + 0.5)
    axes.hist(positive, bins=np.logspace(low, high, 41).tolist(), color=ORANGE, edgecolor="none")
    axes.set_xscale("log")
    axes.locator_params(axis="y", integer=True)
    top = axes.get_ylim()[1]
    marks = [("p50", np.median(values), 1.02), ("p99", np.quantile(values, 0.99), 1.12), ("max", values.max(), 1.22)]
    marks = [mark for mark in marks if mark[1] > 0]
    leftmost = np.log10(marks[0][1])
    axes.set_xlim(10 ** min(low, leftmost - 0.4 * (high - leftmost)), 10**high)  # labels stand left of their lines
    axes.set_ylim(0, top * 1.32)
    for name, value, height in marks:
        axes.vlines(value, 0, top * height, color=INK, linewidth=1, linestyle=(0, (4, 2)))
        text = f"{name} {value:.2g}"
        place: dict[str, Any] = {
            "xytext": (-4, 0),
            "textcoords": "offset points",
            "ha": "right",
            "va": "center",
            "fontsize": 9,
        }
        axes.annotate(text, (value, top * height), **place)
    if zeros := len(values) - len(positive):
        axes.set_title(f"{zeros} of {len(values)} are exactly 0", fontsize=9, loc="left", color=INK)


def node_counts(models: Mapping[str, Mapping[str, Any]], file: Path) -> None:
    """Bars: nodes of each stage by precision, Casts apart.

    Args:
        models: stage name -> {nodes, casts, float_nodes, fp16_nodes} as `truehalf.ir.facts.model_facts` counts them.
        file: SVG to write.
    """
    with _drawing(5.6, 0.9 + 0.5 * max(len(models), 1)) as (figure, axes):
        names, facts = list(models), list(models.values())
        parts = (
            ("FP32", BLUE, "", [m["float_nodes"] - m["fp16_nodes"] for m in facts]),
            ("FP16", ORANGE, "//", [m["fp16_nodes"] for m in facts]),
            ("Cast", PURPLE, "xx", [m["casts"] for m in facts]),
            ("other", GREY, "", [m["nodes"] - m["float_nodes"] - m["casts"] for m in facts]),
        )
        start = np.zeros(len(names))
        for name, colour, hatch, counts in parts:
            axes.barh(
                names, counts, left=start, height=0.62, color=colour, hatch=hatch, edgecolor="white", lw=0, label=name
            )
            start += np.asarray(counts, float)
        for y, total in enumerate(start):
            axes.annotate(
                f"{int(total)}", (total, y), xytext=(5, 0), textcoords="offset points", va="center", fontsize=9
            )
        axes.set_xlim(0, max(start, default=1.0) * 1.12 or 1.0)
        axes.invert_yaxis()
        axes.tick_params(axis="y", length=0)
        axes.set_xlabel("nodes")
        axes.legend(ncols=4, loc="lower left", bbox_to_anchor=(0, 1), frameon=False, borderaxespad=0, fontsize=9)
        _save(figure, file)


def boxes_over_image(
    image: np.ndarray,
    truth: Detections | None,
    reference: Detections,
    candidate: Detections,
    class_names: Sequence[str],
    file: Path,
) -> None:
    """Draw true boxes (thin, grey), FP32 boxes (blue, solid) and the final file's (orange, dashed) over a sample.

    Args:
        image: float32 [3, H, W] in 0..1.
        truth: true boxes, or None.
        reference, candidate: the detections to draw, boxes xyxy in pixels.
        class_names: by label; one without a name is called by its number.
        file: PNG to write.
    """
    height, width = image.shape[1:]
    with _drawing(4.4, 4.4 * height / width) as (figure, axes):
        axes.set_position((0, 0, 1, 1))
        axes.set_axis_off()
        axes.imshow(np.clip(image.transpose(1, 2, 0), 0, 1), extent=(0, width, height, 0), interpolation="lanczos")
        for box in truth.boxes if truth else ():
            _rectangle(axes, box, _TRUTH, 1.2, "-")
        for found, colour, style, line in ((reference, BLUE, "-", 3.2), (candidate, ORANGE, (0, (4, 2)), 1.8)):
            for box, label, score in zip(found.boxes, found.labels, found.scores, strict=True):
                _rectangle(axes, box, colour, line, style, halo="white" if found is reference else "black")
                corner = box[:2] if found is reference else box[2:]
                text = f"{class_name(class_names, int(label))} {score:.2f}"
                _tag(axes, corner, text, colour, found is reference, width, height)
        axes.set(xlim=(0, width), ylim=(height, 0))
        figure.savefig(file, dpi=150, metadata={"Software": None})


def _rectangle(axes: Axes, box: np.ndarray, colour: str, line: float, style: Any, halo: str | None = None) -> None:
    from matplotlib.patches import Rectangle
    from matplotlib.patheffects import Normal, Stroke

    x0, y0, x1, y1 = (float(value) for value in box)
    effects = [Stroke(linewidth=line + 1.2, foreground=halo), Normal()] if halo else None
    patch = Rectangle((x0, y0), x1 - x0, y1 - y0, fill=False, edgecolor=colour, lw=line, ls=style, path_effects=effects)
    axes.add_patch(patch)


def _tag(axes: Axes, corner: np.ndarray, text: str, colour: str, upper: bool, width: int, height: int) -> None:
    """A label over the upper left corner of a box (FP32) or under the lower right one, inside the box at the rim."""
    x, y = min(max(float(corner[0]), 0.0), width), min(max(float(corner[1]), 0.0), height)
    room = 0.06 * height
    above = y > room if upper else y > height - room
    axes.annotate(
        text,
        (x, y),
        xytext=(0, 2 if above else -2),
        textcoords="offset points",
        ha="left" if (x < 0.85 * width if upper else x < 0.15 * width) else "right",
        va="bottom" if above else "top",
        fontsize=7.5,
        fontweight="bold",
        color="white" if colour == BLUE else "black",
        bbox={"boxstyle": "square,pad=0.18", "facecolor": colour, "edgecolor": "none", "alpha": 0.92},
    )


@contextmanager
def _drawing(width: float, height: float) -> Iterator[tuple[Figure, Axes]]:
    """A figure (inches) with one plain set of axes, made and saved under this module's settings."""
    import matplotlib as mpl
    from matplotlib.figure import Figure

    with mpl.rc_context(_SETTINGS):  # type: ignore[arg-type]
        figure = Figure(figsize=(width, height))
        axes = figure.add_subplot()
        axes.spines[["top", "right"]].set_visible(False)
        axes.patch.set_alpha(0)
        yield figure, axes


def _save(figure: Figure, file: Path) -> None:
    figure.savefig(file, format="svg", transparent=True, bbox_inches="tight", pad_inches=0.06, metadata={"Date": None})
