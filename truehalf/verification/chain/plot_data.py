"""Tables of the plots, as JSON that `dvc plots show` draws and compares between runs (see dvc.yaml)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np

from truehalf.files import write_json
from truehalf.report.drawings import Histogram, NodeRow
from truehalf.verification.chain.stage_results import StageResult
from truehalf.verification.metrics.histograms import ErrorHistogram, error_histogram


def write_data(folder: Path, histograms: Mapping[str, Histogram], profile: Sequence[NodeRow]) -> None:
    """Write error_histogram.json and error_along_graph.json.

    Args:
        histograms: by output, as truehalf.verification.metrics.histograms.error_histogram gives them.
        profile: in graph order {node, precision, local_error}.

    Errors are written as log10: DVC's templates have only linear axes. What has no logarithm (no error, not finite)
    has no row in the second. A table without rows is one row of Nones, as DVC draws no empty file.
    """
    decades = [(round(math.log10(edge), 2), count, name) for name, edge, count in _bins(histograms)]
    none = dict.fromkeys(histograms, 0)
    bins = [
        {"log10_error": decade} | none | {name: count for at, count, name in decades if at == decade}
        for decade in sorted({decade for decade, _, _ in decades})
    ]
    nodes = [
        {
            "position": i,
            "node": row["node"],
            "precision": row["precision"],
            "log10_error": math.log10(row["local_error"]),
        }
        for i, row in enumerate(profile)
        if row["local_error"] and math.isfinite(row["local_error"])
    ]
    empty_node = {"position": None, "node": "none", "precision": "none", "log10_error": None}
    write_json(folder / "error_histogram.json", bins or [{"log10_error": None} | none])
    write_json(folder / "error_along_graph.json", nodes or [empty_node])


def _bins(histograms: Mapping[str, Histogram]) -> Iterator[tuple[str, float, int]]:
    for name, data in histograms.items():
        for edge, count in zip(data["edges"], data["counts"], strict=False):
            yield name, edge, count


def detection_errors(final: StageResult) -> dict[str, ErrorHistogram]:
    """Histograms of what matched detections are off by (truehalf.verification.metrics.histograms.error_histogram)."""
    errors = {
        "score_error": [np.abs(m.score_error) for m in final.seen.matchings],
        "box_error_px": [m.box_error_px for m in final.seen.matchings],
    }
    joined = {name: np.concatenate([np.zeros(0), *each]) for name, each in errors.items()}
    return {name: error_histogram(np.zeros_like(each), each) for name, each in joined.items()}
