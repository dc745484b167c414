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
`resample`, resampling is bilinear. What `model.preprocessing` and `model.image_size` say goes before it, and is not
looked for in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from typing import Any

from truehalf.config.schema import Config, PreprocessingConfig, Resample
from truehalf.data.preprocessing import Preprocessing
from truehalf.errors import refuse
from truehalf.json_values import is_finite_number

_PIXEL_KEYS = ("range", "mean", "std")
_RESAMPLES = ("nearest", "lanczos", "bilinear", "bicubic", "box", "hamming")  # by Pillow's numbers, which are written
_CHANGES_PIXELS = {  # keys that do what the preprocessing here has no word for
    "rescale_offset": "subtracts 1 after it has rescaled",
    "include_top": "normalises twice",
    "do_grayscale": "makes images grey",
    "do_convert_grayscale": "makes images grey",
    "do_thumbnail": "shrinks images before it resizes them",
    "do_align_long_axis": "turns images",
}


def preprocessing_of_processor(content: Mapping[str, Any] | None, config: Config, where: str) -> Preprocessing:
    """What a processor does, without the keys that `model.preprocessing` and `model.image_size` say.

    Args:
        content: of preprocessor_config.json; None: there is no such file.
        where: for errors: the path of the file.

    Raises:
        StageError: listing all that the processor does not say, or does otherwise than the preprocessing here can, each
            with the key of `model` that decides it.
    """
    given = config.model.preprocessing
    problems: list[str] = []
    values: dict[str, Any] = {}
    if None in config.model.image_size:
        problem = _problem_of_size(content)
        if problem is None and content is not None:
            values["size"] = [content["size"]["height"], content["size"]["width"]]
        else:
            problems.append(f"{problem}; set model.image_size=[height, width]")
    if any(getattr(given, key) is None for key in _PIXEL_KEYS):
        pixel_problems = list(_problems_of_pixels(content, given))
        values |= {} if pixel_problems or content is None else _pixels(content, given)
        problems += pixel_problems
    if given.resample is None and content is not None and content.get("resample") is not None:
        resample = _resample_of(content["resample"])
        values |= {} if resample is None else {"resample": resample}
        if resample is None:
            problems.append(
                f"resample: expected the number of a filter of Pillow's (0 to {len(_RESAMPLES) - 1}) or its name "
                f"({', '.join(_RESAMPLES)}), got {content['resample']!r}; set model.preprocessing.resample"
            )
    if content is not None and content.get("do_flip_channel_order"):
        values["channels"] = "BGR"
    refuse("needs-value", f"model.preprocessing: {where} does not say all", problems)
    return Preprocessing(**values)


def _problem_of_size(content: Mapping[str, Any] | None) -> str | None:
    if content is None:
        return "size: there is no such file"
    size, pads = content.get("size"), content.get("pad_size") if content.get("do_pad") else None
    if not (isinstance(size, Mapping) and _is_side(size.get("height")) and _is_side(size.get("width"))):
        return f"size: {_shown(size)} is no height and width, and a traced model has one size"
    does = [key for key in ("do_center_crop", "do_crop_margin") if content.get(key)]
    does += ["do_resize: false"] * (not content.get("do_resize", True))
    does += ["do_pad"] * (pads is not None and pads != {key: size[key] for key in ("height", "width")})
    if does:
        given = ", ".join(
            f"{key} {_shown(content[key])}" for key in ("size", "crop_size", "pad_size") if key in content
        )
        return f"size: the processor has {', '.join(does)} ({given}); here the whole image is stretched or letterboxed"
    return None


def _problems_of_pixels(content: Mapping[str, Any] | None, given: PreprocessingConfig) -> Iterator[str]:
    """What is not known of range, mean and std beside the keys that are given."""
    lacking = [f"model.preprocessing.{key}" for key in _PIXEL_KEYS if getattr(given, key) is None]
    remedy = f"set {', '.join(lacking)}"
    if content is None:
        yield f"{', '.join(_PIXEL_KEYS)}: there is no such file; {remedy}"
        return
    for key, does in _CHANGES_PIXELS.items():
        if content.get(key):
            yield f"{key}: the processor {does}, which is not done here; {remedy}"
    factor = content.get("rescale_factor", 1 / 255)
    if content.get("do_rescale", True) and not (is_finite_number(factor) and factor > 0):
        yield f"rescale_factor: expected a number above 0, got {factor!r}; {remedy}"
    if given.mean is not None and given.std is not None:
        return
    if not isinstance(content.get("do_normalize"), bool):
        yield f"do_normalize: expected true or false, got {content.get('do_normalize')!r}; {remedy}"
    elif content["do_normalize"]:
        for key, given_value in (("image_mean", given.mean), ("image_std", given.std)):
            found: Any = content.get(key)
            fits = isinstance(found, list) and len(found) == 3 and all(map(is_finite_number, found))
            if given_value is None and not (fits and (key == "image_mean" or all(found))):
                yield f"{key}: expected three numbers, of std none 0, got {found!r}; {remedy}"


def _pixels(content: Mapping[str, Any], given: PreprocessingConfig) -> dict[str, Any]:
    """Range, mean and std such that (pixel - mean) / std is what the processor makes of a pixel."""
    normalizes = content.get("do_normalize", False)
    mean = given.mean or (content["image_mean"] if normalizes else [0.0] * 3)
    std = given.std or (content["image_std"] if normalizes else [1.0] * 3)
    if not content.get("do_rescale", True):
        return {"range": (0, 255), "mean": tuple(mean), "std": tuple(std)}
    left = content.get("rescale_factor", 1 / 255) * 255
    if math.isclose(left, 1, rel_tol=1e-6):
        return {"range": (0, 1), "mean": tuple(mean), "std": tuple(std)}
    return {"range": (0, 1), "mean": tuple(v / left for v in mean), "std": tuple(v / left for v in std)}


def _resample_of(value: Any) -> str | None:
    """The filter's name, of its number or of its name in any case; None of what is neither."""
    if isinstance(value, int) and not isinstance(value, bool) and 0 <= value < len(_RESAMPLES):
        return _RESAMPLES[value]
    return str(value).lower() if str(value).lower() in [each.value for each in Resample] else None


def _is_side(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


def _shown(value: Any) -> str:
    return ", ".join(f"{key} {side}" for key, side in value.items()) if isinstance(value, Mapping) else repr(value)
