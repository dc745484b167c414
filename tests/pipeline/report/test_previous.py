"""The difference of a run to the previous one of the same model, on its page."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from pipeline.report.page import content, main, render
from pipeline.workspace import PROJECT_VARIABLE
from tests.configurations import write_params
from tests.conftest import ROOT
from tests.pipeline.report.test_page import REPORTS, VERIFY, folder, write  # noqa: F401


def ran(folder: Path, *overrides: str, **verify: Any) -> Any:  # noqa: F811
    """The difference that the page of a run shows."""
    write_params(folder, *overrides)
    write(folder / "reports/verify.json", VERIFY | verify)
    main()
    return content(folder)["previous"]


@pytest.fixture(autouse=True)
def here(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    (folder / "dvc.yaml").touch()  # what makes it a workspace
    monkeypatch.chdir(folder)


def test_options_and_figures_that_differ(folder: Path) -> None:  # noqa: F811
    assert ran(folder) is None, "the first run of this model"
    found = ran(folder, "precision.data_max=128", ap50_95=0.79, matched_fraction=0.5)
    assert found["options"] == [{"name": "precision.data_max", "before": found["options"][0]["before"], "now": "128"}]
    assert found["figures"] == [
        {"name": "AP50-95", "before": "0.8000", "now": "0.7900"},
        {"name": "matched", "before": "99.50 %", "now": "50.00 %"},
    ]
    assert "verdict" in found["same"] and len(found["same"]) == 8
    assert 'id="previous"' in render(folder) and "precision.data_max" in render(folder)
    assert ran(folder, "precision.data_max=128", ap50_95=0.79, matched_fraction=0.5) == found, "drawn again"
    assert (folder / "runs/.last").is_dir(), "which neither git nor DVC looks at"


@pytest.mark.parametrize("other", [("decoder=rtdetrv2",), ("model.name=other",), ("decoder=rtdetrv2", "model.name=a")])
def test_another_model_is_no_previous_run(folder: Path, other: tuple[str, ...]) -> None:  # noqa: F811
    ran(folder)
    assert ran(folder, *other) is None
    assert ran(folder, ap50_95=0.1)["figures"][0]["before"] == "0.8000", "of its own model"


def test_in_fp32_options_without_effect_are_no_difference(folder: Path) -> None:  # noqa: F811
    ran(folder)
    assert [row["name"] for row in ran(folder, "precision=fp32")["options"]] == ["precision.dtype"]


def test_the_page_is_no_out_of_dvc() -> None:
    """What differs from the run before is no function of what a stage reads."""
    stages = yaml.safe_load((ROOT / "dvc.yaml").read_text())["stages"]
    outs = [str(out) for stage in stages.values() for kind in ("outs", "metrics") for out in stage.get(kind, [])]
    assert "reports/metrics.json" in outs and not any("report.html" in out or "runs" in out for out in outs)
    assert stages["track"]["always_changed"], "which draws it"


@pytest.mark.parametrize("broken", ["reports/verify.json", "params.yaml"])
def test_a_run_that_came_to_nothing_is_not_remembered(folder: Path, broken: str) -> None:  # noqa: F811
    ran(folder)
    (folder / broken).unlink()
    main()
    assert content(folder)["previous"] is None
    assert ran(folder, ap50_95=0.1)["figures"][0]["before"] == "0.8000"


def test_a_run_that_crashed_compares_nothing(folder: Path) -> None:  # noqa: F811
    ran(folder)
    ran(folder, ap50_95=0.1)
    write(folder / "reports/error.json", {"stage": "engine", "message": "no"})
    main()
    assert content(folder)["previous"] is None


def test_a_job_in_a_folder_remembers_in_its_project(
    folder: Path,  # noqa: F811
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    project = tmp_path_factory.mktemp("project")
    monkeypatch.setenv(PROJECT_VARIABLE, str(project))
    ran(folder)
    assert ran(folder, ap50_95=0.1)["figures"] and (project / "runs/.last").is_dir()
