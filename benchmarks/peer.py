"""One conversion by another converter; run as a script, by the Python of the environment that holds it.

    .venv-peers/bin/python -P benchmarks/peer.py autocast in.onnx out.onnx --sample sample.npz --options options.json
    .venv-peers/bin/python -P benchmarks/peer.py onnxconverter --serve

Imports nothing of truehalf. With --serve it reads one task a line, {"source", "target", "sample", "options"}, and
answers {"error": null or text} to each: for many small models, without the time that imports take.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import sys
from collections.abc import Callable
from typing import Any

Converter = Callable[..., None]
FLOATS = (1, 10, 11, 16)  # FLOAT, FLOAT16, DOUBLE, BFLOAT16


def autocast(source: str, target: str, sample: str | None, **options: Any) -> None:
    """NVIDIA's AutoCast with its defaults, unless `options` (its own keywords) say otherwise."""
    import modelopt.onnx.autocast as autocast
    from modelopt.onnx.utils import save_onnx

    save_onnx(autocast.convert_to_mixed_precision(source, calibration_data=sample, **options), target)


def onnxruntime(
    source: str, target: str, sample: str | None, fix: bool = True, slim: bool = True, **options: Any
) -> None:
    """ONNX Runtime's float16, then what its users do to fix the file: casts dropped, nodes sorted; then onnxslim.

    `more_blocked` adds operator types to the default block list. `fix` and `slim` leave these steps out.
    """
    import onnx
    from onnxruntime.transformers import float16

    blocked = [*float16.DEFAULT_OP_BLOCK_LIST, *options.pop("more_blocked", [])]
    model = float16.convert_float_to_float16(source, op_block_list=blocked, **options)
    if fix:
        drop_same_named(model)
        sort(model)
        del model.graph.value_info[:]  # the converter leaves types of FP32 in it
        drop_casts(onnx.shape_inference.infer_shapes(model), model)
    if slim:
        import onnxslim

        model = onnxslim.slim(model)
    save(model, target)


def onnxconverter(source: str, target: str, sample: str | None, **options: Any) -> None:
    """onnxconverter-common's float16 with its defaults."""
    import onnx
    from onnxconverter_common import float16

    save(float16.convert_float_to_float16(onnx.load(source), **options), target)


CONVERTERS: dict[str, Converter] = {
    "autocast": autocast,
    "onnxruntime": onnxruntime,
    "onnxconverter": onnxconverter,
}


# --- mending ----------------------------------------------------------------------------------------------------------


def drop_same_named(model: Any) -> None:
    """Of nodes that write the same tensor, keep the first."""
    written: set[str] = set()
    kept = []
    for node in model.graph.node:
        if not written.intersection(filter(None, node.output)):
            kept.append(node)
        written.update(node.output)
    _replace_nodes(model, kept)


def drop_casts(typed: Any, model: Any) -> None:
    """Casts to a type that the tensor has, second casts of one tensor to one type, pairs that lead back to a float."""
    infos = [*typed.graph.value_info, *typed.graph.input, *typed.graph.output]
    types = {info.name: info.type.tensor_type.elem_type for info in infos}
    types |= {tensor.name: tensor.data_type for tensor in typed.graph.initializer}
    outputs = {value.name for value in model.graph.output}
    casts = {node.output[0]: node for node in model.graph.node if node.op_type == "Cast"}
    first: dict[tuple[str, int], str] = {}
    instead: dict[str, str] = {}
    for name, node in casts.items():
        if name in outputs:
            continue
        to, source = node.attribute[0].i, node.input[0]
        inner = casts.get(source)
        origin = inner.input[0] if inner is not None else None
        if types.get(source) == to:
            instead[name] = source
        elif origin is not None and types.get(origin) == to and types.get(source) in FLOATS and to in FLOATS:
            instead[name] = origin
        elif first.setdefault((source, to), name) != name:
            instead[name] = first[source, to]
    for node in model.graph.node:
        for i, name in enumerate(node.input):
            while name in instead:
                name = instead[name]
            node.input[i] = name
    kept = [node for node in model.graph.node if node.output[0] not in instead]
    read = outputs.union(*(node.input for node in kept))
    _replace_nodes(model, [node for node in kept if node.op_type != "Cast" or node.output[0] in read])


def sort(model: Any) -> None:
    """Nodes after those whose outputs they read; the graphs inside a node count as its inputs."""
    waiting = list(model.graph.node)
    made = {name for node in waiting for name in node.output}
    ready: list[Any] = []
    known: set[str] = set()
    while waiting:
        later = []
        for node in waiting:
            if all(name not in made or name in known for name in _reads(node)):
                ready.append(node)
                known.update(node.output)
            else:
                later.append(node)
        if len(later) == len(waiting):
            raise ValueError(f"the graph has a cycle through {waiting[0].name!r}")
        waiting = later
    _replace_nodes(model, ready)


def _reads(node: Any) -> set[str]:
    names = set(filter(None, node.input))
    for attribute in node.attribute:
        for graph in [*attribute.graphs, *([attribute.g] if attribute.HasField("g") else [])]:
            names.update(*(_reads(inner) for inner in graph.node))
    return names


def _replace_nodes(model: Any, nodes: list[Any]) -> None:
    import copy

    nodes = [copy.deepcopy(node) for node in nodes]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def save(model: Any, target: str) -> None:
    import onnx

    large = model.ByteSize() > 1_500_000_000
    onnx.save_model(model, target, save_as_external_data=large, location=f"{target.rpartition('/')[2]}.data")


# --- the command line -------------------------------------------------------------------------------------------------


def serve(convert: Converter) -> None:
    """Answer tasks until the input ends; what a converter prints goes to stderr."""
    answers = sys.stdout
    for line in sys.stdin:
        task = json.loads(line)
        error = None
        with contextlib.redirect_stdout(io.StringIO()):
            try:
                convert(task["source"], task["target"], task["sample"], **task["options"])
            except Exception as raised:
                error = f"{type(raised).__name__}: {(str(raised).strip().splitlines() or [''])[0][:300]}"
        print(json.dumps({"error": error}), file=answers, flush=True)


def main(converters: dict[str, Converter]) -> None:
    parser = argparse.ArgumentParser(description="Convert one FP32 ONNX file.")
    parser.add_argument("tool", choices=[*converters])
    parser.add_argument("source", nargs="?")
    parser.add_argument("target", nargs="?")
    parser.add_argument("--sample", help="npz with one sample")
    parser.add_argument("--options", help="JSON file: keywords of the converter")
    parser.add_argument("--serve", action="store_true", help="read tasks from stdin")
    arguments = parser.parse_args()
    convert = converters[arguments.tool]
    if arguments.serve:
        serve(convert)
        return
    options: dict[str, Any] = {}
    if arguments.options:
        with open(arguments.options) as file:  # noqa: PTH123
            options = json.load(file)
    convert(arguments.source, arguments.target, arguments.sample, **options)


if __name__ == "__main__":
    main(CONVERTERS)
