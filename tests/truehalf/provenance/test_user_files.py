"""What the user's code comes from: the file, what it imports of the workspace, and installed packages as a whole."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from truehalf.provenance.user_files import user_files


def written(root: Path, **files: str) -> None:
    """Files by their place, "__" for "/" and without ".py"; "__init" at the end is an __init__.py."""
    for name, text in files.items():
        path = root / (name.replace("__init", "__INIT").replace("__", "/").replace("INIT", "__init__") + ".py")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)


def names(root: Path, *named: str) -> list[str]:
    return [path.relative_to(root).as_posix() for path in user_files(named, root)]


def test_modules_beside_it_that_it_imports_transitively(tmp_path: Path) -> None:
    written(tmp_path, mine="import helper\n", helper="def f():\n    from further import x\n", further="import mine\n")
    written(tmp_path, unused="")
    assert names(tmp_path, "mine:build") == ["mine.py", "helper.py", "further.py"]
    assert names(tmp_path, "further:x", "mine:build") == ["further.py", "mine.py", "helper.py"]


def test_a_module_beside_a_folder_of_its_name(tmp_path: Path) -> None:
    written(tmp_path, mine="", mine__notes="")
    assert names(tmp_path, "mine:build") == ["mine.py"]
    written(tmp_path, mine__init="")
    assert names(tmp_path, "mine:build") == ["mine/__init__.py", "mine/notes.py"]


def test_a_package_is_all_of_its_sources_and_so_are_those_that_it_imports(tmp_path: Path) -> None:
    written(tmp_path, pack__init="", pack__inner__init="", pack__inner__net="from ..other import x\n", pack__other="")
    written(tmp_path, pack__loaded_by_name="from shared import layers\n", shared__layers="from . import blocks\n")
    written(tmp_path, shared__blocks="", shared__init="", elsewhere="")
    (tmp_path / "pack/notes.txt").write_text("")
    package = ["pack/__init__.py", "pack/inner/__init__.py", "pack/inner/net.py", "pack/loaded_by_name.py"]
    modules = ["pack/other.py", "shared/__init__.py", "shared/blocks.py", "shared/layers.py"]
    assert names(tmp_path, "pack.inner.net:build") == package + modules


def test_a_folder_without_an_init_is_a_package_too(tmp_path: Path) -> None:
    written(tmp_path, src__deep__net="from src.deep.sub import layer\n", src__deep__sub__layer="", other="")
    assert names(tmp_path, "src.deep.net:build") == ["src/deep/net.py", "src/deep/sub/layer.py"]


def test_what_cannot_be_read_and_what_is_not_there(tmp_path: Path) -> None:
    written(tmp_path, mine="import absent_of_mine, helper\n", helper="def f(:\n")
    assert names(tmp_path, "mine:build") == ["mine.py", "helper.py"]
    assert user_files(["absent_package.models:build", "sys:exit"], tmp_path) == []


def test_nothing_is_run_and_the_path_stays(tmp_path: Path) -> None:
    written(tmp_path, loud__init="raise RuntimeError\n", loud__net="raise RuntimeError\n")
    before, modules = list(sys.path), set(sys.modules)
    assert names(tmp_path, "loud.net:build") == ["loud/__init__.py", "loud/net.py"]
    assert sys.path == before and not {"loud", "loud.net"} & (set(sys.modules) - modules)


def test_an_installed_package_is_its_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    root, packages = tmp_path / "workspace", tmp_path / "workspace/env/lib/site-packages"
    written(packages, sold__init="", sold__inner__net="", lone_of_mine="")
    written(root, mine="import sold.inner.net, lone_of_mine\n")
    monkeypatch.syspath_prepend(packages)
    assert user_files(["sold.inner.net:build"], root) == [packages / "sold"]
    assert user_files(["lone_of_mine:build"], root) == [packages / "lone_of_mine.py"]
    assert names(root, "mine:build") == ["mine.py"], "what it imports of installed packages is theirs"
    assert [path.name for path in user_files(["email.mime.text:MIMEText"], root)] == ["email"]


def test_the_workspace_comes_first_and_a_path_of_its_own_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, packages = tmp_path / "workspace", tmp_path / "packages"
    written(packages, both_of_mine="", only_there="")
    written(root, both_of_mine="from of_source import net\n", src__of_source__net="", only_there__notes="")
    monkeypatch.syspath_prepend(packages)
    monkeypatch.syspath_prepend(root / "src")
    assert names(root, "both_of_mine:build") == ["both_of_mine.py", "src/of_source/net.py"]
    assert user_files(["only_there:build"], root) == [packages / "only_there.py"], "a mere folder gives way to a module"


def test_the_product_is_none_of_it() -> None:
    root = Path(__file__).resolve().parents[3]
    found = names(root, "examples.digits.train:main")
    assert "examples/digits/train.py" in found and all(name.startswith("examples/") for name in found)
    assert user_files(["truehalf.api:convert"], root) == []
