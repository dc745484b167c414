"""inputs: fingerprints of what a run takes from outside the chain (weights, images, the user's code and that of
each stage, versions of packages), so that a change re-runs what depends on it; and the proof that no sample has two
purposes.
"""

from __future__ import annotations

from stages.frame import Stage, stage_main
from truehalf.files import write_json
from truehalf.models.sources import source
from truehalf.provenance.code import code_digests
from truehalf.provenance.fingerprints import check_plugins, fingerprint_code, fingerprint_data, fingerprint_files
from truehalf.provenance.software import tracing_device, versions


def run(stage: Stage) -> dict[str, object]:
    config, root, out = stage.config, stage.root, stage.out()
    check_plugins(config.engine.plugins, root)
    rule, files = config.precision.custom_rule, source(config.model.source).files(config, root)
    data, left_out = fingerprint_data(config, root)
    used = {
        "custom_rule": None if rule is None else {"rule": rule} | fingerprint_code("precision.custom_rule", rule, root),
        "metrics": {name: fingerprint_code("verify.metrics", name, root) for name in config.verify.metric_functions},
        "weights": fingerprint_files(files, root),
        "software": versions(config),
        "tracing_device": tracing_device(config),
        **data,
    }
    code = code_digests()
    for name, content in (used | {f"code/{stage}": content for stage, content in code.items()}).items():
        write_json(out / f"{name}.json", content)  # a file each, so that a stage depends on what it reads and no more
    return used | {"data": {"source": config.data.source.value, "left_out": left_out}}


if __name__ == "__main__":
    stage_main("inputs", run)
