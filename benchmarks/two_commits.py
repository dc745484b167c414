"""Two commits of this project beside each other: same files out of the same files in, same verdicts.

    python -m benchmarks.two_commits BEFORE [AFTER] [--models FOLDER] [--keep FOLDER]

Every test of ONNX's backend suite that holds a float32 tensor and every ONNX file under --models is converted by both
commits, with the cheapest casts and eagerly, and cleaned, also by `truehalf.convert` as one call, whose file must be
the cleaned one, and slimmed; every planted pair of tests/corpus/pairs (of the commit that runs this) is compared by
both. What differs is printed, and the exit code is 1. Ranges are not measured: calibration is random for no file, and
the pairs compare what needs no conversion.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from truehalf.config.typed import plain
from truehalf.config.verification import VerifyConfig

ROOT = Path(__file__).resolve().parent.parent

# Runs in each commit's tree: what it calls is looked for under the names of before and after the rooms were made.
WORKER = """
import hashlib, inspect, json, sys, warnings
from pathlib import Path
import numpy as np

warnings.simplefilter("ignore")
try:
    from truehalf.config.precision import Precision
    from truehalf.conversion.casts_of_file import clean_casts
    from truehalf.api import compare, convert
    from truehalf.conversion.fp16_file import to_fp16 as converted
    from truehalf.slimming.slim import slim
    def to_fp16(source, out, **options): converted(source, out, Precision(**options))
except ImportError:
    from stages.cast_cleanup import clean_casts
    from stages.fp16 import to_fp16
    convert = slim = None
    from stages.verify import compare

data, out, found = Path(sys.argv[1]), Path(sys.argv[2]), {}
VARIANTS = {"min_cut": {}, "eager": {"placement": "eager", "keep_io_types": False}}
for file in sorted([*data.glob("backend/*.onnx"), *data.glob("models/*.onnx")]):
    for name, options in VARIANTS.items():
        key = f"{file.parent.name}/{file.stem} {name}"
        try:
            to_fp16(file, out / "a.onnx", **options)
            clean_casts(out / "a.onnx", out / "b.onnx")
            parts = [hashlib.sha256((out / each).read_bytes()).hexdigest() for each in ("a.onnx", "b.onnx")]
            found[key] = " ".join(parts)
        except Exception as error:
            found[key] = f"{type(error).__name__} {getattr(error, 'code', '')}"
        if convert is not None:
            try:
                unslimmed = {"skip": ["slim"]} if "skip" in inspect.signature(convert).parameters else {"slim": False}
                convert(file, out / "c.onnx", **unslimmed, precision=Precision(**options))
                found[f"{key} as one"] = hashlib.sha256((out / "c.onnx").read_bytes()).hexdigest()
                assert found[f"{key} as one"] == found[key].split()[-1], "as one call it is another file"
            except Exception as error:
                found[f"{key} as one"] = f"{type(error).__name__} {getattr(error, 'code', '')} {found[key]}"
    if slim is not None:
        try:
            slim(file, out / "s.onnx")
            found[f"{file.parent.name}/{file.stem} slim"] = hashlib.sha256((out / "s.onnx").read_bytes()).hexdigest()
        except Exception as error:
            found[f"{file.parent.name}/{file.stem} slim"] = f"{type(error).__name__} {getattr(error, 'code', '')}"
for folder in sorted(path for path in (data / "pairs").iterdir()):
    told = json.loads((folder / "told.json").read_text())
    inputs = dict(np.load(folder / "inputs.npz"))
    if "options" in told["options"]:
        from truehalf.config.verification import VerifyConfig
        told["options"]["options"] = VerifyConfig(**told["options"]["options"])
    try:
        report = compare(folder / "reference.onnx", folder / "candidate.onnx", inputs, spec=told["spec"],
                         **{"locate": False} | told["options"])
        found[f"pairs/{folder.name}"] = json.dumps([report.verdict, report.to_json()["outputs"]], sort_keys=True)
    except Exception as error:
        found[f"pairs/{folder.name}"] = f"{type(error).__name__} {getattr(error, 'code', '')}"
(out / "found.json").write_text(json.dumps(found))
"""


def write_data(folder: Path, models: Path | None) -> None:
    """What both commits are given."""
    from tests.corpus.pairs import every_pair
    from tests.onnx_backend import cases

    for name in ("backend", "models", "pairs"):
        (folder / name).mkdir(parents=True)
    for name, proto, _ in cases(True):
        if _holds_float32(proto):
            onnx.save(proto, folder / "backend" / f"{name}.onnx")
    for pair in every_pair():
        place = folder / "pairs" / pair.name
        place.mkdir()
        onnx.save(pair.reference, place / "reference.onnx")
        onnx.save(pair.candidate, place / "candidate.onnx")
        np.savez(place / "inputs.npz", allow_pickle=False, **pair.inputs)
        options = {
            name: _changed(each) if isinstance(each, VerifyConfig) else each for name, each in pair.options.items()
        }
        (place / "told.json").write_text(json.dumps({"spec": dict(pair.spec), "options": options}))
    for path in sorted(models.rglob("*.onnx")) if models is not None else []:
        name = "-".join(path.relative_to(models).with_suffix("").parts)  # type: ignore[arg-type]
        (folder / "models" / f"{name}.onnx").write_bytes(path.read_bytes())


def _changed(options: VerifyConfig) -> dict[str, Any]:
    """Those that are not the defaults: commits may have others beside them."""
    defaults = plain(VerifyConfig())
    return {name: value for name, value in plain(options).items() if value != defaults[name]}


def _holds_float32(proto: onnx.ModelProto) -> bool:
    values = [*proto.graph.input, *proto.graph.output, *proto.graph.value_info]
    return any(value.type.tensor_type.elem_type == onnx.TensorProto.FLOAT for value in values)


def found_by(commit: str, data: Path, folder: Path) -> dict[str, Any]:
    """What a commit makes of the data, by its own code in a tree of its own."""
    tree, out = folder / "tree", folder / "out"
    out.mkdir(parents=True)
    subprocess.run(["git", "worktree", "add", "--quiet", "--detach", str(tree), commit], cwd=ROOT, check=True)
    try:
        line = [sys.executable, "-c", WORKER, str(data), str(out)]
        subprocess.run(line, cwd=tree, env={"PYTHONPATH": str(tree), "PATH": ""}, check=True)
    finally:
        subprocess.run(["git", "worktree", "remove", "--force", str(tree)], cwd=ROOT, check=True)
    found: dict[str, Any] = json.loads((out / "found.json").read_text())
    return found


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("before")
    parser.add_argument("after", nargs="?", default="HEAD")
    parser.add_argument("--models", type=Path, help="folder of FP32 ONNX files")
    parser.add_argument("--keep", type=Path, help="write the comparison there, as JSON")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_data(folder / "data", given.models)
        before, after = (
            found_by(commit, folder / "data", folder / side)
            for side, commit in (("before", given.before), ("after", given.after))
        )
    differing = sorted(key for key in before.keys() | after.keys() if before.get(key) != after.get(key))
    kinds = {kind: sum(key.startswith(f"{kind}/") for key in after) for kind in ("backend", "models", "pairs")}
    print(f"{kinds}: {len(differing)} differ")
    for key in differing:
        print(f"  {key}: {str(before.get(key))[:100]} -> {str(after.get(key))[:100]}")
    if given.keep is not None:
        content = {"before": given.before, "after": given.after, "compared": kinds, "differing": differing}
        given.keep.write_text(json.dumps(content, indent=2) + "\n")
    return int(bool(differing))


if __name__ == "__main__":
    sys.exit(main())
