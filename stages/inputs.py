"""inputs: fingerprints of all that a run takes from outside the chain (weights, images, the user's code and that of
each stage, versions of packages, the machine), so that a change re-runs what depends on it; and the proof that no
sample has two purposes.

Each file in artifacts/inputs holds what some stages read and no more. A params.yaml older than conf/ is refused.
"""

from __future__ import annotations

from collections.abc import Mapping

from stages.frame import Report, Stage
from truehalf.config.precision import Method
from truehalf.config.schema import Config
from truehalf.config.typed import plain
from truehalf.files import write_json
from truehalf.models.sources import source
from truehalf.provenance.code import code_digests
from truehalf.provenance.composed import refuse_stale
from truehalf.provenance.fingerprints import (
    check_plugins,
    fingerprint_code,
    fingerprint_data,
    fingerprint_model,
)
from truehalf.provenance.software import tracing_device, versions
from truehalf.runtime.machine import probe


def run(stage: Stage) -> Report:
    config, root = stage.config, stage.root
    refuse_stale(root)
    check_plugins(config.engine.plugins, root)
    rule, metrics = config.precision.custom_rule, config.verify.metric_functions
    data, left_out = fingerprint_data(config, root)
    rules = {} if rule is None else {"rule": rule, **fingerprint_code("precision.custom_rule", rule, root)}
    report: dict[str, object] = {
        "model": fingerprint_model(config, source(config.model.source).files(config, root), root),
        **data,
        "machine": probe(config.engine.plugins, root),
        "software": versions(config),
        "custom_rule": rules or None,
        "metrics": {name: fingerprint_code("verify.metrics", name, root) for name in metrics},
    }
    files = report | {"retrace": _retrace(config, report)}
    for name, content in files.items():
        write_json(stage.out / f"{name}.json", content)
    for name, digest in code_digests().items():
        write_json(stage.out / "code" / f"{name}.json", digest)
    return report | {"data": {"source": config.data.source.value, "left_out": left_out}}


def _retrace(config: Config, report: Mapping[str, object]) -> dict[str, object] | None:
    """All by which fp16 opens, traces and slims the module anew under precision.method=half and autocast; else None."""
    if config.precision.method is Method.convert:
        return None
    sections = {"trace": config.trace, "slim": config.slim, "repair": config.repair}
    inputs = {"model": report["model"], "samples": report["trace"], "device": tracing_device()}
    return inputs | {name: plain(section) for name, section in sections.items()}
