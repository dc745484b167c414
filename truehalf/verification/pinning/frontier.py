"""Parts of a run's model, ranked by what keeping them FP32 buys: measured on samples of calibration, so that those of
verification are not used until a step of the search is judged.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from truehalf.config.schema import Config
from truehalf.data.samples import calibration_samples
from truehalf.files import read_json
from truehalf.io_spec.columns import apart, in_parts
from truehalf.io_spec.in_file import read_spec
from truehalf.io_spec.spec import IoSpec
from truehalf.ir.model_forms import ModelFile
from truehalf.verification.metrics.tensors import total_error
from truehalf.verification.pinning.fp32_costs import fp32_costs
from truehalf.verification.pinning.meter import Meter
from truehalf.verification.pinning.ranking import Part, ranked
from truehalf.verification.pinning.reconversion import Reconversion
from truehalf.verification.pinning.switchboard import Switchboard, full_batches


def ranked_parts(
    root: Path,
    config: Config,
    *,
    samples: int,
    count: int,
    checkpoint: Path | None = None,
) -> list[Part]:
    """Parts of the model, those first that pay most to be kept FP32.

    Args:
        root: a workspace in which the stages up to fp16 have run; what its conversion keeps FP32 by a rule or a list is
            in no part.
        config: of that run.
        samples: of calibration, that errors are measured on.
        count: parts at most.
        checkpoint: see truehalf.verification.pinning.meter.Meter.

    Raises:
        StageError: when an artifact is missing, or a run fails.
    """
    spec = read_spec(root / "artifacts" / "trace" / "io_spec.json")
    slim = root / "artifacts" / "slim" / "model.onnx"
    decisions = read_json(root / "artifacts" / "fp16" / "decisions.json")
    ranges = read_json(root / "artifacts" / "calibrate" / "ranges.json")
    conversion = Reconversion.of(config.conversion, config.engine, spec, ranges)
    model = conversion.source(slim)
    board = Switchboard(model, conversion.precision, conversion.ranges)
    feeds = _feeds(config, root, spec, samples, ModelFile(slim).fixed_batch)
    parts = apart(spec)
    reference = in_parts(board.run(feeds, board.nodes), parts)
    base = [str(row["node"]) for row in decisions if row["precision"] == "fp32" and row["rule"] != "placement"]

    def error(outputs: Mapping[str, Any]) -> float:
        return total_error(parts, reference, in_parts(outputs, parts))

    meter = Meter(board, feeds, frozenset(base), error, checkpoint)
    return ranked(meter, fp32_costs(model, conversion.input_shapes), count)


def _feeds(config: Config, root: Path, spec: IoSpec, samples: int, batch: int | None) -> list[Any]:
    """Samples spread over those of calibration, in batches that the model takes."""
    given = calibration_samples(config, root, spec)
    step = max(1, len(given) // samples)
    chosen = [given[i] for i in range(0, len(given), step)][:samples]
    return full_batches(chosen, batch or len(chosen))
