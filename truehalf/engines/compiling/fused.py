"""Attentions that the compiler fuses, and those that it fuses where the graph is wholly FP16, which a gate asks for.

That graph is made of the file itself: what is FP32 in it becomes FP16, but for what has no FP16 kernel. What the
compiler makes of it is kept by its digest beside the timing caches, as many files of a sweep have the same graph.
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import cast

import onnx_ir as ir

from truehalf.config.precision import Precision
from truehalf.engines.engine_report import EnginePlan
from truehalf.files import read_json, write_json
from truehalf.ir.model_file import PRECISION_KEY, UNFUSED_KEY, load_model, save_model
from truehalf.ir.model_forms import ModelFile
from truehalf.ir.patterns import Neighbours
from truehalf.runtime.tensorrt.apart import build_apart
from truehalf.runtime.tensorrt.versions import RTX, BuildPlan, Layer, tensorrt_version

_ATTENTION = re.compile(r"mha|flash|fmha", re.IGNORECASE)  # in the names of fused attention kernels
_WHOLLY_FP16 = Precision(rules="autocast", data_max=None, init_max=None, init_overflow="clamp", placement="eager")


def attentions(model: ir.Model, layers: Sequence[Layer]) -> tuple[list[str], list[str]]:
    """Names of the Softmax of each attention of a graph: those in fused kernels, and the others."""
    inside = {name for layer in layers if _ATTENTION.search(layer["name"]) for name in layer["onnx_nodes"]}
    names = [str(each.softmax.name) for each in Neighbours(model).attentions()]
    return [name for name in names if name in inside], [name for name in names if name not in inside]


def fused_in_fp16(plan: EnginePlan, model_path: Path) -> list[str]:
    """Names of the Softmax of each attention that is fused where a plan's model is wholly FP16.

    Args:
        plan: its builder options are those of the machine that compiles, but for the timing cache, whose folder keeps
            what was found.

    Raises:
        BuildError: when the compiler refuses an option or the graph.
        StageError: when the model cannot be converted or written.
        RuntimeError: when the library ends otherwise.
    """
    from truehalf.conversion.casts import CleanCasts
    from truehalf.conversion.convert import convert_model

    model = load_model(model_path)
    for key in (PRECISION_KEY, UNFUSED_KEY):
        model.metadata_props.pop(key, None)
    model = convert_model(model, _WHOLLY_FP16).model
    CleanCasts()(model)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "fp16.onnx"
        save_model(model, path)
        file = ModelFile(path)
        kept = _kept(plan, file.digest)
        if kept is not None and kept.is_file():
            return list(read_json(kept))
        changes = {"onnx": str(path), "onnx_data": file.external, "onnx_sha256": file.digest, "engine": "fp16.engine"}
        builder = plan["builder"] | {"timing_cache": None}
        facts = build_apart(cast("BuildPlan", plan | changes | {"builder": builder}), folder, module=RTX)
    fused, _ = attentions(model, facts["layer_table"])
    if kept is not None:
        kept.parent.mkdir(parents=True, exist_ok=True)
        write_json(kept, fused)
    return fused


def _kept(plan: EnginePlan, digest: str) -> Path | None:
    """Where the answer is kept: the compiler, its targets and the shapes are in the name."""
    import hashlib

    cache = plan["builder"]["timing_cache"]
    said = repr((digest, tensorrt_version(RTX), plan["profiles"], plan.get("target")))
    return Path(cache) / f"fused-attention-{hashlib.sha256(said.encode()).hexdigest()[:16]}.json" if cache else None
