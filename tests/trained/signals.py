"""Models of speech, music, EEG, files, molecules and tables."""

from __future__ import annotations

import functools
from collections.abc import Callable
from pathlib import Path

import numpy as np

from tests.trained import judges, molecules, pictures, reading, sounds
from tests.trained.model import Arrays, Opened, Sample, Trained, first

CHUNK, CONTEXT = 512, 64


def framed(wave: np.ndarray) -> np.ndarray:
    """(chunks, 576): each chunk of 32 ms with the last 64 samples of the one before."""
    chunks = wave[: wave.size // CHUNK * CHUNK].reshape(-1, CHUNK)
    before = np.concatenate([np.zeros((1, CONTEXT), np.float32), chunks[:-1, -CONTEXT:]])
    return np.concatenate([before, chunks], 1)


def streamed(rate: bool) -> Callable[[Opened], list[Sample]]:
    """Single chunks of spoken sentences, each with the state that the FP32 model has reached there."""

    def draw(opened: Opened) -> list[Sample]:
        samples = []
        for i in range(4):
            state = np.zeros((2, 1, 128), np.float32)
            for k, chunk in enumerate(framed(sounds.speech(i))):
                feeds = {"input": chunk[None], "state": state} | ({"sr": np.array(16000, np.int64)} if rate else {})
                if k % 14 == 5:
                    samples.append(Sample(feeds))
                state = opened.run(feeds)["stateN"]
        rng = np.random.default_rng(1)
        return [samples[i] for i in rng.permutation(len(samples))[:32]]

    return draw


def whole_speech(opened: Opened) -> list[Sample]:
    zero = np.zeros((1, 1, 128), np.float32)
    return [Sample({"input": framed(sounds.speech(i)), "h": zero, "c": zero}) for i in range(16)]


def music(opened: Opened) -> list[Sample]:
    name = "serving_default_input_2:0"
    return [Sample({name: sounds.chords(rng, 43844, 22050)[None, :, None]}) for rng in pictures.generators(20, 11)]


def seizure_samples(opened: Opened) -> list[Sample]:
    events = ("seizure", "none", "seizure", "spindles")
    return [
        Sample({"x": sounds.spectrogram(sounds.brain(rng, 120, 250, events[i % 4]), 250)}, events[i % 4])
        for i, rng in enumerate(pictures.generators(16, 21))
    ]


def spindle_samples(opened: Opened) -> list[Sample]:
    samples = []
    for rng in pictures.generators(16, 31):
        wave = sounds.brain(rng, 30, 250, "spindles")
        wave -= wave.mean()
        wavelets = sounds.standardized(sounds.scalogram(wave))
        samples.append(Sample({"raw_signal": sounds.standardized(wave)[None, None], "spectrogram": wavelets[None]}))
    return samples


def real_files(opened: Opened) -> list[Sample]:
    """Files of the Python installation, of many types: both ends of each, without white space around, padded by 256."""
    import json

    import matplotlib
    import numpy
    import skimage
    import sklearn

    folders = [Path(each.__file__).parent for each in (json, matplotlib, numpy, skimage, sklearn)]
    kinds = [
        "py",
        "json",
        "png",
        "jpg",
        "npz",
        "npy",
        "ttf",
        "so",
        "c",
        "h",
        "csv",
        "gz",
        "txt",
        "tif",
        "gif",
        "svg",
        "html",
        "css",
        "js",
        "xml",
        "rst",
        "pyi",
        "pyx",
        "mplstyle",
        "afm",
    ]
    found = []
    for kind in kinds:
        paths = [path for folder in folders for path in sorted(folder.rglob(f"*.{kind}")) if path.stat().st_size > 200]
        found += [(path, kind) for path in paths[:2]]
    samples = []
    for path, kind in found[:32]:
        content = path.read_bytes()
        begin, end = content[:4096].lstrip()[:1024], content[-4096:].rstrip()[-1024:]
        row = [*begin, *[256] * (1024 - len(begin)), *[256] * (1024 - len(end)), *end]
        samples.append(Sample({"bytes": np.array([row], np.int32)}, kind))
    rng = np.random.default_rng(3)
    return [samples[i] for i in rng.permutation(len(samples))]


def reaction_samples(opened: Opened) -> list[Sample]:
    made = [molecules.encoded(reaction) for reaction in molecules.REACTIONS]
    return [Sample(feeds, about=about) for feeds, about in made]


def surrogate_samples(*upper: int) -> Callable[[Opened], list[Sample]]:
    """Random settings of a scikit-learn model, whose score the network predicts."""

    def draw(opened: Opened) -> list[Sample]:
        rows = [[float(rng.integers(top + 1)) for top in upper] for rng in pictures.generators(32, 41)]
        return [Sample({"input": np.array([row], np.float32)}) for row in rows]

    return draw


def mapped(outputs: Arrays, sample: Sample, opened: Opened) -> list[int]:
    return reading.atom_mapping(outputs["attention"].copy(), sample.about)


def seizure_classes(outputs: Arrays, sample: Sample, opened: Opened) -> np.ndarray:
    return outputs["probs"][:, 0]


def models() -> dict[str, Trained]:
    found: dict[str, Trained] = {}
    found["basic-pitch"] = Trained(
        "basic-pitch",
        "basic_pitch/saved_models/icassp_2022/nmp.onnx",
        "notes of music",
        music,
        lambda outputs, sample, opened: reading.notes(outputs["StatefulPartitionedCall:1"][0]),
        functools.partial(judges.spans, slack=2),
    )
    for key, file in (("a", "modelA_paper"), ("b", "modelB_full")):
        found[f"seizure-{key}"] = Trained(
            "brainmaze-eeg-models",
            f"brainmaze_eeg_models/seizure/_models/{file}.onnx",
            "class of each half second of EEG",
            seizure_samples,
            seizure_classes,
            judges.classes,
        )
    for key in ("eeg", "ieeg"):
        found[f"spindles-{key}"] = Trained(
            "brainmaze-eeg-models",
            f"brainmaze_eeg_models/spindles/_models/spindle-detector-{key}.onnx",
            "sleep spindles",
            spindle_samples,
            lambda outputs, sample, opened: reading.spindles(outputs["detection"][0]),
            functools.partial(judges.spans, slack=0.05),
        )
    found["rxnmap"] = Trained(
        "chython-rxnmap", "chython_rxnmap/rxnmap.onnx", "atoms of a reaction", reaction_samples, mapped, judges.texts
    )
    found["magika"] = Trained(
        "magika",
        "magika/models/standard_v3_3/model.onnx",
        "types of files",
        real_files,
        first,
        judges.classes,
        shifted=("target_label", (..., slice(0, 1))),
    )
    for file in (
        "silero_vad",
        "silero_vad_16k_op15",
        "silero_vad_half",
        "silero_vad_op18_ifless",
        "silero_vad_openvino_16k",
    ):
        without_rate = file in ("silero_vad_half", "silero_vad_openvino_16k")
        found[file.replace("_", "-")] = Trained(
            "silero-vad",
            f"silero_vad/data/{file}.onnx",
            "speech or not, by 32 ms",
            streamed(not without_rate),
            lambda outputs, sample, opened: outputs["output"],
            judges.decisions,
        )
    found["silero-vad-sequence"] = Trained(
        "silero-vad",
        "silero_vad/data/silero_vad_16k_sequence.onnx",
        "spans of speech",
        whole_speech,
        lambda outputs, sample, opened: reading.speech_spans(outputs["speech_probs"]),
        functools.partial(judges.spans, slack=0.033),
        shifted=("speech_probs", ()),
    )
    for name, spread, *upper in (
        ("gradient_boosting_regressor", 0.652, 10, 0, 20, 200),
        ("k_neighbors_classifier", 0.581, 30, 3, 10, 2),
    ):
        found[name.replace("_", "-")] = Trained(
            "surfaces-onnx-files",
            f"surfaces_onnx_files/{name}.onnx",
            "score of a model's settings",
            surrogate_samples(*map(int, upper)),
            first,
            functools.partial(judges.values, spread=float(spread)),
        )
    return found
