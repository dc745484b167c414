"""What a module keeps from call to call, and what it takes from elsewhere than its inputs."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from tests.messages import expect, raises
from tests.tiers import first_of
from tests.truehalf.exporting.written import traced

RARE = "\n    y = y * 2"  # what a body does where a condition holds that no run of a test meets
# An expression that makes a generator of numbers, and one that draws from it.
GENERATORS = {
    "random.Random": ("random.Random(5)", "{}.random()"),
    "default_rng": ("np.random.default_rng(5)", "{}.random()"),
    "RandomState": ("np.random.RandomState(5)", "{}.rand()"),
    "torch.Generator": ("torch.Generator().manual_seed(5)", "torch.rand(1, generator={}).item()"),
    "integers": ("random.Random(5)", "{}.getrandbits(60) * 2.0 ** -60"),
}
# What is kept where: a statement of __init__, one of the file, and how forward reaches it.
PLACES = {
    "attribute": ("self.kept = {}", "", "self.kept"),
    "list": ("self.parts = [1, {}]", "", "self.parts[1]"),
    "plain object": ("self.holder = Holder()", "class Holder:\n    def __init__(self):\n        self.kept = {}",
                     "self.holder.kept"),
}  # fmt: skip
# What counts calls: a value, and an expression that is larger with each call.
COUNTS = {
    "list": ("[0]", "count_in_list({})"),
    "dict": ("{{}}", "count_in_dict({})"),
    "set": ("set()", "count_in_set({})"),
    "deque": ("collections.deque([0], 1)", "count_in_list({})"),
    "tensor": ("torch.zeros(())", "{}.add_(1).item()"),
    "array": ("np.zeros(1)", "count_in_list({})"),
    "object": ("Counter()", "{}.more()"),
}
OF_COUNTS = """
import collections, os, time

def count_in_list(kept):
    kept[0] += 1
    return kept[0]

def count_in_dict(kept):
    kept['n'] = kept.get('n', 0) + 1
    return kept['n']

def count_in_set(kept):
    kept.add(len(kept))
    return len(kept)

class Counter:
    n = 0
    def more(self):
        self.n += 1
        return self.n

"""


def kept(place: str, value: str, use: str) -> tuple[str, str, str]:
    """A statement of __init__, lines of the file, and the expression in forward."""
    init, outside, reached = PLACES[place]
    made = value.replace("{{", "{").replace("}}", "}")
    return init.format(made), OF_COUNTS + outside.format(made) + "\n", use.format(reached, reached)


def in_places(rows: Iterable[str]) -> list[Any]:
    """Each row in one of the places in `make test`, in all of them in `make test-all`."""
    pairs = [(i, k, row, place) for i, row in enumerate(rows) for k, place in enumerate(PLACES)]
    return [
        pytest.param(row, place, marks=() if i % len(PLACES) == k else pytest.mark.slow) for i, k, row, place in pairs
    ]


def reason_open(folder: Path, body: str, outside: str = "", init: str = "") -> str:
    """Why a trace is not verified."""
    report = traced(folder, body, outside=outside, init=init)
    assert report["parity"]["status"] == "not verified", report["baked"]
    assert report["baked"]["open"]
    return str(report["parity"]["reason"])


@pytest.mark.parametrize("form", ["y = y + {} * 1e6 % 7", "y = y * (1 + {} * 1e6 % 7)", "y[:, 0] = {} * 1e6 % 7"])
@pytest.mark.parametrize("clock", ["time.perf_counter()", "time.time()", "int.from_bytes(os.urandom(4)) / 2.0**32"])
def test_a_clock_that_outputs_follow_is_refused(form: str, clock: str, tmp_path: Path) -> None:
    with raises("module-varies"):
        traced(tmp_path, form.format(clock), outside=OF_COUNTS)


@pytest.mark.parametrize(("generator", "place"), in_places(GENERATORS))
def test_a_rare_draw_of_a_generator_of_its_own_is_not_verified(generator: str, place: str, tmp_path: Path) -> None:
    init, outside, drawn = kept(place, *GENERATORS[generator])
    expect(reason_open(tmp_path, f"if {drawn} < 1e-12:" + RARE, outside, init), "trace-open")


@pytest.mark.parametrize(("count", "place"), in_places(COUNTS))
def test_a_count_of_calls_is_not_verified(count: str, place: str, tmp_path: Path) -> None:
    init, outside, counted = kept(place, *COUNTS[count])
    expect(reason_open(tmp_path, f"if {counted} > 1000:" + RARE, outside, init), "trace-open")


MEMORY = {
    "a text": "if '9.9' in str(x.max()):" + RARE,
    "storage": "if bytes(x.untyped_storage())[:1] == b'z':" + RARE,
    "typed storage": "if x.storage()[0] > 2:" + RARE,
    "a pointer": "import ctypes\nif ctypes.c_float.from_address(x.data_ptr()).value > 2:" + RARE,
    "pickle": "import pickle\nif len(pickle.dumps(x)) == 7:" + RARE,
    "DLPack": "if np.from_dlpack(x.detach()).max() > 2:" + RARE,
}


@pytest.mark.parametrize("means", first_of(MEMORY))
def test_values_that_are_read_without_an_operation_are_not_verified(means: str, tmp_path: Path) -> None:
    expect(reason_open(tmp_path, MEMORY[means]), "trace-open", ".py:")


FINE = {
    "a cache by size": ("k = tuple(x.shape[2:])\nif k not in self.kept:\n    self.kept[k] = torch.ones(4)\n"
                        "y = y + self.kept[k]", "", "self.kept = {}"),
    "logging": ("LOG.warning('a batch')", "", ""),
    "a warning": ("warnings.warn('once')", "", ""),
    "a seed in forward": ("y = y + random.Random(3).random() + np.random.default_rng(3).random()", "", ""),
    "a seed of torch's": ("y = y + torch.rand(4, generator=torch.Generator().manual_seed(3)).sum().item()", "", ""),
    "the same list anew": ("self.sizes = [int(x.shape[2]), 8]\ny = y * self.sizes[0]", "", ""),
    "buffers": ("y = y - self.mean + self.extra", "", "self.register_buffer('extra', torch.ones(4))"),
    "constants of the file": ("y = y * SCALES['a'][0] + TABLE[0]",
                              "SCALES = {'a': [2.0]}\nTABLE = np.ones(4, 'f')", ""),
    "a constant of a class": ("y = y * self.factor", "Module.factor = 3.0", ""),
    "norms": ("y = self.norm(y)", "", "self.norm = torch.nn.BatchNorm1d(4)"),
    "dropout": ("y = self.drop(y)", "", "self.drop = torch.nn.Dropout(0.5)"),
    "a generator that rests": ("y = y * 2", "RNG = random.Random(1)", "self.rng = np.random.default_rng(2)"),
    "a partial": ("y = self.act(y)", "import functools",
                  "self.act = __import__('functools').partial(torch.clamp, min=0.5)"),
}  # fmt: skip


@pytest.mark.parametrize("name", FINE)
def test_what_changes_no_output_is_no_alarm(name: str, tmp_path: Path) -> None:
    body, outside, init = FINE[name]
    report = traced(tmp_path, body, outside=outside, init=init)
    assert report["parity"]["status"] == "verified" and report["baked"]["open"] == [], report["baked"]
