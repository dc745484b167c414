"""Packs what the product reads at run time and lies outside the package; all else is in pyproject.toml."""

import shutil
from pathlib import Path

from setuptools import setup
from setuptools.command.build_py import build_py


class WithRules(build_py):
    """The documentation of lint's rules, which SARIF files carry along (truehalf/linting/report.py)."""

    def run(self) -> None:
        super().run()
        if not self.editable_mode:
            shutil.copy2("docs/reference/lint.md", Path(self.build_lib) / "truehalf/linting/lint.md")


setup(cmdclass={"build_py": WithRules})
