"""Networks of transformers, from the files of a model: configuration, architecture, weights."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from truehalf.config.schema import Config
from truehalf.errors import StageError, failing, first_line, some_of
from truehalf.models.hub.files import CONFIGURATION, read_mapping
from truehalf.models.model import Task

if TYPE_CHECKING:
    import torch

_KERNELS = ("eager", "sdpa")  # attention that torch itself computes
_NEEDS = re.compile(r"requires the (.+?) library|No module named '([\w.]+)'|`pip install ([\w.-]+)`")


def configuration(folder: Path, task: Task) -> Any:
    """The model's configuration, of a type that `transformers` has for this task."""
    import transformers

    path = folder / CONFIGURATION
    content = read_mapping(path)
    kind = content.get("model_type")
    if kernels := sorted(set(_foreign_kernels(content))):
        raise StageError(
            "code-refused",
            f"model.options.id: {path}: attn_implementation {', '.join(map(repr, kernels))} is downloaded code, "
            f"which is never run; expected {' or '.join(_KERNELS)}: take the key out of the file. The export has the "
            "same operations whichever computes them",
        )
    if kind not in transformers.CONFIG_MAPPING:
        raise StageError(
            "not-supported",
            f"model.options.id: {path}: transformers {transformers.__version__} has no model_type {kind!r}; code that "
            "lies beside a model is never run: load it in your function (model=torch)",
        )
    shape = _explained(path, lambda: transformers.AutoConfig.from_pretrained(folder, local_files_only=True))
    if type(shape) not in _types(task):
        others = [other.value for other in Task if type(shape) in _types(other)]
        remedy = f"model.options.task={others[0]}" if others else "model=torch takes your function"
        message = f"model.options.task: {path}: transformers has no {task.value} of model_type {kind!r}; {remedy}"
        raise StageError("in-conflict" if others else "not-supported", message)
    return shape


def _foreign_kernels(content: Any) -> Iterator[str]:
    """What a configuration or one inside it names as its attention beside those of torch."""
    if not isinstance(content, dict):
        return
    for key, value in content.items():
        if key == "attn_implementation" and isinstance(value, str) and value not in _KERNELS:
            yield value
        yield from _foreign_kernels(value)


def _types(task: Task) -> Any:
    """The types of configurations that there is a model for."""
    import transformers

    if task is Task.detection:
        return transformers.MODEL_FOR_OBJECT_DETECTION_MAPPING
    return transformers.MODEL_FOR_IMAGE_CLASSIFICATION_MAPPING


def opened_network(shape: Any, folder: Path, config: Config) -> tuple[torch.nn.Module, list[str]]:
    """The network in eval mode, in FP32, and a note on its weights."""
    import torch
    import transformers

    options, detects = config.model.options, config.model.options.task is Task.detection
    auto: Any = transformers.AutoModelForObjectDetection if detects else transformers.AutoModelForImageClassification
    if options.random:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(config.seed)
            network = _explained(folder, lambda: auto.from_config(shape, dtype=torch.float32))
            begin_as_torch(network)
        return network.eval(), [f"{folder}: seeded random weights; none were read"]
    network, report = _explained(
        folder,
        lambda: auto.from_pretrained(
            folder,
            config=shape,
            dtype=torch.float32,
            use_safetensors=True,
            local_files_only=True,
            ignore_mismatched_sizes=True,  # refused below, together with all else that does not fit
            output_loading_info=True,
        ),
    )
    return network.eval(), _checked(report, folder)


def begin_as_torch(network: torch.nn.Module) -> None:
    """Begin convolutions and batch norms as torch does.

    `transformers` begins those of RT-DETR, of its successors and of DEIMv2's adapter so small that features vanish:
    all queries score alike, which of them are taken is chance, and in FP16 nothing is left.
    """
    import torch

    for part in network.modules():
        if isinstance(part, (torch.nn.Conv2d, torch.nn.BatchNorm2d)):
            part.reset_parameters()


def _checked(report: dict[str, Any], folder: Path) -> list[str]:
    """Notes on tensors that are not used; an error for those that the network lacks."""
    missing = sorted(report["missing_keys"])
    wrong = sorted(
        f"{name}: expected {list(expected)}, got {list(got)}" for name, got, expected in report["mismatched_keys"]
    )
    unexpected = sorted(report["unexpected_keys"])
    if missing or wrong:
        kinds = (
            ("of another shape", wrong),
            ("missing in the files", missing),
            ("unexpected in the files", unexpected),
        )
        lines = [f"  {len(found)} {what}: {some_of(found, 5, '; ')}" for what, found in kinds if found]
        raise StageError(
            "wrong-file",
            f"model.options.id: {folder}: the weights are not of the model that {CONFIGURATION} describes, or not of "
            "this task; give a model whose head is trained, too\n" + "\n".join(lines),
        )
    return [f"{folder}: {len(unexpected)} tensors are not used: {some_of(unexpected, 5)}"] if unexpected else []


def _explained(where: Path, make: Callable[[], Any]) -> Any:
    """What `make` returns, without what `transformers` prints; its errors as ours."""
    with _quiet(), failing("module-fails", f"model.options.id: {where}: transformers cannot make this model"):
        try:
            return make()
        except ImportError as error:
            found = _NEEDS.search(str(error))
            package = next((name for name in found.groups() if name), None) if found else None
            named = f"the package {package}, which is not installed" if package else first_line(error)
            remedy = f"pip install {package.lower()}" if package else "install it"
            message = f"model.options.id: {where}: it needs {named}: {remedy}, or choose another backbone"
            raise StageError("package-missing", message) from error


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    import transformers

    logging: Any = transformers.utils.logging  # partly without types
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        logging.set_verbosity(verbosity)
        if bars:
            logging.enable_progress_bar()
