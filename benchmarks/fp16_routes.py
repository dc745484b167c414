"""The three routes to FP16 on an embedded detector: what each makes of it, held against the FP32 file.

python -m benchmarks.fp16_routes                      D-FINE, both exporters, 20 pictures
python -m benchmarks.fp16_routes --decoder rtdetrv2 --exporters torchscript --pictures 50
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from tests.measuring.converted import to_fp16
from truehalf.config.precision import Method, Precision
from truehalf.config.schema import Config, Exporter, TraceConfig
from truehalf.conversion.casts_of_file import clean_casts
from truehalf.data.samples import calibration_samples, stacked, trace_samples, verification_samples
from truehalf.errors import StageError
from truehalf.exporting.routes.half_trace import HalfTracing, trace_in_fp16
from truehalf.exporting.trace import Tracing, trace
from truehalf.models.configuration import validated
from truehalf.models.source import described, dynamic_axes_of, open_model, spec_of
from truehalf.slimming.slim import slim
from truehalf.verification.chain.compare import compare

ROOT = Path(__file__).resolve().parent.parent
OPSETS = {"torchscript": 17, "dynamo": 18}


def routes(config: Config, exporter: str, pictures: int, folder: Path) -> list[dict[str, Any]]:
    """A row for each route: seconds, counts of the final file, largest errors beside the FP32 file."""
    model = open_model(config, ROOT)
    spec = described(model)
    example = stacked(trace_samples(config, 2, ROOT, spec)[:2])
    axes = dynamic_axes_of(config, model)
    spec = spec_of(model, example, axes)
    traced = TraceConfig(Exporter(exporter), OPSETS[exporter], dynamic_axes=axes)
    tracing = Tracing(traced, axes)
    trace(model.module, example, folder / "fp32.onnx", tracing, spec=spec, prepared=model.prepared)
    reference = folder / "slim.onnx"
    slim(folder / "fp32.onnx", reference)
    seen: Any = stacked(calibration_samples(config, ROOT, spec)[:16])
    unseen: Any = stacked(verification_samples(config, ROOT, spec)[:pictures])
    rows: list[dict[str, Any]] = []
    for method in ("convert", "half", "autocast"):
        made, final, start = folder / f"{method}.onnx", folder / f"{method}_clean.onnx", time.perf_counter()
        try:
            if method == "convert":
                to_fp16(reference, made, calibration=seen)
            else:
                options = HalfTracing(Precision(method=Method(method)), traced)
                trace_in_fp16(model, example, made, options, spec=spec)
        except StageError as error:
            rows.append({"method": method, "error": str(error)})
            continue
        seconds = time.perf_counter() - start
        facts = clean_casts(made, final).model
        report = compare(reference, final, inputs=unseen)
        rows.append({"method": method, "seconds": seconds, "facts": facts, "report": report})
    return rows


def line(row: dict[str, Any]) -> str:
    if "error" in row:
        return f"{row['method']}: {row['error']}"
    facts, report = row["facts"], row["report"]
    found = report.detections
    return (
        f"{row['method']}: {row['seconds']:.0f} s, {facts['nodes']} nodes, {facts['casts']} casts, "
        f"{facts['fp16_nodes']} of {facts['float_nodes']} float nodes FP16 ({facts['fp16_fraction']:.1%}), "
        f"{facts['size_mb']:.2f} MB; {report.verdict}: {found['matched']} of {found['reference']} detections found, "
        f"{found['extra']} extra, box error p99 {found['box_error_px']['p99']:.3f} px, "
        f"score error p99 {found['score_error']['p99']:.4f}"
    )


def main() -> None:
    from hydra import compose, initialize_config_dir
    from omegaconf import OmegaConf

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--decoder", default="dfine")
    parser.add_argument("--exporters", nargs="+", default=list(OPSETS))
    parser.add_argument("--pictures", type=int, default=20)
    given = parser.parse_args()
    with initialize_config_dir(str(ROOT / "conf"), version_base="1.3"):
        values: Any = OmegaConf.to_container(compose("config", overrides=[f"decoder={given.decoder}"]), resolve=True)
    for exporter in given.exporters:
        print(f"{given.decoder}, {exporter}, opset {OPSETS[exporter]}, {given.pictures} pictures", flush=True)
        with tempfile.TemporaryDirectory() as folder:
            for row in routes(validated(values), exporter, given.pictures, Path(folder)):
                print(f"  {line(row)}", flush=True)


if __name__ == "__main__":
    main()
