"""search=frontier: what is run, in what order, and what is chosen, on runs whose verdict is a formula of their pins."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import mlflow
import pytest
import yaml

from pipeline.forms import Section
from pipeline.search import Stopped, frontier, searching, tracked
from pipeline.sweep.sweep import Sweep
from pipeline.track import track
from pipeline.workspace import write_params
from tests.configurations import composed
from tests.conftest import in_workspace
from tests.messages import expect
from tests.pipeline.small_project import Ran, line_with, make_chain
from tests.pipeline.tracking.test_registry import verified_run
from truehalf.config.params import read_params

PARTS = [{"node_block_list": [], "scope_block_list": [f"module.part{number}"]} for number in range(64)]


class Chain:
    """Runs that pass where at least `needed` parts are FP32; the share of FP32 arithmetic is what they pin."""

    def __init__(self, folder: Path, passes: Callable[[int, float | None], bool | None]) -> None:
        self.folder, self.passes = folder, passes
        self.ran: list[tuple[int, float | None]] = []
        self.registers: list[bool] = []
        self.asked: list[tuple[int, int]] = []
        self.code: Callable[[int], int] = lambda number: 0
        self.all = 100  # so many parts in FP32 leave nothing in FP16, for which no engine is built

    def once(self, values: Mapping[str, Any]) -> tuple[int, Path]:
        assert not searching(values)
        precision = values["precision"]
        pinned = len(precision["scope_block_list"])
        self.ran.append((pinned, precision["data_max"]))
        self.registers.append(values["tracking"]["register"])
        place = self.folder / f"run{len(self.ran)}"
        write_params(place, values)
        passed = self.passes(pinned, precision["data_max"])
        verdict = {True: "passed", False: "failed", None: "not verified"}[passed]
        of_rule = 0.5 if precision["data_max"] is not None else 0.0
        reports = {
            "verify": {"verdict": verdict, "status": "failed" if verdict == "failed" else "done"},
            "fp16": {"fp16_arithmetic": 1 - pinned / 100 - of_rule if pinned < self.all else 0.0},
        }
        (place / "reports").mkdir()
        for name, report in reports.items():
            (place / "reports" / f"{name}.json").write_text(json.dumps(report))
        return self.code(len(self.ran)) or int(verdict == "failed" or pinned >= self.all), place

    def parts_of(self, count: int, samples: int) -> list[Section]:
        self.asked.append((count, samples))
        return PARTS[:count]


def values(runs: int = 8, *overrides: str, **precision: Any) -> dict[str, Any]:
    config = composed("search=frontier", f"search.runs={runs}", *overrides)
    return config | {"precision": config["precision"] | precision}


def test_where_no_limit_is_needed_the_cheapest_run_is_the_second(tmp_path: Path) -> None:
    chain = Chain(tmp_path, lambda pinned, limit: True)
    step = frontier(values(), chain.once, chain.parts_of)
    assert chain.ran == [(0, 512.0), (0, None)] and not chain.asked
    assert step.folder.name == "run2" and step.code == 0


@pytest.mark.parametrize("needed", [1, 2, 31, 40, 63])
def test_the_fewest_parts_that_pass_are_found_within_the_budget(needed: int, tmp_path: Path) -> None:
    chain = Chain(tmp_path, lambda pinned, limit: pinned >= needed)
    step = frontier(values(), chain.once, chain.parts_of)
    assert chain.asked == [(64, 4)] and len(chain.ran[:8]) == len(set(chain.ran)) == 8
    assert chain.ran[-1] == (needed, None), "the workspace holds the chosen run"
    assert len(step.values["precision"]["scope_block_list"]) == needed and step.values["precision"]["data_max"] is None
    kept = yaml.safe_load((step.folder / "experiment.yaml").read_text())["precision"]
    assert (
        kept["scope_block_list"] == [part["scope_block_list"][0] for part in PARTS[:needed]]
        and kept["data_max"] is None
    )


def test_the_configuration_itself_is_chosen_where_it_is_cheaper(tmp_path: Path) -> None:
    chain = Chain(tmp_path, lambda pinned, limit: limit is not None or pinned >= 60)
    step = frontier(values(), chain.once, chain.parts_of)
    assert step.folder.name == "run1" and chain.ran[-1] == (0, 512.0)


def test_a_configuration_without_limit_is_not_run_twice_and_its_lists_stay(tmp_path: Path) -> None:
    chain = Chain(tmp_path, lambda pinned, limit: pinned >= 3)
    config = values(runs=5, data_max=None, scope_block_list=["mine"], node_block_list=["^my node$"])
    step = frontier(config, chain.once, chain.parts_of)
    assert chain.asked == [(16, 4)] and len(set(chain.ran)) == 5 and chain.ran[0] == (1, None)
    assert step.values["precision"]["scope_block_list"] == ["mine", "module.part0", "module.part1"]
    assert step.values["precision"]["node_block_list"] == ["^my node$"]


def test_where_nothing_passes_it_says_so_and_ends_as_failed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chain = Chain(tmp_path, lambda pinned, limit: False)
    step = frontier(values(runs=4), chain.once, chain.parts_of)
    assert step.code == 1
    expect(line_with("none-passed", capsys.readouterr().err), None, "search")


def test_what_leaves_nothing_in_fp16_is_too_much(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chain = Chain(tmp_path, lambda pinned, limit: pinned >= 2)
    chain.all = 4
    assert frontier(values(runs=5), chain.once, chain.parts_of).folder.name == "run4"
    assert chain.ran[2:] == [(4, None), (2, None), (1, None), (2, None)]
    chain = Chain(tmp_path / "none", lambda pinned, limit: pinned >= 4)
    chain.all = 4
    step = frontier(values(runs=4), chain.once, chain.parts_of)
    assert step.code == 1
    expect(line_with("none-passed", capsys.readouterr().err), None, "search.runs")


def test_where_gates_have_no_value_it_does_not_spend_the_budget(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chain = Chain(tmp_path, lambda pinned, limit: None)
    step = frontier(values(), chain.once, chain.parts_of)
    assert len(chain.ran) == 1 and not step.passed
    expect(line_with("nothing-verified", capsys.readouterr().err), None, "search")


def test_ctrl_c_ends_the_search(tmp_path: Path) -> None:
    chain = Chain(tmp_path, lambda pinned, limit: False)
    chain.code = lambda number: 130 if number == 2 else 0
    with pytest.raises(Stopped) as stopped:
        frontier(values(), chain.once, chain.parts_of)
    assert stopped.value.code == 130 and len(chain.ran) == 2


@pytest.mark.parametrize("code", [130, 1])
def test_a_chosen_step_that_does_not_come_back_ends_the_search(
    code: int, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    chain = Chain(tmp_path, lambda pinned, limit: limit is not None)
    chain.code = lambda number: code if number == 9 else 0
    with pytest.raises(Stopped) as stopped:
        frontier(values(), chain.once, chain.parts_of)
    said = capsys.readouterr()
    assert len(chain.ran) == 9 and stopped.value.code == code
    expect(line_with("step-not-restored", said.err), None, "search", code)
    (file,) = tmp_path.glob("*/experiment.yaml")
    assert str(file) in said.out, "it is known"


def test_no_step_is_registered_but_the_chosen_one_after_the_choice(tmp_path: Path) -> None:
    last = Chain(tmp_path / "last", lambda pinned, limit: True)
    frontier(values(8, "tracking.register=true"), last.once, last.parts_of)
    assert last.ran == [(0, 512.0), (0, None), (0, None)] and last.registers == [False, False, True]
    first = Chain(tmp_path / "first", lambda pinned, limit: limit is not None)
    frontier(values(3, "tracking.register=true"), first.once, first.parts_of)
    assert first.ran[-1] == first.ran[0] and first.registers == [False, False, False, True]


def test_of_a_search_the_registry_has_the_chosen_run_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{tmp_path / 'mlflow.db'}")
    outcomes = []

    def once(values: Mapping[str, Any]) -> tuple[int, Path]:
        share = 0.9 if values["precision"]["data_max"] is None else 0.5
        (verified_run(tmp_path) / "reports/fp16.json").write_text(json.dumps({"fp16_arithmetic": share}))
        write_params(tmp_path, values)
        outcomes.append(track(tmp_path))
        return 0, tmp_path

    frontier(values(8, "tracking.register=true"), once, lambda count, samples: [])
    assert [outcome["status"] for outcome in outcomes] == ["logged", "logged", "already logged"]
    versions = mlflow.MlflowClient().search_model_versions()
    assert [version.run_id for version in versions] == [outcomes[1]["run_id"]]


@pytest.mark.slow
def test_the_chosen_step_has_one_folder_also_where_it_is_registered(tmp_path: Path) -> None:
    workspace, ran = make_chain(tmp_path / "workspace"), Ran(tmp_path / "ran")
    told = ("search=frontier", "tracking.register=true")
    done = in_workspace(workspace, "python", "-m", "pipeline", *told, env={"RAN": str(ran.path)})
    assert done.returncode == 0, done.stdout + done.stderr
    kept = [path.parent for path in (workspace / "runs").glob("*/params.yaml")]
    assert len(kept) == 2 and len(ran.names()) == 3, "what was chosen came back from the cache"
    assert read_params(workspace)["tracking"]["register"]
    (chosen,) = [place for place in kept if (place / "experiment.yaml").exists()]
    assert read_params(chosen) == read_params(workspace)


def test_its_runs_are_those_of_one_sweep(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TRUEHALF_SWEEP", raising=False)
    with tracked(values(), tmp_path, ["search=frontier"]):
        own = Sweep.joined()
        assert own is not None and own.id.startswith("search-")
        with tracked(values(), tmp_path, ["search=frontier"]):
            assert Sweep.joined() == own
        assert Sweep.joined() == own
    assert Sweep.joined() is None
