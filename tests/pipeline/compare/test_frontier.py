"""The frontier is what no other run beats, and the chosen run is inside its gates."""

from hypothesis import given
from hypothesis import strategies as st

from pipeline.compare.compared_runs import ComparedRun
from pipeline.compare.frontier import COSTS, ERRORS, chosen, front, measured


def run(name: str, verdict: str = "passed", **numbers: float) -> ComparedRun:
    names = {
        "latency": "engine/p50_ms/profile0_opt",
        "fp16": "fp16/arithmetic_fp16_fraction",
        "cast": "fp16/cast_mb/placed",
        "size": "size_mb/cast_cleanup",
        "drop": "accuracy/ap50_95_drop",
    }
    return ComparedRun(name, name, {}, {names[key]: value for key, value in numbers.items()}, verdict, lambda: None)


points = st.lists(st.none() | st.tuples(st.integers(0, 6).map(float), st.integers(0, 6).map(float)), max_size=12)


@given(points)
def test_the_front_is_what_no_point_beats(values: list[tuple[float, float] | None]) -> None:
    def beaten(point: tuple[float, float]) -> bool:
        return any(
            other is not None and other != point and other[0] <= point[0] and other[1] <= point[1] for other in values
        )

    assert front(values) == [i for i, point in enumerate(values) if point is not None and not beaten(point)]


def test_the_cheapest_run_inside_its_gates_is_chosen() -> None:
    runs = [
        run("cheap but wrong", "failed", fp16=1.0, cast=0.0, size=5.0),
        run("fp32", fp16=0.0, cast=0.0, size=11.0),
        run("more casts", fp16=0.99, cast=0.7, size=6.0),
        run("fewer casts", fp16=0.99, cast=0.6, size=6.0),
    ]
    assert chosen(runs) == 3
    assert chosen(runs[:1]) is None and chosen([]) is None


def test_latency_decides_only_where_all_that_passed_have_one() -> None:
    slow, fast = run("slow", fp16=1.0, latency=2.0), run("fast", fp16=0.5, latency=1.0)
    assert chosen([slow, fast]) == 1
    assert chosen([slow, fast, run("not timed", fp16=0.9)]) == 0
    assert chosen([slow, fast, run("failed and not timed", "failed", fp16=0.9)]) == 1


def test_what_was_measured_is_an_axis_and_a_fraction_becomes_what_it_lacks() -> None:
    runs = [run("a", fp16=0.75, drop=-0.001)]
    assert [axis.key for axis in measured(ERRORS, runs)] == ["ap_drop"]
    (share,) = measured(COSTS, runs)
    assert share.key == "fp32_share" and share.of(runs[0].numbers) == 25.0
