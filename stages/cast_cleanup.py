"""cast_cleanup: remove every Cast that can go, from a file of ours or of any other tool (rules:
truehalf/conversion/casts.py).

python -m stages.cast_cleanup                          the stage: artifacts/fp16 -> artifacts/cast_cleanup
python -m stages.cast_cleanup in.onnx out.onnx --strict
"""

from __future__ import annotations

import argparse
import shutil
import sys
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any

from stages.frame import Stage, run_door, run_stage
from truehalf.files import MODEL_FILE
from truehalf.ir.model_file import adopt_proto, load_model, model_size_mb, read_proto, save_model, source_weights
from truehalf.output_paths import check_outputs

if TYPE_CHECKING:
    import onnx_ir as ir


def clean_casts(
    model_path: Path | str, out_path: Path | str, *, strict: bool = False, fold_max_bytes: int | None = None
) -> dict[str, Any]:
    """Remove the removable Casts of an ONNX file.

    Args:
        model_path: may be unsorted and may hold the same node twice, as ONNX Runtime's float16 converter writes it.
            Bodies of If, Loop and Scan are cleaned; functions of the model stay as they are, and their Casts do not
            count.
        out_path: ONNX file to write, another one; inputs and outputs keep name, order and type.
        strict: keep to the rules that change no value at all; otherwise f32 -> f16 -> f32 loses its rounding.
        fold_max_bytes: the Cast of a larger constant is left to the runtime; None: all are computed here. A file that
            was converted with init_conversion_max_bytes keeps its run-time Casts only when this is the same number.

    Returns:
        casts_before, casts_after (all Cast and CastLike nodes), rules (how often each was applied),
        repeated_nodes_dropped, strict, model (facts and size_mb).

    Raises:
        StageError: when a file cannot be read or written, or the graph has a cycle (named; nothing is deleted).
    """
    from truehalf.conversion.casts import clean
    from truehalf.ir.facts import model_facts

    model, repeated = _load(Path(model_path))
    check_outputs({"out_path": out_path}, {"model_path": model_path}, source_weights(model))
    report = clean(model, strict=strict, fold_max_bytes=fold_max_bytes)
    save_model(model, out_path)
    return {
        "casts_before": report.before + repeated["Cast"],
        "casts_after": report.after,
        "rules": report.rules,
        "repeated_nodes_dropped": sum(repeated.values()),
        "strict": strict,
        "model": model_facts(model) | {"size_mb": model_size_mb(out_path)},
    }


def _load(path: Path) -> tuple[ir.Model, Counter[str]]:
    """A model, and how many nodes of each type stood in its file twice and were dropped to make it a graph."""
    from truehalf.ir.normalize import drop_repeated_nodes

    proto = read_proto(path)
    repeated = drop_repeated_nodes(proto.graph)
    return adopt_proto(proto, path), repeated


def run(stage: Stage) -> dict[str, Any]:
    if stage.config.precision.dtype.value != "fp16":
        return _pass_on(stage)
    precision = stage.config.precision
    return clean_casts(
        stage.artifact("fp16"),
        stage.out() / MODEL_FILE,
        strict=precision.strict_clean_up,
        fold_max_bytes=precision.init_conversion_max_bytes,  # what fp16 left to the runtime stays there
    )


def _pass_on(stage: Stage) -> dict[str, Any]:
    from truehalf.conversion.casts import count_casts
    from truehalf.ir.facts import model_facts
    from truehalf.ir.normalize import infer_types

    source = stage.artifact("fp16")
    shutil.copytree(source.parent, stage.out(), ignore=shutil.ignore_patterns("*.json"), dirs_exist_ok=True)
    model = load_model(source)
    infer_types(model)
    return {
        "status": "skipped",
        "reason": f"precision={stage.config.precision.dtype.value}: the file is passed on as it is",
        "casts_before": count_casts(model),
        "casts_after": count_casts(model),
        "model": model_facts(model) | {"size_mb": model_size_mb(source)},
    }


def _arguments(argv: list[str]) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m stages.cast_cleanup", description="Remove the Casts of an ONNX file that can go."
    )
    parser.add_argument("model_path", metavar="in.onnx")
    parser.add_argument("out_path", metavar="out.onnx")
    parser.add_argument("--strict", action="store_true", help="only rules that change no value at all")
    parser.add_argument(
        "--fold-max-bytes", type=int, metavar="N", help="leave Casts of larger constants to the runtime"
    )
    return parser.parse_args(argv)


def main() -> None:
    if len(sys.argv) == 1:
        run_stage("cast_cleanup", run)
        return
    run_door("cast_cleanup", clean_casts, vars(_arguments(sys.argv[1:])))


if __name__ == "__main__":
    main()
