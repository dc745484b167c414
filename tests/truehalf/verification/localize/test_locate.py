"""Naming the node at fault: planted ones in small graphs, and what must not be taken for one."""

from __future__ import annotations

import contextlib
import io
import json
import re
from pathlib import Path

import numpy as np
import onnx
import onnx.parser
import onnx_ir as ir
import pytest

from tests.measuring.faults import Network
from tests.measuring.planted import searched
from tests.messages import expect
from tests.tiers import first_of
from tests.truehalf.models.detectors import SIZE, detector, pictures
from truehalf.config.verification import VerifyConfig
from truehalf.data.samples import Sample
from truehalf.io_spec.in_file import SPEC_KEY
from truehalf.io_spec.spec import IoSpec
from truehalf.ir.model_file import load_model
from truehalf.ir.model_forms import ModelFile
from truehalf.verification.chain.reference import Reference
from truehalf.verification.localize.both_files import BothFiles
from truehalf.verification.localize.locate import Place, Suspect, first_bad_node, locate, located, pins_of
from truehalf.verification.localize.place import place_of
from truehalf.verification.pinning.as_argument import pins_argument

W = ", ".join(str(round(((7 * i) % 11 - 5) / 5, 3)) for i in range(16))
W1 = ", ".join(str(round(((7 * i) % 11 - 5) / 5 * 4, 3)) for i in range(16))
REFERENCE = f"""g (float[2,4] x) => (float[2,4] y)
<float[4,4] w1 = {{{W1}}}, float[4,4] w2 = {{{W}}},
 float[1] k = {{1000.0}}, float[1] q = {{0.001}}, float[1] tiny = {{1e-9}}>
{{
    [up] a = Mul(x, k)
    [first] b = MatMul(a, w1)
    [down] c = Mul(b, q)
    [second] d = MatMul(c, w2)
    [dead] e = Mul(d, tiny)
    [sum] y = Add(d, e)
}}"""
HALF = """g (float[2,4] x) => (float[2,4] y)
<float[4,4] w1 = {W1}, float[4,4] w2 = {W}, float[1] k = {1000.0}, float[1] q = {0.001}, float[1] tiny = {1e-9}>
{
    [x_cast] xh = Cast<to = 10>(x)  [w1_cast] w1h = Cast<to = 10>(w1)  [w2_cast] w2h = Cast<to = 10>(w2)
    [k_cast] kh = Cast<to = 10>(k)  [q_cast] qh = Cast<to = 10>(q)  [t_cast] th = Cast<to = 10>(tiny)
    [up] a = Mul(xh, kh)
    [first] b = MatMul(a, w1h)
    [down] c = Mul(b, qh)
    [second] d = MatMul(c, w2h)
    [dead] e = Mul(d, th)
    [sum] s = Add(d, e)
    [y_cast] y = Cast<to = 1>(s)
}""".replace("{W}", f"{{{W}}}").replace("{W1}", f"{{{W1}}}")
FEEDS = {"x": np.float32([[1.3171, -0.4377, 0.9133, 2.2051], [-0.1719, 0.5333, -1.7157, 0.6123]])}


def model(text: str) -> ir.Model:
    return ir.from_proto(onnx.parser.parse_model(f'<ir_version: 10, opset_import: ["" : 17]>\n{text}'))


def suspects(candidate: str, feeds: dict[str, np.ndarray] = FEEDS) -> list[Suspect]:
    return locate(BothFiles(model(REFERENCE), model(candidate)), [feeds])


def test_rounding_alone_puts_no_dead_signal_first() -> None:
    """e is 1e-9 in FP32 and 0 in FP16: an error of 100 % that moves nothing."""
    found = suspects(HALF)
    dead = next(each for each in found if each.node == "dead")
    assert dead.local_error == 1
    assert found[0].node != "dead"
    assert all(each.effect is not None and each.effect < 1e-3 for each in found)


def test_a_wrong_weight_is_named() -> None:
    found = suspects(HALF.replace("float[4,4] w2 = {-1.0, ", "float[4,4] w2 = {1.0, "))
    assert first_bad_node(found) == "second"
    first = found[0]
    assert (first.op_type, first.tensor, first.cause) == ("MatMul", "d", "error")
    assert first.local_error == pytest.approx(first.effect, rel=0.5)
    assert "'second'" in first.sentence


def test_an_overflow_is_named_with_its_ranges() -> None:
    found = suspects(HALF, {"x": FEEDS["x"] * 40})
    assert [each.node for each in found].index("up") == 0
    first = found[0]
    assert first.cause == "nonfinite"
    assert first.output_absmax == pytest.approx(88000, rel=1e-2)
    assert first.effect is None


def test_nan_behind_a_fault_is_not_named() -> None:
    """x times 29000 instead of 1000: Inf comes one node later, which is finite on the reference's tensors."""
    found = suspects(HALF.replace("float[1] k = {1000.0}", "float[1] k = {29000.0}"))
    assert (found[0].node, found[0].cause) == ("up", "error")
    assert all(each.cause == "error" for each in found)


def test_only_the_first_of_many_tensors_that_are_not_finite_is_named() -> None:
    chain = "".join(f" [n{i}] t{i} = Neg(t{i - 1})" for i in range(1, 40))
    text = f"g (float[1] x) => (float[1] t39) {{ [square] t0 = Mul(x, x){chain} }}"
    found = locate(BothFiles(model(text), model(text.replace("float[", "float16["))), [{"x": np.float32([300])}])
    assert [each.node for each in found if each.cause == "nonfinite"] == ["square"]


def test_a_cast_that_overflows_is_the_fault_of_who_asks_for_it() -> None:
    island = HALF.replace("[up] a = Mul(xh, kh)", "[up] u = Mul(x, k)  [a_cast] a = Cast<to = 10>(u)")
    found = suspects(island, {"x": FEEDS["x"] * 40})
    assert found[0].node == "first"


def test_selectors_repeat_what_is_in_force() -> None:
    wrong = HALF.replace("float[4,4] w2 = {-1.0, ", "float[4,4] w2 = {1.0, ")
    place = located(BothFiles(model(REFERENCE), model(wrong)), [FEEDS], None, "0", "sample 0", ["^sum$", "/head/"])
    assert place.selectors == pins_argument("node_block_list", ["^sum$", "/head/", "^second$"])
    files = BothFiles(model(REFERENCE.replace("[up]", "")), model(HALF.replace("[up]", "")))
    one = next(each for each in locate(files, [FEEDS]) if each.tensor == "a")
    assert one.node == f"{one.op_type} -> {one.tensor}" and pins_of([one], files) == ["^Mul_a$"]


def test_equal_files_have_no_suspects() -> None:
    assert suspects(REFERENCE) == []
    assert first_bad_node([]) is None


def test_a_file_that_nothing_is_wrong_with_has_no_bad_node() -> None:
    found = suspects(HALF)
    assert found and first_bad_node(found) == found[0].node
    assert first_bad_node(found, failed=False) is None
    wrong = suspects(HALF.replace("float[4,4] w2 = {-1.0, ", "float[4,4] w2 = {1.0, "))
    assert first_bad_node(wrong, failed=False) == "second"
    overflowing = suspects(HALF, {"x": FEEDS["x"] * 40})
    assert first_bad_node(overflowing, failed=False) == "up"


@pytest.mark.parametrize("axes", ["4,4", "16"])
def test_operands_that_change_places_are_an_error(axes: str) -> None:
    """Outputs whose rows mean something by their place: channels, tokens."""
    text = f"""g (float[1,2,{axes}] x) => (float[1,4,{axes}] z)
    {{ [one] a = Sigmoid(x)  [two] b = Tanh(x)  [join] z = Concat<axis = 1>(a, b) }}"""
    feeds = {"x": np.random.default_rng(0).normal(size=(1, 2, *map(int, axes.split(",")))).astype(np.float32)}
    swapped = model(text.replace("float[", "float16[").replace("(a, b)", "(b, a)"))
    first, *rest = locate(BothFiles(model(text), swapped), [feeds])
    assert first.node == "join"
    assert first.effect is not None and first.effect > 0.5
    assert all(each.effect is not None and each.effect < 1e-3 for each in rest)


RANKED = """g (float[1,40,2] x) => (float[1,10,2] z) <int64[1] ten = {10}>
{
    [scores] s = ReduceSum<keepdims = 0>(x, two)
    [top] v, i = TopK(s, ten)
    [index] j = Unsqueeze(i, two)
    [wide] k = Expand(j, shape)
    [take] z = GatherElements<axis = 1>(x, k)
}""".replace("{10}>", "{10}, int64[1] two = {2}, int64[3] shape = {1, 10, 2}>")


def test_queries_may_change_places() -> None:
    """TopK from the smallest: other queries and another order; as queries what differs is less than row by row."""
    shuffled = model(
        RANKED.replace(
            "[take] z = GatherElements<axis = 1>(x, k)",
            "[take] r = GatherElements<axis = 1>(x, k)  [turn] z = Gather<axis = 1>(r, back)",
        ).replace("{2},", "{2}, int64[10] back = {9,8,7,6,5,4,3,2,1,0},")
    )
    feeds = {"x": np.random.default_rng(0).normal(size=(1, 40, 2)).astype(np.float32)}

    def effect(reference: ir.Model, **options: object) -> float | None:
        found = locate(BothFiles(reference, shuffled), [feeds], **options)  # type: ignore[arg-type]
        return next(each.effect for each in found if each.tensor == "z")

    declared = model(RANKED)
    declared.metadata_props[SPEC_KEY] = json.dumps({"outputs": [{"name": "z"}]})
    assert effect(model(RANKED)) == 0
    assert effect(model(RANKED), queries=["z"]) == 0
    assert effect(model(RANKED), queries=[]) > 0.5  # type: ignore[operator]
    assert effect(declared) > 0.5  # type: ignore[operator]
    declared.metadata_props[SPEC_KEY] = json.dumps({"outputs": [{"name": "z", "kind": "boxes"}]})
    assert effect(declared) == 0


def test_a_wrong_node_comes_before_those_that_round() -> None:
    """e is off by half, and moves the output by as much as rounding does."""
    small = [text.replace("1e-9", "0.0005") for text in (REFERENCE, HALF)]
    wrong = small[1].replace("{0.0005}", "{0.00075}")
    found = locate(BothFiles(model(small[0]), model(wrong)), [FEEDS])
    effects = {each.node: each.effect or 0.0 for each in found}
    assert max(effects, key=lambda node: effects[node]) != "dead"
    assert effects["dead"] < 5e-3
    assert found[0].node == "dead"


SUMS = """g (float[1,600] x) => (float[1,600] z)
{
    [mean] m = ReduceMean<axes = [1], keepdims = 1>(x)
    [less] d = Sub(x, m)
    [last] z = Neg(d)
}"""


def test_sums_are_searched_where_they_failed() -> None:
    reference, half = model(SUMS), model(SUMS.replace("float[", "float16["))
    feeds = {"x": np.random.default_rng(0).uniform(150, 250, (1, 600)).astype(np.float32)}
    assert locate(BothFiles(reference, half), [feeds])[0].cause == "error"
    found = locate(BothFiles(reference, half, pessimistic=True), [feeds])
    assert (found[0].node, found[0].op_type, found[0].cause) == ("mean", "ReduceMean", "nonfinite")
    expect(found[0].sentence, None, "sum", "node 'mean'")
    assert {each.node for each in found} <= {"mean", "less", "last"}


# --- of a verification ------------------------------------------------------------------------------------------------


def failed(tmp_path: Path, candidate: str, evaluation: str, x: np.ndarray, reference: str = REFERENCE) -> Place:
    paths = [tmp_path / "fp32.onnx", tmp_path / "fp16.onnx"]
    for path, text in zip(paths, (reference, candidate), strict=True):
        ir.save(model(text), path)
    samples, outputs = [Sample("only", {"x": x}, None, None)], {"y": np.zeros((1, 1), np.float32)}
    spec = IoSpec.from_json({"outputs": [{"name": "y"}]})
    frozen = Reference(samples, ["only"], [""], outputs, spec, [], None)
    compared = frozen.compare(frozen.runs(lambda _: outputs, 1, ""), VerifyConfig())
    return place_of(ModelFile(paths[0]), ModelFile(paths[1]), compared, evaluation)


def test_the_sentence_names_the_first_suspect_first(tmp_path: Path) -> None:
    wrong = HALF.replace("float[1] k = {1000.0}", "float[1] k = {29000.0}")
    place = failed(tmp_path, wrong, "emulated-fp16", FEEDS["x"][0])
    first = place.suspects[0]
    assert (first.node, first.cause) == ("up", "error")
    expect(place.sentence, None, "only", "'up'", "2801 %")
    overflow = failed(tmp_path, HALF, "emulated-fp16", FEEDS["x"][0] * 40)
    expect(overflow.sentence, None, "sample only", "node 'up'", "Inf", 65504)
    assert (overflow.suspects[0].node, overflow.suspects[0].cause) == ("up", "nonfinite")


def test_the_sentence_says_which_evaluation_was_searched(tmp_path: Path) -> None:
    expect(failed(tmp_path, HALF, "cuda", FEEDS["x"][0]).sentence, None, "FP16", "cuda")
    assert "cuda" not in failed(tmp_path, HALF, "emulated-fp16", FEEDS["x"][0]).sentence
    x = np.full(600, 200, np.float32)
    sums = [SUMS.replace("float[", f"{kind}[").replace("[1,600]", "[2,600]") for kind in ("float", "float16")]
    place = failed(tmp_path, sums[1], "emulated-fp16-pessimistic", x, sums[0])
    assert place.suspects[0].node == "mean"
    expect(place.sentence, None, "sum inside")


# --- a detector -------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Network:
    import onnxslim
    import torch

    path = tmp_path_factory.mktemp("detector") / "fp32.onnx"
    with torch.no_grad():
        torch.onnx.export(
            detector("dfine"),
            (torch.rand(1, 3, SIZE, SIZE),),
            str(path),
            dynamo=False,
            opset_version=17,
            input_names=["images"],
            output_names=["logits", "boxes"],
        )
    with contextlib.redirect_stdout(io.StringIO()):
        onnx.save(onnxslim.slim(str(path)), path)
    return Network("small", load_model(path), pictures(1), pictures(2))


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(  # small random weights: no overflow
    "kind", first_of(["swapped operands", "lost epsilon", "wrong weight"])
)
def test_a_fault_planted_in_a_detector_is_named(kind: str, network: Network) -> None:
    row = searched(network, kind, 500)
    assert row["found"] != "no", row


PADDED = """g (float[2,3] x) => (float[2,4] y) <int64[4] pads = {{0, {0}, 0, {1}}}, float[4,4] w = {{{2}}}>
{{ {3} [p] p = Pad(h, pads) [m] z = MatMul(p, v) {4} }}"""
TO_HALF = "[c] h = Cast<to = 10>(x) [w_cast] v = Cast<to = 10>(w)"
NARROW = {"x": FEEDS["x"][:, :3]}


def padded(begin: int, end: int, half: bool) -> ir.Model:
    casts = TO_HALF if half else "[c] h = Identity(x) [w_same] v = Identity(w)"
    last = "[y_cast] y = Cast<to = 1>(z)" if half else "[y_same] y = Identity(z)"
    return model(PADDED.format(begin, end, W, casts, last))


def test_a_node_that_only_moves_data_is_never_blamed_on_rounding() -> None:
    found = locate(BothFiles(padded(0, 1, False), padded(0, 1, True)), [NARROW])
    assert found and not [each.node for each in found if each.op_type == "Pad"]


def test_one_that_moves_other_data_is_named_and_not_pinned() -> None:
    """As pads that slimming changed in a ResNet: in FP32 the node would be as wrong."""
    place = located(BothFiles(padded(0, 1, False), padded(1, 0, True)), [NARROW], None, "0", "sample 0")
    assert place.suspects[0].node == "p" and not place.suspects[0].can_be_pinned
    assert "'p'" in place.sentence and not re.search(r"\bp\b", place.selectors)
