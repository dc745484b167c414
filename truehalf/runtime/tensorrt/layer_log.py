"""Layers of an engine in the builder's log, for engines that cannot be read back without a GPU.

TensorRT for RTX logs, verbosely, one message with a line for each layer:

    Layers:
    Name: a, LayerType: gemm, Inputs: [ { Name: x, Dimensions: [1,8], ..., Datatype: Half, Format: ... }, ...],
    Constants: [...], Outputs: [...], ..., StreamId: 0, Metadata: [ONNX Layer: /0/Conv][ONNX Layer: /1/Relu]

    I/O Tensors:
    ...

Names come from the model and may hold any character, so lines are read by their keys, never by commas or brackets.
"""

from __future__ import annotations

import re
from typing import Any

from truehalf.json_values import JsonObject

START = "Layers:\n"
_LINE = re.compile(
    r"Name: (?P<Name>.*?), LayerType: (?P<LayerType>\w+), Inputs: \[(?P<Inputs>.*)\], "
    r"Constants: \[(?P<Constants>.*)\], Outputs: \[(?P<Outputs>.*)\], .*?Metadata: (?P<Metadata>.*)"
)
_TENSOR = re.compile(r"\{ Name: (?P<Name>.*?), Dimensions: \[[-\d,]*\], .*?Datatype: (?P<Datatype>\w+), Format: ")


def layers_of_log(message: str) -> list[JsonObject] | None:
    """The layers of such a message, as the engine inspector's JSON has them; None where the format is another.

    Returns:
        {Name, LayerType, Inputs, Constants, Outputs, Metadata} of each; of tensors {Name, Datatype}.
    """
    if not message.startswith(START):
        return None
    layers: list[JsonObject] = []
    for line in message.removeprefix(START).partition("\n\n")[0].split("\n"):
        found = _LINE.fullmatch(line)
        if found is None:
            return None
        layer: dict[str, Any] = found.groupdict()
        for key in ("Inputs", "Constants", "Outputs"):
            tensors = [one.groupdict() for one in _TENSOR.finditer(layer[key])]
            if layer[key].count("Datatype: ") != len(tensors):
                return None
            layer[key] = tensors
        layers.append(layer)
    return layers
