"""Bounds of single keys and rules between keys. Each rule yields messages, with their codes, that say what to do."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from enum import Enum
from typing import Any

import yaml

from truehalf.codes import coded
from truehalf.config.schema import (
    ASKS_NOTHING,
    CONF,
    FP16_MAX,
    MEMORY_POOLS,
    PROVIDER_TAKES,
    REPAIR_PASSES,
    VERIFIABLE,
    Backend,
    Config,
    DataSource,
    EngineConfig,
    Exporter,
    HardwareCompatibility,
    Method,
    Pins,
    PrecisionConfig,
    PrecisionName,
    ProfileShapes,
    Provider,
    SearchName,
)

HEIGHT_AND_WIDTH = "[height, width], such as [640, 640]"
# LayerNormalization is one node from 17 on. In torch 2.13 the TorchScript exporter ends at 20, dynamo begins at 18.
_OPSETS = {Exporter.torchscript: (17, 20), Exporter.dynamo: (18, 23)}


def _rules_of_precision(c: Config) -> Iterator[str]:
    if c.precision.dtype is PrecisionName.fp16 and not c.simplify:
        yield coded(
            "in-conflict",
            "simplify: precision=fp16 needs simplify=true: unfolded constants (positions, anchors, masks) would be "
            "rounded one operation at a time; set simplify=true or precision=fp32",
        )


# Keys of `precision` that method=convert alone reads; half and autocast leave the decisions to torch.
OF_CONVERT_ALONE = (
    *("placement", "fp16_ops", "op_block_list", "node_block_list", "scope_block_list", "pattern_block_list"),
    *("op_include_list", "node_include_list", "scope_include_list", "pattern_include_list", "strict_selectors"),
    *("rules", "safety_factor", "data_max", "data_max_share", "init_max", "init_overflow", "inner", "integers"),
    *("masks", "underflow_share_max", "reduction_depth_max", "custom_rule"),
)


def _rules_of_method(c: Config) -> Iterator[str]:
    method = c.precision.method
    if c.precision.dtype is not PrecisionName.fp16 or method is Method.convert:
        return
    remedy = f"it has no effect under precision.method={method.value}; leave it out, or set precision.method=convert"
    for name, default in yaml.safe_load((CONF / "precision" / "fp16.yaml").read_text()).items():
        given = _plain(getattr(c.precision, name))
        if name in OF_CONVERT_ALONE and given != default:
            yield coded(
                "in-conflict",
                f"precision.{name}: expected {_shown(default)}, its default, got {_shown(given)}: {remedy}",
            )
    if c.verify.suggest:
        yield coded(
            "in-conflict",
            f"verify.suggest: expected false, as it looks for entries of precision.node_block_list: {remedy}",
        )
    if c.model.source == "onnx":
        yield coded(
            "in-conflict",
            f"precision.method: {method.value} traces a torch module, and model.source=onnx is a file; "
            "set precision.method=convert",
        )


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, Enum) else value


def _bounds(c: Config) -> Iterator[str]:
    positive_integers = {
        "data.calibration_samples": c.data.calibration_samples,
        "data.verification_samples": c.data.verification_samples,
        "model.samples.calibration": c.model.samples.calibration,
        "model.samples.verification": c.model.samples.verification,
        "verify.batch": c.verify.batch,
    }
    yield from _outside({path: value for path, value in positive_integers.items() if value is not None}, 1, None)
    yield from _outside({"verify.suggest_runs": c.verify.suggest_runs}, 10, None)  # fewer find nothing
    yield from _outside(
        {
            "seed": c.seed,
            "data.seed": c.data.seed,
            "verify.pictures": c.verify.pictures,
            "verify.gates.label_flips_max": c.verify.gates.label_flips_max,
            "verify.gates.nonfinite_max": c.verify.gates.nonfinite_max,
            "trace.atol": c.trace.atol,
            "trace.rtol": c.trace.rtol,
            "slim.atol": c.slim.atol,
            "slim.rtol": c.slim.rtol,
        },
        0,
        None,
    )
    yield from _outside(
        {
            "verify.score_threshold": c.verify.score_threshold,
            "verify.iou_threshold": c.verify.iou_threshold,
            "verify.gates.ap50_95_drop_max": c.verify.gates.ap50_95_drop_max,
            "verify.gates.low_self_ap50_95_drop_max": c.verify.gates.low_self_ap50_95_drop_max,
            "verify.gates.matched_fraction_min": c.verify.gates.matched_fraction_min,
            "verify.gates.extra_fraction_max": c.verify.gates.extra_fraction_max,
            "verify.gates.score_error_p99_max": c.verify.gates.score_error_p99_max,
            "verify.gates.score_error_share_max": c.verify.gates.score_error_share_max,
            "verify.gates.rank_error_p99_max": c.verify.gates.rank_error_p99_max,
            "verify.gates.rank_error_share_max": c.verify.gates.rank_error_share_max,
            "verify.gates.box_error_p99_max": c.verify.gates.box_error_p99_max,
            "verify.gates.tensor_error_max": c.verify.gates.tensor_error_max,
        },
        0,
        1,
    )
    if not c.verify.memory_gb > 0:
        yield coded("out-of-range", f"verify.memory_gb: expected above 0, got {c.verify.memory_gb:g}")
    if not c.tracking.max_model_mb > 0:
        yield coded("out-of-range", f"tracking.max_model_mb: expected above 0, got {c.tracking.max_model_mb:g}")


def _rules_of_search(c: Config) -> Iterator[str]:
    search = c.search
    if search.name is SearchName.none:
        return
    precision = c.precision
    if precision.dtype is not PrecisionName.fp16 or precision.method is not Method.convert:
        fp32 = precision.dtype is PrecisionName.fp32
        got = "precision=fp32" if fp32 else f"precision.method={precision.method.value}"
        yield coded(
            "in-conflict",
            f"search: {search.name.value} chooses which nodes of a converted FP16 file stay FP32; expected "
            f"precision=fp16 with precision.method=convert, got {got}; set it, or search=none",
        )
    for name, value, low, high in (("runs", search.runs, 3, 16), ("samples", search.samples, 1, None)):
        if value is None:
            yield coded("needs-value", f"search.{name}: expected a number, got null")
        else:
            yield from _outside({f"search.{name}": value}, low, high)


def faults_of_precision(p: PrecisionConfig) -> Iterator[str]:
    """Bounds and rules of the section `precision` by itself; a library door states one without the rest."""
    yield from _bounds_of_precision(p)
    yield from _faults_of_lists("precision", p)


def _bounds_of_precision(p: PrecisionConfig) -> Iterator[str]:
    for name, limit in (("data_max", p.data_max), ("init_max", p.init_max)):
        if limit is not None and not 0 < limit <= FP16_MAX:
            yield coded(
                "out-of-range",
                f"precision.{name}: expected above 0 and at most {FP16_MAX:g} (FP16's largest number), got {limit:g}",
            )
    shares = {"data_max_share": p.data_max_share, "underflow_share_max": p.underflow_share_max}
    yield from _outside({f"precision.{name}": share for name, share in shares.items() if share is not None}, 0, 1)
    yield from _outside({"precision.safety_factor": p.safety_factor}, 1, FP16_MAX)
    whole = {
        "opset": p.opset,
        "reduction_depth_max": p.reduction_depth_max,
        "init_conversion_max_bytes": p.init_conversion_max_bytes,
    }
    yield from _outside({f"precision.{name}": number for name, number in whole.items() if number is not None}, 1, None)
    if p.custom_rule is not None and not re.fullmatch(r"\w+(\.\w+)*:\w+", p.custom_rule):
        yield coded(
            "bad-syntax",
            f"precision.custom_rule: expected module:function, such as my_rules:keep_fp32, got {p.custom_rule!r}",
        )


def _outside(values: Mapping[str, float], low: float, high: float | None) -> Iterator[str]:
    expected = f"{low:g} or more" if high is None else f"{low:g} to {high:g}"
    for path, value in values.items():
        if not value >= low or not (high is None or value <= high):  # NaN is outside, too
            yield coded("out-of-range", f"{path}: expected {expected}, got {value:g}")


def _rules_of_lists(c: Config) -> Iterator[str]:
    yield from faults_of_precision(c.precision)
    yield from _faults_of_lists("model.fp32_pins", c.model.fp32_pins)
    yield from _faults_of_lists("decoder.fp32_pins", c.decoder.fp32_pins)


def _faults_of_lists(owner: str, section: PrecisionConfig | Pins) -> Iterator[str]:
    """Entries that cannot be read; truehalf.ir.selectors says what they mean."""
    for kind, fault in _FAULTS_OF_ENTRIES.items():
        names = [f"{kind}_block_list", f"{kind}_include_list", *(["fp16_ops"] if kind == "op" else [])]
        for name in names:
            for i, entry in enumerate(getattr(section, name, [])):
                if found := fault(entry):
                    yield coded("bad-syntax", f"{owner}.{name}[{i}]: {entry!r} {found}")


def _fault_of_op(entry: str) -> str | None:
    if re.fullmatch(r"(?:[^\s:]+::)?[A-Za-z_]\w*", entry):
        return None
    return (
        "is no op type; expected a name such as Softmax, or com.acme::Op (regular expressions over node names go to "
        "node_block_list)"
    )


def _fault_of_node(entry: str) -> str | None:
    try:
        re.compile(entry)
    except re.error as error:
        return f"is no regular expression: {error}"
    return None if entry.strip() else "would match every node; expected a regular expression over node names"


def _fault_of_scope(entry: str) -> str | None:
    if re.search(r"[/\s]", entry) or not all(entry.split(".")) or not entry.strip("*."):
        return "is no module scope; expected a dotted path such as decoder.layers.*.cross_attn"
    return None


def _fault_of_pattern(entry: str) -> str | None:
    chain = r"\s*[^\s<>-]+(?:\s*(?:{0}\s*[^\s<>-]+\s*)+)"
    chains = (chain.format("->"), chain.format("<-"))
    position = r"\s*(?:outputs|inputs)\s*:\s*[1-9]\d*\s*"
    if any(re.fullmatch(expected, entry) for expected in (*chains, position)):
        return None
    return "is no pattern; expected 'MatMul -> Softmax', 'Add <- Conv' or a position such as outputs:2"


_FAULTS_OF_ENTRIES = {
    "op": _fault_of_op,
    "node": _fault_of_node,
    "scope": _fault_of_scope,
    "pattern": _fault_of_pattern,
}


def _rules_of_model(c: Config) -> Iterator[str]:
    m = c.model
    if len(m.image_size) != 2 or any(side is not None and side < 1 for side in m.image_size):
        yield coded(
            "wrong-shape", f"model.image_size: expected {HEIGHT_AND_WIDTH}, or [null, null], got {m.image_size}"
        )
    elif c.data.source is DataSource.digits and m.image_size[0] != m.image_size[1]:
        yield coded("wrong-shape", f"model.image_size: digit scenes are square, got {m.image_size}")
    if m.classes is not None and len(set(m.classes)) != len(m.classes):
        yield coded("given-twice", f"model.classes: expected different names, got {m.classes}")
    if c.data.source is DataSource.digits and m.classes is not None and len(m.classes) != 10:
        yield coded("in-conflict", f"model.classes: digit scenes have 10 classes, got {len(m.classes)}")
    for name in ("mean", "std"):
        values = getattr(m.preprocessing, name)
        if values is not None and len(values) != 3:
            yield coded("wrong-shape", f"model.preprocessing.{name}: expected three numbers, got {values}")
    if any(value == 0 for value in m.preprocessing.std or ()):
        yield coded("out-of-range", f"model.preprocessing.std: expected no zero, got {m.preprocessing.std}")
    if m.preprocessing.range not in (None, [0, 1], [0, 255]):
        yield coded(
            "unknown-choice", f"model.preprocessing.range: expected [0, 1] or [0, 255], got {m.preprocessing.range}"
        )
    for kind in ("inputs", "outputs"):
        names = [each.name for each in getattr(m, kind) or ()]
        if len(set(names)) != len(names):
            yield coded("given-twice", f"model.{kind}: expected different names, got {names}")


_DATA_NEEDS = {
    DataSource.images: ("folder", "the folder of your pictures", "/path/to/pictures"),
    DataSource.coco: ("annotations", "COCO's JSON with the boxes", "/path/to/instances.json"),
    DataSource.npz: ("file", "an .npz file, or a folder of them", "/path/to/samples.npz"),
    DataSource.function: ("function", "module:function", "my_data:sample"),
}


def _rules_of_data(c: Config) -> Iterator[str]:
    key, what, example = _DATA_NEEDS.get(c.data.source, ("source", "", ""))
    if not getattr(c.data, key):
        yield coded("needs-value", f"data.{key}: data={c.data.source.value} needs {what}: data.{key}={example}")
    if c.data.source is DataSource.coco and not c.data.folder:
        yield coded("needs-value", "data.folder: data=coco needs the folder that the annotations' file names are in")
    if c.data.function is not None and not re.fullmatch(r"\w+(\.\w+)*:\w+", c.data.function):
        yield coded(
            "bad-syntax", f"data.function: expected module:function, such as my_data:sample, got {c.data.function!r}"
        )


def _rules_of_verify(c: Config) -> Iterator[str]:
    for i, name in enumerate(c.verify.require):
        if name not in VERIFIABLE:
            yield coded("unknown-choice", f"verify.require[{i}]: expected one of {', '.join(VERIFIABLE)}, got {name!r}")


def _rules_of_trace(c: Config) -> Iterator[str]:
    low, high = _OPSETS[c.trace.exporter]
    if not low <= c.trace.opset <= high:
        yield coded(
            "out-of-range",
            f"trace.opset: trace.exporter={c.trace.exporter.value} writes opset {low} to {high}, got {c.trace.opset}",
        )
    shape = c.trace.input_shape
    if len(shape) != 4 or any(side is not None and side < 1 for side in shape) or shape[0] is None:
        yield coded(
            "wrong-shape",
            f"trace.input_shape: expected [N, 3, H, W], H and W null where the model's source says them, got {shape}",
        )
    elif shape[1] != 3 or shape[2:] != c.model.image_size:
        height_and_width = ", ".join("null" if side is None else str(side) for side in c.model.image_size)
        yield coded(
            "wrong-shape",
            f"trace.input_shape: expected [N, 3, {height_and_width}] (model.image_size), got {shape}; "
            "set model.image_size to change the traced size",
        )
    for tensor, axes in c.trace.dynamic_axes.items():
        for axis, symbol in axes.items():
            if axis < 0:
                yield coded("out-of-range", f"trace.dynamic_axes.{tensor}: expected axes from 0, got {axis}")
            if not re.fullmatch(r"[A-Za-z_]\w*", symbol):
                yield coded(
                    "bad-syntax", f"trace.dynamic_axes.{tensor}.{axis}: expected a name such as batch, got {symbol!r}"
                )


def _rules_of_repair(c: Config) -> Iterator[str]:
    for i, name in enumerate(c.repair.passes):
        if name not in REPAIR_PASSES:
            yield coded(
                "unknown-choice", f"repair.passes[{i}]: expected one of {', '.join(REPAIR_PASSES)}, got {name!r}"
            )
        elif name in c.repair.passes[:i]:
            yield coded(
                "given-twice",
                f"repair.passes[{i}]: {name} is in the list already, at {c.repair.passes.index(name)}; leave one out",
            )


def _rules_of_lint(c: Config) -> Iterator[str]:
    for i, entry in enumerate(c.lint.ignore):
        rule, separator, where = entry.partition("@")
        if not re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", rule) or (separator and not where.strip()):
            yield coded(
                "bad-syntax",
                f"lint.ignore[{i}]: {entry!r} is no rule; expected one such as dynamic-topk, or dynamic-topk@<regular "
                "expression over node names and scopes>",
            )
        elif fault := _fault_of_node(where) if separator else None:
            yield coded("bad-syntax", f"lint.ignore[{i}]: {where!r} {fault}")


def _rules_of_engine(c: Config) -> Iterator[str]:
    yield from faults_of_engine(c.engine)


def faults_of_engine(e: EngineConfig) -> Iterator[str]:
    """Bounds and rules of the section `engine` by itself; a library door states one without the rest."""
    yield from _bounds_of_engine(e)
    if e.backend is Backend.onnxruntime and e.provider is None:
        yield coded("needs-value", "engine.provider: engine=onnxruntime needs one of cuda, tensorrt, cpu, got null")
    if e.backend is Backend.tensorrt and e.provider is not None:
        yield coded(
            "in-conflict",
            f"engine.provider: of ONNX Runtime, and engine.backend is tensorrt; got {e.provider.value!r}; choose "
            f"engine=onnxruntime engine.provider={e.provider.value}, or leave it null",
        )
    if e.editable_timing_cache and e.timing_cache is None:
        yield coded(
            "needs-value", "engine.editable_timing_cache: needs engine.timing_cache, a folder for the cache, got null"
        )
    yield from _options_that_no_provider_takes(e)
    yield from _faults_of_plugin_ops(e)
    for i, file in enumerate(e.plugins):
        if not re.fullmatch(r".*[^/\\]\.(so(\.\d+)*|dll)", file):
            yield coded(
                "bad-syntax",
                f"engine.plugins[{i}]: expected the file of a library, such as build/libmine.so, got {file!r}",
            )


def _faults_of_plugin_ops(e: EngineConfig) -> Iterator[str]:
    if e.plugin_ops and not e.plugins:
        yield coded(
            "needs-value",
            "engine.plugin_ops: names operators of plugins, and engine.plugins is empty; name their libraries there",
        )
    for i, entry in enumerate(e.plugin_ops):
        if found := _fault_of_op(entry):
            yield coded("bad-syntax", f"engine.plugin_ops[{i}]: {entry!r} {found}")


def _options_that_no_provider_takes(e: EngineConfig) -> Iterator[str]:
    """Options of TensorRT's builder that ask ONNX Runtime's provider for what it cannot be told."""
    if e.backend is not Backend.onnxruntime or e.provider is None:
        return
    provider, takes = e.provider.value, PROVIDER_TAKES[e.provider.value]
    refused = f"ONNX Runtime's provider {provider!r} has no option for it"
    for name, nothing in ASKS_NOTHING.items():
        value = getattr(e, name)
        given = value.value if isinstance(value, Enum) else value
        if name not in takes and given != nothing:
            yield coded(
                "in-conflict",
                f"engine.{name}: {refused}; expected {_shown(nothing)}, got {_shown(given)}; engine=tensorrt takes it",
            )
    for pool in e.memory_pools_gb:
        if pool != "workspace":
            yield coded(
                "in-conflict", f"engine.memory_pools_gb.{pool}: {refused}; leave it out; engine=tensorrt takes it"
            )
    if e.provider is Provider.tensorrt and e.hardware_compatibility is HardwareCompatibility.same_compute_capability:
        yield coded(
            "in-conflict",
            "engine.hardware_compatibility: ONNX Runtime's provider 'tensorrt' knows ampere_plus alone; expected none "
            "or ampere_plus, got same_compute_capability; engine=tensorrt takes it",
        )


def _shown(value: object) -> str:
    return json.dumps(value).replace('"', "")


def _bounds_of_engine(e: EngineConfig) -> Iterator[str]:
    for pool, size in e.memory_pools_gb.items():
        if pool not in MEMORY_POOLS:
            yield coded("unknown-key", f"engine.memory_pools_gb.{pool}: unknown pool; known: {', '.join(MEMORY_POOLS)}")
        elif not size > 0:
            yield coded("out-of-range", f"engine.memory_pools_gb.{pool}: expected above 0, got {size:g}")
    if e.builder_optimization_level is not None:
        yield from _outside({"engine.builder_optimization_level": e.builder_optimization_level}, 0, 5)
    if e.max_aux_streams is not None:
        yield from _outside({"engine.max_aux_streams": e.max_aux_streams}, 0, None)
    yield from _outside({"engine.latency.warm_up": e.latency.warm_up}, 0, None)
    yield from _outside({"engine.latency.runs": e.latency.runs}, 10, None)  # fewer have no 95th percentile
    yield from _outside({"engine.latency.rounds": e.latency.rounds}, 2, None)  # one would not show the noise


def _rules_of_profiles(c: Config) -> Iterator[str]:
    if c.engine.profiles is not None and not c.engine.profiles:
        yield coded("needs-value", "engine.profiles: expected at least one optimization profile, or null")
    dynamic = c.trace.dynamic_axes
    for i, profile in enumerate(c.engine.profiles or ()):
        where = f"engine.profiles[{i}]"
        if not profile:
            yield coded("needs-value", f"{where}: expected shapes of the inputs")
        for name, shapes in profile.items():
            traced = c.trace.input_shape if name == "images" and _is_traced_on_pictures(c) else None
            yield from _rules_of_shapes(f"{where}.{name}", shapes, traced, dynamic.get(name, {}))


def _is_traced_on_pictures(c: Config) -> bool:
    """Whether the input `images` has trace.input_shape: a file, arrays and declarations may say otherwise."""
    return c.model.source != "onnx" and c.data.source is not DataSource.npz and c.model.inputs is None


def _rules_of_shapes(
    where: str, shapes: ProfileShapes, traced: list[int | None] | None, dynamic: Mapping[int, str]
) -> Iterator[str]:
    """Rules of one input; its graph has more to say later (truehalf.engines.profiles)."""
    named = {"min": shapes.min, "opt": shapes.opt, "max": shapes.max}
    rank = len(shapes.opt) if traced is None else len(traced)
    wrong_rank = {name: shape for name, shape in named.items() if len(shape) != rank}
    for name, shape in wrong_rank.items():
        like = "opt" if traced is None else f"trace.input_shape {traced}"
        yield coded("wrong-shape", f"{where}.{name}: expected {rank} axes as in {like}, got {shape}")
    for name, shape in named.items():
        if any(side is not None and side < 1 for side in shape):
            yield coded(
                "out-of-range",
                f"{where}.{name}: expected positive integers, or null where the model fixes the axis, got {shape}",
            )
    if wrong_rank:
        return
    for axis, sides in enumerate(zip(shapes.min, shapes.opt, shapes.max, strict=True)):
        if None in sides:
            if len(set(sides)) > 1:
                yield coded(
                    "in-conflict",
                    f"{where}: expected null in min, opt and max of axis {axis}, or in none, got {_listed(sides)}",
                )
            continue
        low, opt, high = (side or 0 for side in sides)
        if not low <= opt <= high:
            yield coded("out-of-range", f"{where}: expected min <= opt <= max on axis {axis}, got {low}, {opt}, {high}")
        if (
            traced is not None
            and axis not in dynamic
            and {low, opt, high} != {traced[axis]}
            and traced[axis] is not None
        ):
            yield coded(
                "in-conflict",
                f"{where}: axis {axis} is static ({traced[axis]}) and the profile varies it ({low}, {opt}, {high}); "
                f"make it {traced[axis]}, or add the axis to trace.dynamic_axes.images",
            )


def _listed(sides: Iterable[int | None]) -> str:
    return ", ".join("null" if side is None else str(side) for side in sides)


RULES = (
    _bounds,
    _rules_of_precision,
    _rules_of_method,
    _rules_of_search,
    _rules_of_lists,
    _rules_of_model,
    _rules_of_data,
    _rules_of_verify,
    _rules_of_trace,
    _rules_of_profiles,
    _rules_of_repair,
    _rules_of_lint,
    _rules_of_engine,
)
