"""What a module takes from outside its inputs and attributes: clocks, entropy, generators and state of its own."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.messages import expect, raises
from tests.tiers import first_of
from tests.truehalf.exporting.baked.written import traced

RARE = "\n    y = y * 2"  # what a body does where a condition holds that no run of a test meets
CLOCKS = {
    "time": "if __import__('time').time() < 0:" + RARE,
    "a name of its own": "if clock() < 0:" + RARE,
    "in a helper": "if since_start() > 1e9:" + RARE,
    "nanoseconds": "y = y * (1 + time.time_ns() // 10**20)",
    "monotonic": "y = y * (1 + time.monotonic() // 1e12)",
    "a counter of performance": "t = time.perf_counter()\nif time.perf_counter() - t > 1e6:" + RARE,
    "the date": "if datetime.datetime.now().year > 3000:" + RARE,
    "today": "if datetime.date.today().year > 3000:" + RARE,
    "UTC": "if datetime.datetime.now(datetime.timezone.utc).year > 3000:" + RARE,
    "local time": "if time.localtime().tm_year > 3000:" + RARE,
    "of a plain object": "if STOPWATCH.elapsed() > 1e9:" + RARE,
    "of the process": "if time.process_time() > 1e9:" + RARE,
}
OF_CLOCKS = """
import datetime, time
from time import time as clock
START = clock()

def since_start():
    return clock() - START

class Stopwatch:
    elapsed = staticmethod(lambda: time.monotonic() - START)

STOPWATCH = Stopwatch()
"""
ENTROPY = {
    "os.urandom": "if os.urandom(8) == bytes(8):" + RARE,
    "secrets": "if secrets.randbelow(10**12) == 7:" + RARE,
    "uuid": "if uuid.uuid4().int % 10**12 == 7:" + RARE,
    "the system's generator": "if random.SystemRandom().random() < 1e-12:" + RARE,
    "python's without a seed": "if random.Random().random() < 1e-12:" + RARE,
    "numpy's without a seed": "if np.random.default_rng().random() < 1e-12:" + RARE,
    "numpy's old one without a seed": "if np.random.RandomState().rand() < 1e-12:" + RARE,
    "torch's without a seed": "g = torch.Generator()\ng.seed()\nif torch.rand(1, generator=g).item() < 1e-12:" + RARE,
}
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
    "global": ("", "KEPT = {}", "KEPT"),
    "class attribute": ("", "Module.kept = {}", "self.kept"),
    "list": ("self.parts = [1, {}]", "", "self.parts[1]"),
    "dict of a global": ("", "TABLE = {{'kept': {}}}", "TABLE['kept']"),
    "plain object": ("self.holder = Holder()", "class Holder:\n    def __init__(self):\n        self.kept = {}",
                     "self.holder.kept"),
    "slots": ("", "class Slotted:\n    __slots__ = ('kept',)\nSLOTTED = Slotted()\nSLOTTED.kept = {}", "SLOTTED.kept"),
    "closure": ("self.get = closed()", "def closed():\n    kept = {}\n    return lambda: kept", "self.get()"),
    "default": ("", "def given(kept={}):\n    return kept", "given()"),
    "function attribute": ("", "def marked():\n    return marked.kept\nmarked.kept = {}", "marked()"),
    "partial": ("", "import functools\nPART = functools.partial(lambda kept: kept, {})", "PART()"),
    "namespace": ("self.space = types.SimpleNamespace(kept={})", "import types", "self.space.kept"),
}  # fmt: skip
# What counts calls: a value, and an expression that is larger with each call.
COUNTS = {
    "itertools.count": ("itertools.count()", "next({})"),
    "generator": ("(i for i in range(10**9))", "next({})"),
    "iterator": ("iter(range(10**9))", "next({})"),
    "list": ("[0]", "count_in_list({})"),
    "dict": ("{{}}", "count_in_dict({})"),
    "set": ("set()", "count_in_set({})"),
    "deque": ("collections.deque([0], 1)", "count_in_list({})"),
    "tensor": ("torch.zeros(())", "{}.add_(1).item()"),
    "array": ("np.zeros(1)", "count_in_list({})"),
    "bytes": ("bytearray(8)", "count_in_list({})"),
    "object": ("Counter()", "{}.more()"),
}
OF_COUNTS = """
import collections, datetime, itertools, os, secrets, time, uuid

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


@pytest.mark.parametrize("body", CLOCKS.values(), ids=CLOCKS)
def test_a_clock_is_not_verified(body: str, tmp_path: Path) -> None:
    expect(reason_open(tmp_path, body, OF_CLOCKS), "trace-open", ".py:")


@pytest.mark.parametrize("body", ENTROPY.values(), ids=ENTROPY)
def test_entropy_is_not_verified(body: str, tmp_path: Path) -> None:
    expect(reason_open(tmp_path, body, OF_COUNTS), "trace-open", ".py:")


@pytest.mark.parametrize("form", ["y = y + {} * 1e6 % 7", "y = y * (1 + {} * 1e6 % 7)", "y[:, 0] = {} * 1e6 % 7"])
@pytest.mark.parametrize("clock", ["time.perf_counter()", "time.time()", "int.from_bytes(os.urandom(4)) / 2.0**32"])
def test_a_clock_that_outputs_follow_is_refused(form: str, clock: str, tmp_path: Path) -> None:
    with raises("module-varies"):
        traced(tmp_path, form.format(clock), outside=OF_COUNTS)


@pytest.mark.parametrize(("generator", "place"), in_places(GENERATORS))
def test_a_rare_draw_of_a_generator_of_its_own_is_not_verified(generator: str, place: str, tmp_path: Path) -> None:
    init, outside, drawn = kept(place, *GENERATORS[generator])
    expect(reason_open(tmp_path, f"if {drawn} < 1e-12:" + RARE, outside, init), "trace-open")


@pytest.mark.parametrize("seed", first_of(range(8)))
def test_draws_of_a_generator_of_its_own_are_refused(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    init, outside, drawn = kept(rng.choice(list(PLACES)), *GENERATORS[rng.choice(list(GENERATORS))])
    form = rng.choice(["y = y + {}", "y = y * (1 + {})", "y = torch.nn.functional.pad(y[:, 1:], (0, 1), value={})"])
    with raises("module-varies"):
        traced(tmp_path, form.format(drawn), outside=outside, init=init)


@pytest.mark.parametrize(("count", "place"), in_places(COUNTS))
def test_a_count_of_calls_is_not_verified(count: str, place: str, tmp_path: Path) -> None:
    init, outside, counted = kept(place, *COUNTS[count])
    expect(reason_open(tmp_path, f"if {counted} > 1000:" + RARE, outside, init), "trace-open")


CAUGHT = {
    "torch._assert": "try:\n    torch._assert(x.max() < 1.5, '')\nexcept AssertionError:\n    y = y * 0",
    "a test of torch's": "try:\n    torch.testing.assert_close(x, x.clamp(max=1.5))\nexcept Exception:\n    y = y * 0",
    "linear algebra": "try:\n    torch.linalg.cholesky(x[0, 0] @ x[0, 0].T + torch.eye(8))\n"
    "except (TypeError, torch.linalg.LinAlgError):\n    y = y * 0",
    "an index": "try:\n    y = y + self.scale.expand(9)[(x.amax((1, 2, 3)) * 2).long()][:, None] * 0\n"
    "except IndexError:\n    y = y * 0",
    "all": "try:\n    torch._assert(x.max() < 1.5, '')\nexcept:\n    y = y * 0",
    "in a helper": "y = y * helper(x)",
    "suppressed": "with contextlib.suppress(AssertionError):\n    torch._assert(x.max() < 1.5, '')\n    y = y + 0",
}
OF_CAUGHT = """
def helper(x):
    try:
        torch._assert(x.max() < 1.5, '')
    except Exception as error:
        return 0
    return 1
"""


@pytest.mark.parametrize("body", CAUGHT.values(), ids=CAUGHT)
def test_an_error_of_an_operation_that_is_caught_is_not_verified(body: str, tmp_path: Path) -> None:
    expect(reason_open(tmp_path, body, OF_CAUGHT), "trace-open", ".py:")


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


COUNTERS = {
    "global": ("global CALLS\nCALLS += 1\nif CALLS > 1000:" + RARE, "CALLS = 0"),
    "class attribute": ("Module.count += 1\nif Module.count > 1000:" + RARE, "Module.count = 0"),
    "attribute of a class of its own": (
        "Total.count += 1\nif Total.count > 1000:" + RARE,
        "class Total:\n    count = 0",
    ),
    "nonlocal": (
        "if COUNTED() > 1000:" + RARE,
        "def counter():\n    n = 0\n    def more():\n        nonlocal n\n        n += 1\n        return n\n"
        "    return more\nCOUNTED = counter()",
    ),
    "a decorator": (
        "if helper() > 1000:" + RARE,
        "def counting(function):\n    n = 0\n    def more():\n        nonlocal n\n        n += 1\n        return n\n"
        "    return more\n@counting\ndef helper():\n    return 1",
    ),
    "function attribute": (
        "if more() > 1000:" + RARE,
        "def more():\n    more.n += 1\n    return more.n\nmore.n = 0",
    ),
    "by the name of the global": (
        "globals()['CALLS'] += 1\nif CALLS > 1000:" + RARE,
        "CALLS = 0",
    ),
    "context variable": (
        "CALLS.set(CALLS.get() + 1)\nif CALLS.get() > 1000:" + RARE,
        "import contextvars\nCALLS = contextvars.ContextVar('calls', default=0)",
    ),
    "written to a helper of the module's": (
        "self.conv.count = getattr(self.conv, 'count', 0) + 1\nif self.conv.count > 1000:" + RARE,
        "",
    ),
    "a network that is no part": (
        "EXTRA.running_mean.add_(1e-12)\nif EXTRA.num_batches_tracked.add_(1) > 1000:" + RARE,
        "EXTRA = torch.nn.BatchNorm2d(3)",
    ),
}


@pytest.mark.parametrize("name", COUNTERS)
def test_a_counter_outside_the_module_is_not_verified(name: str, tmp_path: Path) -> None:
    body, outside = COUNTERS[name]
    expect(reason_open(tmp_path, body, outside), "trace-open")


@pytest.mark.parametrize("name", COUNTERS)
def test_a_counter_outside_that_outputs_follow_is_refused(name: str, tmp_path: Path) -> None:
    body, outside = COUNTERS[name]
    with raises("module-varies"):
        traced(tmp_path, body.replace("> 1000", "% 2 == 0"), outside=outside)


def package(folder: Path, name: str, text: str) -> str:
    """A statement that imports a module from a file in `folder`, in reach of Python."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.py").write_text(text)
    return f"import sys\nsys.path.insert(0, {str(folder)!r})\nimport {name}\nsys.path.remove({str(folder)!r})"


COUNTING = "CALLS = 0\ndef more():\n    global CALLS\n    CALLS += 1\n    return CALLS\n"


@pytest.fixture()
def modules_as_they_were() -> Iterator[None]:
    before = set(sys.modules)
    yield
    for name in set(sys.modules) - before:
        if name.startswith(("counting_", "written_")):
            del sys.modules[name]


@pytest.mark.usefixtures("modules_as_they_were")
@pytest.mark.parametrize("use", ["counting_a.more()", "counting_a.__dict__['more']()"])
def test_a_counter_of_a_helper_module_is_not_verified(use: str, tmp_path: Path) -> None:
    outside = package(tmp_path, "counting_a", COUNTING)
    expect(reason_open(tmp_path, f"if {use} > 1000:" + RARE, outside), "trace-open", "counting_a.py")


# What the first call leaves is there at the second, so that torch agrees with itself, and with the file.
FIRST_INPUT = {
    "global": ("global GRID\nif GRID is None:\n    GRID = x.mean()\ny = y * GRID", "GRID = None", ""),
    "class attribute": ("if Module.first is None:\n    Module.first = x.mean()\ny = y * self.first",
                        "Module.first = None", ""),
    "dict": ("y = y * CACHE.setdefault('mean', x.mean())", "CACHE = {}", ""),
    "list": ("if not SEEN:\n    SEEN.append(x.mean())\ny = y * SEEN[0]", "SEEN = []", ""),
    "plain object": ("self.o.first = getattr(self.o, 'first', x.mean())\ny = y * self.o.first",
                     "class O:\n    pass", "self.o = O()"),
    "tensor": ("if MEAN == 0:\n    MEAN.add_(x.mean())\ny = y * MEAN", "MEAN = torch.zeros(())", ""),
    "default argument": ("y = y * first(x)", "def first(x, kept=[]):\n    if not kept:\n        kept.append(x.mean())\n"
                         "    return kept[0]", ""),
    "nonlocal": ("y = y * FIRST(x)", "def closed():\n    kept = None\n    def first(x):\n        nonlocal kept\n"
                 "        kept = x.mean() if kept is None else kept\n        return kept\n    return first\n"
                 "FIRST = closed()", ""),
    "function attribute": ("y = y * first(x)", "def first(x):\n    first.kept = getattr(first, 'kept', x.mean())\n"
                           "    return first.kept", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", FIRST_INPUT)
def test_what_the_first_input_leaves_outside_is_refused(name: str, tmp_path: Path) -> None:
    body, outside, init = FIRST_INPUT[name]
    with raises("module-varies"):
        traced(tmp_path, body, outside=outside, init=init)


FINE = {
    "a clock in __init__": ("y = y * (1 if self.born > 0 else 2)", "", "self.born = __import__('time').time()"),
    "a memo by size": ("y = y * MEMO.setdefault(tuple(x.shape[2:]), torch.ones(4) * 2)", "MEMO = {}", ""),
    "a cache by size": ("k = tuple(x.shape[2:])\nif k not in self.kept:\n    self.kept[k] = torch.ones(4)\n"
                        "y = y + self.kept[k]", "", "self.kept = {}"),
    "lru_cache": ("y = y * scale(x.shape[2])",
                  "import functools\n@functools.lru_cache(maxsize=2)\ndef scale(n):\n    return 1 / n", ""),
    "logging": ("LOG.warning('a batch')", "", ""),
    "logging to a handler": ("LOG.error('a batch')",
                             "LOG.addHandler(logging.StreamHandler(__import__('io').StringIO()))", ""),
    "a warning": ("warnings.warn('once')", "", ""),
    "a seed in forward": ("y = y + random.Random(3).random() + np.random.default_rng(3).random()", "", ""),
    "a seed of torch's": ("y = y + torch.rand(4, generator=torch.Generator().manual_seed(3)).sum().item()", "", ""),
    "a count within a call": ("n = 0\ndef more():\n    nonlocal n\n    n += 1\nmore()\ny = y * n", "", ""),
    "a generator within a call": ("n = itertools.count(2)\ny = y * next(n)", "import itertools", ""),
    "the same list anew": ("self.sizes = [int(x.shape[2]), 8]\ny = y * self.sizes[0]", "", ""),
    "the same dict anew": ("global SIZES\nSIZES = {'h': [8, 8]}\ny = y * SIZES['h'][0]", "SIZES = None", ""),
    "a constant that is made late": ("global GRID\nif GRID is None:\n    GRID = torch.ones(4)\ny = y * GRID",
                                     "GRID = None", ""),
    "buffers": ("y = y - self.mean + self.extra", "", "self.register_buffer('extra', torch.ones(4))"),
    "constants of the file": ("y = y * SCALES['a'][0] + TABLE[0]",
                              "SCALES = {'a': [2.0]}\nTABLE = np.ones(4, 'f')", ""),
    "a constant of a class": ("y = y * self.factor", "Module.factor = 3.0", ""),
    "norms": ("y = self.norm(y)", "", "self.norm = torch.nn.BatchNorm1d(4)"),
    "dropout": ("y = self.drop(y)", "", "self.drop = torch.nn.Dropout(0.5)"),
    "a generator that rests": ("y = y * 2", "RNG = random.Random(1)", "self.rng = np.random.default_rng(2)"),
    "an activation by name": ("y = ACT['relu'](y)", "ACT = {'relu': torch.nn.functional.relu}", ""),
    "a partial": ("y = self.act(y)", "import functools",
                  "self.act = __import__('functools').partial(torch.clamp, min=0.5)"),
    "a dataclass": ("y = y * Sizes(2, 3).w",
                    "import dataclasses\n@dataclasses.dataclass(frozen=True)\nclass Sizes:\n    h: int\n    w: int",
                    ""),
    "an enumeration": ("y = y * Mode(2).value", "import enum\nclass Mode(enum.Enum):\n    A = 1\n    B = 2", ""),
    "an error that no value raises": (
        "try:\n    y = y * self.lacking\nexcept AttributeError:\n    y = y * 2\n"
        "try:\n    import lacking\nexcept ImportError:\n    y = y + 1\n"
        "try:\n    y = y + 1\nexcept RuntimeError as error:\n    raise ValueError('no') from error", "", ""),
    "a path": ("y = y * len(ROOT.name)", "from pathlib import Path\nROOT = Path('/a/b')", ""),
}  # fmt: skip


@pytest.mark.parametrize("name", FINE)
def test_what_changes_no_output_is_no_alarm(name: str, tmp_path: Path) -> None:
    body, outside, init = FINE[name]
    report = traced(tmp_path, body, outside=outside, init=init)
    assert report["parity"]["status"] == "verified" and report["baked"]["open"] == [], report["baked"]


@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 5))])
def test_what_rests_in_any_place_is_no_alarm(seed: int, tmp_path: Path) -> None:
    rng = random.Random(seed)
    value = rng.choice([made for made, _ in (*COUNTS.values(), *GENERATORS.values())])
    init, outside, use = kept(rng.choice(list(PLACES)), value, "{}")
    report = traced(tmp_path, f"y = y * (2 if {use} is not None else 3)", outside=outside, init=init)
    assert report["parity"]["status"] == "verified" and report["baked"]["open"] == [], report["baked"]


@pytest.mark.usefixtures("modules_as_they_were")
def test_what_an_installed_package_counts_is_no_alarm(tmp_path: Path) -> None:
    counting = COUNTING + "import time\nLAST = []\ndef tick():\n    LAST.append(time.monotonic())\n    return more()\n"
    outside = package(tmp_path / "site-packages", "counting_b", counting)
    report = traced(tmp_path, "counting_b.tick()", outside=outside)
    assert report["parity"]["status"] == "verified" and report["baked"]["open"] == [], report["baked"]
