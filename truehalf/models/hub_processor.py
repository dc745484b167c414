"""preprocessor_config.json, which `transformers` keeps beside a model, as the preprocessing of truehalf.

size                  height and width; a processor that keeps the aspect (shortest_edge, longest_edge, one number) or
                      cuts out the middle has no fixed size, or none that a stretched or letterboxed image has
do_rescale,           the range: 0..255, or 0..1 times what is left of the factor, which joins mean and std
rescale_factor
do_normalize,         mean and std
image_mean, image_std
do_flip_channel_order BGR
resample              the number of Pillow's filter, or its name

The file is read as it stands: of keys that it lacks, the defaults differ from one processor to the other; without
`resample`, resampling is bilinear. Keys of `model.preprocessing` and `model.image_size` go before it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from truehalf.config.schema import Config, PreprocessingConfig, Resample
from truehalf.data.preprocessing import Preprocessing
from truehalf.errors import refuse
from truehalf.json_values import is_finite_number

_PIXEL_KEYS = ("range", "mean", "std")
_RESAMPLES = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # by Pillow's numbers, which are written
_CHANGES_PIXELS = {  # of EfficientNet's: keys that do what the preprocessing here has no word for
    "rescale_offset": "subtracts 1 after it has rescaled",
    "include_top": "normalises twice",
}


def preprocessing_of_processor(content: Mapping[str, Any], config: Config, where: str) -> Preprocessing:
    """Read what a processor does, without the keys that `model.preprocessing` and `model.image_size` say.

    Args:
        content: of preprocessor_config.json; empty where there is no such file.
        where: for errors: the path of the file.

    Raises:
        StageError: listing all that the processor does not say, or does otherwise than the preprocessing here can, each
            with the key of `model` that decides it.
    """
    given = config.model.preprocessing
    problems: list[str] = []
    values: dict[str, Any] = {"channels": "BGR"} if content.get("do_flip_channel_order") else {}
    if None in config.model.image_size:
        if problem := _problem_of_size(content):
            problems.append(f"size: {problem}; set model.image_size=[height, width]")
        else:
            values["size"] = [content["size"][side] for side in ("height", "width")]
    if lacking := [f"model.preprocessing.{key}" for key in _PIXEL_KEYS if getattr(given, key) is None]:
        pixel_problems = list(_problems_of_pixels(content, given))
        problems += [f"{problem}; set {', '.join(lacking)}" for problem in pixel_problems]
        values |= {} if pixel_problems else _pixels(content, given)
    if given.resample is None and (written := content.get("resample")) is not None:
        by_number = dict(enumerate(_RESAMPLES)) if not isinstance(written, bool) else {}
        values["resample"] = by_number.get(written, str(written).lower())
        if values["resample"] not in [each.value for each in Resample]:
            problems.append(
                f"resample: expected the number of a filter of Pillow's (0 to {len(_RESAMPLES) - 1}) or its name "
                f"({', '.join(_RESAMPLES)}), got {written!r}; set model.preprocessing.resample"
            )
    refuse("needs-value", f"model.preprocessing: {where} is missing, or does not say all", problems)
    return Preprocessing(**values)


def _problem_of_size(content: Mapping[str, Any]) -> str:
    """Say why the processor has no size that a stretched or letterboxed image can have; empty where it has one."""
    size = content.get("size")
    sides = [size.get(key) for key in ("height", "width")] if isinstance(size, Mapping) else []
    if not sides or not all(isinstance(side, int) and side > 0 for side in sides):
        return f"{_shown(size)} is no height and width, and a traced model has one size"
    pads = content.get("do_pad") and content.get("pad_size")
    does = [key for key in ("do_center_crop", "do_crop_margin") if content.get(key)]
    does += ["do_resize: false"] * (not content.get("do_resize", True))
    does += ["do_pad"] * bool(pads and pads != {"height": sides[0], "width": sides[1]})
    given = ", ".join(f"{key} {_shown(content[key])}" for key in ("size", "crop_size", "pad_size") if key in content)
    return f"the processor has {', '.join(does)} ({given}); here the whole image is resized" if does else ""


def _problems_of_pixels(content: Mapping[str, Any], given: PreprocessingConfig) -> Iterator[str]:
    for key, does in _CHANGES_PIXELS.items():
        if content.get(key):
            yield f"{key}: the processor {does}, which is not done here"
    factor = content.get("rescale_factor", 1 / 255)
    if content.get("do_rescale", True) and not (is_finite_number(factor) and factor > 0):
        yield f"rescale_factor: expected a number above 0, got {factor!r}"
    wanted = [key for key in ("mean", "std") if getattr(given, key) is None]
    if wanted and not isinstance(content.get("do_normalize"), bool):
        yield f"do_normalize: expected true or false, got {content.get('do_normalize')!r}"
    for key in wanted if content.get("do_normalize") is True else ():
        found: Any = content.get(f"image_{key}")
        numbers = isinstance(found, list) and len(found) == 3 and all(map(is_finite_number, found))
        if not numbers or (key == "std" and not all(found)):
            yield f"image_{key}: expected three numbers, of std none 0, got {found!r}"


def _pixels(content: Mapping[str, Any], given: PreprocessingConfig) -> dict[str, Any]:
    """Find range, mean and std such that (pixel - mean) / std is what the processor makes of a pixel."""
    normalizes = content.get("do_normalize", False)
    mean = given.mean or (content["image_mean"] if normalizes else [0.0] * 3)
    std = given.std or (content["image_std"] if normalizes else [1.0] * 3)
    if not content.get("do_rescale", True):
        return {"range": (0, 255), "mean": tuple(mean), "std": tuple(std)}
    left = content.get("rescale_factor", 1 / 255) * 255
    left = 1 if abs(left - 1) < 1e-6 else left  # 0.00392156862745098 is written for 1 / 255
    return {"range": (0, 1), "mean": tuple(value / left for value in mean), "std": tuple(value / left for value in std)}


def _shown(value: Any) -> str:
    return ", ".join(f"{key} {side}" for key, side in value.items()) if isinstance(value, Mapping) else repr(value)
