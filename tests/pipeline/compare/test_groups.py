"""Runs of one model and number of samples are rivals; others stand apart, wherever the runs come from."""

import itertools
import re
from dataclasses import replace
from pathlib import Path
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pipeline.compare.compare import in_groups, page, table
from pipeline.compare.compared_runs import ComparedRun, NothingToCompare, gathered, of_folders
from pipeline.compare.frontier import COSTS, ERRORS, measured
from pipeline.compare.frontier_plot import drawn
from pipeline.compare.terminal import print_tables
from pipeline.track import track
from tests.browser import needs_chromium, shown
from tests.messages import expect, raises
from tests.pipeline.compare.test_compare import made
from tests.pipeline.empty_store import with_empty_store

NUMBERS = {"accuracy/ap50_95_drop": 0.01, "accuracy/box_error_px_p99": 0.2, "size_mb/cast_cleanup": 6.0}


def run(name: str, model: str = "m", samples: str = "8", verdict: str = "passed", **more: str) -> ComparedRun:
    params = {"model.name": model, "data.verification_samples": samples, **more}
    return ComparedRun(name, name, params, NUMBERS, verdict, lambda: None, page=f"/runs/{name}/report.html")


@pytest.mark.parametrize(
    ("other", "apart"),
    [
        (run("b", model="n"), True),
        (run("b", samples="16"), True),
        (run("b", **{"data.source": "coco"}), True),
        (run("b", **{"verify.first_samples": "4"}), True),
        (run("b", **{"verify.first_samples": "32"}), False),
        (run("b", **{"verify.first_samples": "null"}), False),
        (run("b", **{"decoder.name": "other"}), False),
    ],
)
def test_runs_of_other_models_and_numbers_of_samples_are_no_rivals(other: ComparedRun, apart: bool) -> None:
    rows = table(in_groups([run("a"), other]))
    assert [row["chosen"] for row in rows] == ([True, True] if apart else [True, False])
    assert len({row["group"] for row in rows}) == (2 if apart else 1)
    assert [row["number"] for row in rows] == [1, 2]


def test_only_keys_that_differ_within_a_group_are_in_its_labels() -> None:
    runs = [run("a", seed="1"), run("b", seed="2"), run("c", model="n", seed="3")]
    assert [row["label"] for row in table(runs)] == ["seed=1", "seed=2", "c"]


@given(st.lists(st.tuples(st.sampled_from("mn"), st.sampled_from(["8", "16"])), min_size=1, max_size=8))
def test_groups_stand_together_and_rank_alone(made_of: list[tuple[str, str]]) -> None:
    runs = in_groups([run(str(n), *each) for n, each in enumerate(made_of)])
    rows = table(runs)
    groups = [str(row["group"]) for row in rows]
    assert len(set(groups)) == 1 + sum(a != b for a, b in itertools.pairwise(groups))
    for group in set(groups):
        own = [row for row in runs if row.group == group]
        alone = [row | {"number": 0} for row in table(own)]
        assert [row | {"number": 0} for row in rows if row["group"] == group] == alone


def test_runs_of_folders_and_of_all_experiments_are_listed_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    with raises("no-runs", error=NothingToCompare):
        gathered(tmp_path)
    made(tmp_path / "runs/kept", "seed=1")
    with_empty_store(tmp_path)
    monkeypatch.setenv("TRUEHALF_PROJECT", str(tmp_path))
    for number, experiment in ((1, "truehalf"), (2, "other"), (3, "truehalf")):
        track(made(tmp_path / f"elsewhere{number}", f"seed={number}", f"tracking.experiment={experiment}"))
    found = gathered(tmp_path)
    assert [found[0].name, *sorted(each.params["seed"] for each in found)] == ["kept", "1", "2", "3"]
    assert "compare:" not in capsys.readouterr().err
    (tmp_path / "mlflow.db").write_text("no database")
    assert [each.name for each in gathered(tmp_path)] == ["kept"]
    expect(capsys.readouterr().err, "server-fails", tmp_path / "mlflow.db")


def test_a_row_links_the_page_of_its_run(tmp_path: Path) -> None:
    folder = made(tmp_path / "runs/a b")
    (folder / "reports/report.html").write_text("page")
    runs = of_folders(tmp_path)
    (link,) = re.findall(r'<a href="([^"]+)"', page(runs, table(runs), tmp_path / "runs"))
    assert (tmp_path / "runs" / unquote(link)).read_text() == "page" and not link.startswith("/")


@pytest.mark.parametrize("columns", [40, 80, 119, 120, 170])
def test_a_terminal_of_any_width_shows_all(
    columns: int, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", str(columns))
    print_tables(table([run("a", seed="1", long="Q" * 30), run("b", seed="2", long="Z" * 30, verdict="failed")]))
    text = capsys.readouterr().out
    assert max(map(len, text.splitlines())) <= columns and "…" not in text
    flat = re.sub(r"[\s│┃]+", "", text)
    for fact in ("seed=1", "seed=2", "0.01", "0.2", "failed", "2of2", "0of2"):
        assert fact in flat, fact
    assert (flat.count("Q"), flat.count("Z")) == (30, 30)


def test_the_picture_is_of_runs_that_have_not_failed_and_numbers_at_one_point_stand_together() -> None:
    others = [run("a"), run("b"), replace(run("c"), numbers={key: 2 * value for key, value in NUMBERS.items()})]
    broken = replace(run("d", verdict="failed"), numbers=dict.fromkeys(NUMBERS, 1000000000.0))
    axes = measured(ERRORS, others), measured(COSTS, others)
    text = drawn([*others, broken], axes, 0)
    assert ">1, 2<" in text and ">3<" in text and ">4<" not in text
    assert text == drawn(others, axes, 0)


@needs_chromium
def test_a_heading_sorts_and_unmeasured_values_stay_last(tmp_path: Path) -> None:
    drops = {"a": 0.2, "b": None, "c": 0.1}
    numbers = [NUMBERS | {"accuracy/ap50_95_drop": drop} for drop in drops.values()]
    runs = [
        replace(run(name), numbers={key: value for key, value in own.items() if value is not None})
        for name, own in zip(drops, numbers, strict=True)
    ]
    text = page(runs, table(runs), tmp_path)
    for clicks, expected in enumerate(("abc", "cab", "acb")):
        click = "document.querySelectorAll('th button')[3].click();" * clicks
        file = tmp_path / f"{clicks}.html"
        file.write_text(text.replace("</script>", f"{click}</script>"))
        html, errors = shown(file, tmp_path / "browser")
        assert errors == [] and "".join(re.findall(r"<code>(\w)</code>", html)) == expected
