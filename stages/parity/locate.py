"""Where a failed file goes wrong: the first tensor that leaves the finite numbers."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import Any

from conf.schema import FP16_MAX
from stages.data.samples import stacked
from stages.onnx_files import load_model
from stages.ort.first_nonfinite import Nonfinite, first_nonfinite
from stages.parity.hops import FP32_CPU, Hop, fixed_batch, sample_facts
from stages.parity.reference import Reference
from stages.parity.worst import worst_samples


def locate(path: Path, fp32_path: Path, reference: Reference, final: Hop) -> dict[str, Any] | None:
    """Where a failed FP16 file first leaves the finite numbers: {sample, sentence, nonfinite: the first of them}.

    One emulated run on the worst sample (a file with a fixed batch gets it as often as it asks for); the sentence
    speaks of that sample alone. None for a file without FP16.
    """
    if final.facts["evaluation"] == FP32_CPU:
        return None
    rows = sample_facts(reference, final)
    sample = reference.samples[worst_samples(rows, 1)[0]]
    copies = fixed_batch(load_model(path), path) or fixed_batch(load_model(fp32_path), fp32_path) or 1
    found = first_nonfinite(path, stacked([sample] * copies), reference=fp32_path)
    found = [item for item in found if item.reference_finite is not False]  # masks are not finite in FP32 either
    found.sort(key=lambda item: not item.reaches_output)
    if not found:
        sentence = (
            f"on sample {sample.name}, the worst, FP16 makes no NaN and no Inf: what is wrong there comes of rounding "
            f"or of the graph; the other samples ({len(rows) - 1}) were not looked at"
        )
    else:
        times = f" (repeated {copies} times: the batch is fixed)" if copies > 1 else ""
        sentence = _first_nonfinite_sentence(found[0], sample.name + times)
    return {"sample": sample.name, "sentence": sentence, "nonfinite": [asdict(item) for item in found[:5]]}


def _first_nonfinite_sentence(first: Nonfinite, sample: str) -> str:
    what = f"node {first.node!r} ({first.op_type})" if first.node else first.op_type.lower()
    bad = f"{first.nan} NaN and {first.posinf + first.neginf} Inf"
    sentence = f"the first non-finite values on sample {sample} are those of {what}, tensor {first.tensor!r}: {bad}"
    if first.unrounded_absmax is not None and first.unrounded_absmax > FP16_MAX:
        return f"{sentence}; |x| is {first.unrounded_absmax:.3g} there, above FP16's largest, {FP16_MAX:g}"
    if first.inputs_absmax is not None:
        sentence += f"; the largest |x| it reads is {first.inputs_absmax:.3g}"
    return sentence
