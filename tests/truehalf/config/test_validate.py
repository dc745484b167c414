"""Every fault in a configuration is found, all at once, with its place and a way out."""

import re
from pathlib import Path

import pytest

from tests.configurations import composed
from tests.measuring.shipped import CONF
from tests.messages import expect
from truehalf.codes import codes_in
from truehalf.config.precision import OF_CONVERT_ALONE
from truehalf.config.schema import DEFAULT_PASSES, InputConfig, InputKind, OutputConfig, OutputKind
from truehalf.config.typed import ConfigErrors, plain
from truehalf.config.validate import validate


def errors_of(*overrides: str, **changes: object) -> list[str]:
    values = composed(*overrides)
    for path, value in changes.items():
        section = values
        *parents, key = path.split("__")
        for parent in parents:
            section = section[parent]
        section[key] = value
    with pytest.raises(ConfigErrors) as caught:
        validate(values)
    return caught.value.errors


def keys_of(errors: list[str]) -> list[str]:
    return [error.split(":")[0] for error in errors]


def told(errors: list[str]) -> list[tuple[str, ...]]:
    """The key of each error, and its code."""
    return [(error.split(":")[0], *codes_in(error)) for error in errors]


@pytest.mark.parametrize(
    ("choice", "keys"),
    [("images", ["folder"]), ("coco", ["annotations", "folder"]), ("npz", ["file"]), ("function", ["function"])],
)
def test_data_needs_its_place(choice: str, keys: list[str]) -> None:
    assert told(errors_of(f"data={choice}")) == [(f"data.{key}", "needs-value") for key in keys]


def test_fp16_without_simplify_is_refused_with_the_reason() -> None:
    (error,) = errors_of("simplify=false")
    expect(error, "in-conflict", "simplify=true", "precision=fp16", "precision=fp32")
    validate(composed("simplify=false", "precision=fp32"))


@pytest.mark.parametrize("method", ["half", "autocast"])
def test_what_only_a_conversion_reads_is_refused_where_fp16_is_traced(method: str) -> None:
    asked = ("precision.op_block_list=[Softmax]", "precision.data_max=512")
    errors = errors_of(f"precision.method={method}", *asked)
    keys = ["precision.op_block_list", "precision.data_max"]
    assert told(errors) == [(key, "in-conflict") for key in keys]
    expect(errors[0], "in-conflict", "[]", "[Softmax]", f"precision.method={method}")
    (error,) = errors_of(f"precision.method={method}", model__source="onnx")
    assert told([error]) == [("precision.method", "in-conflict")]
    expect(error, None, method, "model.source=onnx", "precision.method=convert")
    validate(composed(f"precision.method={method}", "precision.keep_io_types=false", "precision.opset=19"))
    validate(composed(f"precision.method={method}", "precision=fp32", "precision.op_block_list=[Softmax]"))


def test_no_file_of_a_chain_lists_weights_among_its_inputs() -> None:
    (error,) = errors_of("precision.weights_as_inputs=true")
    assert told([error]) == [("precision.weights_as_inputs", "in-conflict")]
    expect(error, None, "--weights-as-inputs")


def test_the_keys_of_a_conversion_are_keys_and_the_others_are_read_by_every_route() -> None:
    names = set(composed()["precision"])
    assert set(OF_CONVERT_ALONE) <= names
    others = {"dtype", "method", "keep_io_types", "opset", "init_conversion_max_bytes", "strict_clean_up"}
    assert names - set(OF_CONVERT_ALONE) == others


def test_all_errors_come_at_once() -> None:
    errors = errors_of(
        "verify.batch=0",
        "verify.score_threshold=2",
        precision__data_max="much",
        unknown_section={},
        trace__exporter="magic",
    )
    assert set(told(errors)) >= {
        ("verify.batch", "out-of-range"),
        ("verify.score_threshold", "out-of-range"),
        ("precision.data_max", "wrong-type"),
        ("unknown_section", "unknown-key"),
        ("trace.exporter", "unknown-choice"),
    }
    (error,) = [error for error in errors if error.startswith("trace.exporter")]
    expect(error, None, "torchscript", "dynamo", "'magic'")


def test_what_declarations_leave_out_is_null() -> None:
    """Of an input what it is has to be said, and its type where it is no picture: no other one could be guessed."""
    inputs = "model.inputs=[{name: images, kind: images}, {name: sizes, kind: picture_size, dtype: int64}]"
    outputs = "model.outputs=[{name: scores}, {name: logits, kind: logits, activation: sigmoid}]"
    config = validate(composed(inputs, outputs))
    assert config.model.inputs == (
        InputConfig("images", InputKind.images),
        InputConfig("sizes", InputKind.picture_size, "int64"),
    )
    assert config.model.outputs == (
        OutputConfig("scores", OutputKind.tensor),
        OutputConfig("logits", OutputKind.logits, activation="sigmoid"),
    )


def test_what_no_declaration_can_leave_out_is_missing() -> None:
    inputs = [{"name": "images"}, {"name": "sizes", "kind": "picture_size"}, "images"]
    errors = errors_of(model__inputs=inputs, model__outputs=[{"kind": "logits", "taken": "x"}], verify__batch=0)
    assert told(errors) == [
        ("model.inputs[0].kind", "missing-key"),
        ("model.inputs[0].dtype", "missing-key"),
        ("model.inputs[1].dtype", "missing-key"),
        ("model.inputs[2]", "wrong-type"),
        ("model.outputs[0].taken", "unknown-key"),
        ("model.outputs[0].name", "missing-key"),
        ("verify.batch", "out-of-range"),
    ]
    expect(errors[3], None, "'images'")
    expect(errors[4], None, "name", "kind", "take", "activation", "format", "normalized", "no_object")
    expect(errors[6], None, 1, 0)


def test_what_is_left_out_takes_its_default() -> None:
    values = composed("model.outputs=[{name: scores, no_object: background}]")
    del values["verify"]["batch"], values["precision"]["data_max"], values["data"]["seed"]
    config = validate(values)
    assert plain(config) == plain(validate(plain(config)))
    assert plain(config.verify) == composed()["verify"] and plain(config.precision) == composed()["precision"]
    assert plain(config)["model"]["outputs"][0] == {
        **{"name": "scores", "kind": "tensor", "take": None, "activation": None, "format": None},
        **{"normalized": None, "no_object": "background", "columns": None, "axis": None},
    }


WRONG_PAIRS = ([64, -1], [-1, 64], [64])


@pytest.mark.parametrize("size", [*WRONG_PAIRS, ["wide", 64], 640])
def test_a_faulty_size_is_one_error(size: object) -> None:
    values = composed(f"model.image_size={size}") if isinstance(size, list) and len(size) == 2 else composed()
    values["model"]["image_size"] = size
    with pytest.raises(ConfigErrors) as caught:
        validate(values)
    (error,) = caught.value.errors
    of_a_side = isinstance(size, list) and "wide" in size
    assert told([error]) == [
        (
            "model.image_size[0]" if of_a_side else "model.image_size",
            "wrong-shape" if size in WRONG_PAIRS else "wrong-type",
        )
    ]
    expect(error, None, "'wide'" if of_a_side else size)


@pytest.mark.parametrize("size", [[128, 100_000_000], [100_000_000, 128], [16_385, 16_384]])
def test_a_size_that_no_memory_holds_is_refused(size: list[int]) -> None:
    (error,) = errors_of(f"model.image_size={size}", "data=random")
    assert told([error]) == [("model.image_size", "out-of-range")]
    expect(error, None, 16384, size)


def test_dynamo_needs_its_opset() -> None:
    (error,) = errors_of("trace.exporter=dynamo")
    assert told([error]) == [("trace.opset", "out-of-range")]
    expect(error, None, "trace.exporter=dynamo", 18, 23, 17)
    (error,) = errors_of("trace.opset=22")
    assert told([error]) == [("trace.opset", "out-of-range")]
    expect(error, None, "trace.exporter=torchscript", 17, 20, 22)
    validate(composed("trace.exporter=dynamo", "trace.opset=18"))


@pytest.mark.parametrize("precision", ["auto", "bf16", "int8"])
def test_other_precisions_are_refused_with_the_options(precision: str) -> None:
    (error,) = errors_of(precision__dtype=precision)
    assert told([error]) == [("precision.dtype", "unknown-choice")]
    expect(error, None, "fp32", "fp16", repr(precision))


@pytest.mark.parametrize(
    ("shapes", "side", "code", "facts"),
    [
        (([2, 3, 128, 128], [1, 3, 128, 128], [4, 3, 128, 128]), ".opt", "out-of-range", ["axis 0", "2, 1, 4"]),
        (([1, 3, 128], [1, 3, 128, 128], [1, 3, 128, 128]), ".min", "wrong-shape", [4, "[1, 3, 128]"]),
        (([-1, 3, 128, 128], [1, 3, 128, 128], [1, 3, 128, 128]), ".opt", "out-of-range", ["axis 0", "-1, 1, 1"]),
    ],
)
def test_a_profile_has_three_shapes_in_order(
    shapes: tuple[list[int], ...], side: str, code: str, facts: list[object]
) -> None:
    errors = errors_of(engine__profiles=[{"images": dict(zip(("min", "opt", "max"), shapes, strict=True))}])
    (error,) = errors
    assert told([error]) == [(f"engine.profiles[0].images{side}", code)]
    expect(error, None, *facts)


@pytest.mark.parametrize("sides", [[6], [], [16, 16, 3], [1, 8, 8], [3, 32, 32], [7, 512]])
@pytest.mark.parametrize(
    "model",
    [
        ["model=onnx", "model.checkpoint=m.onnx", "data=npz", "data.file=s.npz"],
        ["model=onnx", "model.checkpoint=m.onnx", "data.folder=pictures"],
        ["model=torch", "model.options.factory=a:b", "model.image_size=[8,8]", "data=npz", "data.file=s.npz"],
        [
            *("model=torch", "model.options.factory=a:b", "data=npz", "data.file=s.npz"),
            "model.inputs=[{name: images, kind: tensor, dtype: float32, shape: [6]}]",
        ],
    ],
    ids=["npz", "pictures", "undeclared", "declared"],
)
def test_an_input_called_images_has_the_shape_that_its_model_gives_it(model: list[str], sides: list[int]) -> None:
    values = composed(*model)
    values["engine"]["profiles"] = [{"images": {kind: [n, *sides] for kind, n in (("min", 1), ("opt", 2), ("max", 4))}}]
    validate(values)


def test_block_lists_are_checked() -> None:
    errors = errors_of("precision.node_block_list=['(']", "precision.op_block_list=['Soft.*']")
    assert set(told(errors)) == {
        ("precision.node_block_list[0]", "bad-syntax"),
        ("precision.op_block_list[0]", "bad-syntax"),
    }
    for error in errors:
        expect(error, None, "'('" if error.startswith("precision.node") else "'Soft.*'")


def test_scopes_and_patterns_are_checked() -> None:
    scopes = ["decoder/layers", "a..b", "**", "", "decoder.layers.*.cross_attn"]
    errors = errors_of(precision__scope_block_list=scopes)
    assert told(errors) == [(f"precision.scope_block_list[{i}]", "bad-syntax") for i in range(4)]
    patterns = ["MatMul", "A -> B <- C", "-> A", "A B -> C", "outputs:0", "A->B->C", "Add <- com.acme::Op", "inputs: 2"]
    errors = errors_of(precision__pattern_block_list=patterns)
    assert told(errors) == [(f"precision.pattern_block_list[{i}]", "bad-syntax") for i in (*range(5), 7)]


@pytest.mark.parametrize(
    ("override", "code", "facts"),
    [
        ("engine.workspace_gb=0", "out-of-range", [0]),
        ("engine.builder_optimization_level=6", "out-of-range", [0, 5, 6]),
        ("engine.latency.warm_up=-1", "out-of-range", [0, -1]),
        ("engine.latency.runs=9", "out-of-range", [10, 9]),
        ("engine.latency.rounds=1", "out-of-range", [2, 1]),
        ("engine.plugins=[mine.cpp]", "bad-syntax", ["'mine.cpp'"]),
    ],
)
def test_options_of_the_engine_have_bounds(override: str, code: str, facts: list[object]) -> None:
    (error,) = errors_of(override)
    key = override.removeprefix("+").partition("=")[0]
    assert told([error]) == [(f"{key}[0]" if "[" in override else key, code)]
    expect(error, None, *facts)


def test_libraries_of_plugins_go_by_their_usual_names() -> None:
    validate(composed("engine.plugins=[build/libmine.so, /opt/libyours.so.1.2, theirs.dll]"))


def test_operators_of_plugins_are_named_beside_their_plugins() -> None:
    validate(composed("engine.plugins=[a.so]", "engine.plugin_ops=[Mine, com.acme::Other]"))
    (error,) = errors_of("engine.plugins=[a.so]", "engine.plugin_ops=[Mi.*]")
    assert told([error]) == [("engine.plugin_ops[0]", "bad-syntax")]
    expect(error, None, "'Mi.*'")


def test_repair_passes_are_known_by_name() -> None:
    assert tuple(composed()["repair"]["passes"]) == DEFAULT_PASSES
    assert composed("repair=none")["repair"]["passes"] == []
    (error,) = errors_of("repair.passes=[allowzero, polish]")
    assert told([error]) == [("repair.passes[1]", "unknown-choice")]
    expect(error, None, "allowzero", "fold_constants", "'polish'")


@pytest.mark.parametrize("file", sorted(CONF.rglob("*.yaml")), ids=lambda path: str(path.relative_to(CONF)))
def test_each_yaml_says_what_when_and_how_and_reads_no_environment(file: Path) -> None:
    text = file.read_text()
    head = [line for line in text.splitlines() if line.startswith("#")]
    assert any(line.startswith("# When:") for line in head) and any(line.startswith("# Use:") for line in head)
    assert not re.search(r"\$\{\s*oc\.", text), "values come from conf/, not from the environment"


def test_what_must_be_verified_is_known_by_name() -> None:
    validate(composed("verify.require=[detections,average_precision,batch,adversarial,engine]"))
    (error,) = errors_of("verify.require=[detections,latency]")
    assert told([error]) == [("verify.require[1]", "unknown-choice")]
    expect(error, None, "detections", "average_precision", "classes", "tensors", "batch", "'latency'")


def test_what_a_rule_says_before_it_meets_a_mistyped_key_is_said() -> None:
    values = composed("verify.memory_gb=-1", "verify.pictures=-3")
    values["tracking"]["max_model_mb"] = "many"
    with pytest.raises(ConfigErrors) as caught:
        validate(values)
    assert {"verify.pictures", "verify.memory_gb", "tracking.max_model_mb"} <= set(keys_of(caught.value.errors))
