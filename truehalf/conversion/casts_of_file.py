"""Cast clean-up of a model and of a file, of ours or of any other tool (rules: truehalf.conversion.casts)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from truehalf.ir.model_file import adopt_proto, model_size_mb, read_proto, save_model, source_weights
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
    from truehalf.ir.normalize import drop_repeated_nodes

    proto = read_proto(model_path)
    repeated = drop_repeated_nodes(proto.graph)
    model = adopt_proto(proto, model_path)
    check_outputs({"out_path": out_path}, {"model_path": model_path}, source_weights(model))
    report = clean_model(model, strict=strict, fold_max_bytes=fold_max_bytes)
    report["casts_before"] += repeated["Cast"]
    report["repeated_nodes_dropped"] = sum(repeated.values())
    save_model(model, out_path)
    report["model"]["size_mb"] = model_size_mb(out_path)
    return report


def clean_model(model: ir.Model, *, strict: bool = False, fold_max_bytes: int | None = None) -> dict[str, Any]:
    """As `clean_casts`, of a model in memory, in place."""
    from truehalf.conversion.casts import clean
    from truehalf.ir.facts import model_facts

    report = clean(model, strict=strict, fold_max_bytes=fold_max_bytes)
    return {
        "casts_before": report.before,
        "casts_after": report.after,
        "rules": report.rules,
        "repeated_nodes_dropped": 0,
        "strict": strict,
        "model": model_facts(model),
    }
