"""The tutorials do what they say, from the first line to the last, in a fresh copy of the project."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import ROOT, in_workspace
from tests.markdown import Step, steps

TUTORIALS = [page for page in sorted((ROOT / "docs/tutorials").glob("*.md")) if page.name != "index.md"]

PAGE = """
```python
# my_package/model.py
SIZE = 3
```

1. Run it:

   ```bash
   # the first
   python my_package/model.py --a \\
     --b
   truehalf verify a.onnx b.onnx   # exit code 3
   dvc pull                        # not run: downloads
   ```

```python
print("a 'b'")
```

```text
printed
```
"""


def test_steps_of_a_page() -> None:
    file, run, verify, program = steps(PAGE)
    assert file == Step("my_package/model.py", "SIZE = 3\n")
    assert run.text.split() == ["python", "my_package/model.py", "--a", "--b"] and run.exit_code == 0
    assert verify.text.startswith("truehalf verify a.onnx b.onnx") and verify.exit_code == 3
    assert program.file == "" and program.text.startswith("python -c ") and program.exit_code == 0


@pytest.mark.slow
@pytest.mark.parametrize("page", TUTORIALS, ids=lambda page: page.stem)
def test_a_tutorial_runs_as_it_stands(page: Path, workspace: Path) -> None:
    for step in steps(page.read_text()):
        if step.file:
            (workspace / step.file).parent.mkdir(parents=True, exist_ok=True)
            (workspace / step.file).write_text(step.text)
        else:
            done = in_workspace(workspace, "bash", "-c", step.text)
            assert done.returncode == step.exit_code, f"{step.text}: {done.stdout[-3000:]}{done.stderr[-3000:]}"
