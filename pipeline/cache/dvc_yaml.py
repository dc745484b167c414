"""DVC's files of YAML, in one process: what was read or written once is not parsed again.

A chain of a dozen stages reads params.yaml 70 times and rewrites dvc.lock after each of them, with a parser in Python:
six seconds of a run in which nothing is left to do. What DVC reads and what it writes stays the same.
"""

from __future__ import annotations

import contextlib
import functools
import io
import pickle
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from truehalf.json_values import Json

_PATTERN = re.compile(r"[*?\[!]")


def remember() -> None:
    """Let this process's DVC parse each text once, and write of dvc.lock anew only the stages that changed.

    It reaches into DVC: where another release has other insides, everything stays as that has it, only slower.
    """
    with contextlib.suppress(ImportError, AttributeError):
        _remember()


def _remember() -> None:
    from dvc import dvcfile
    from dvc.dependency import param
    from dvc.utils import strictyaml
    from dvc.utils.serialize import _yaml

    of_dvc, corrupted = _yaml.parse_yaml, _yaml.YAMLFileCorruptedError
    get, search = param.dpath.get, param.dpath.search

    @functools.lru_cache(maxsize=64)
    def known(text: str) -> bytes:
        return pickle.dumps(of_dvc(text, "", "safe"))

    def parse(text: str, path: Any, typ: str = "safe") -> Any:
        if typ != "safe":  # with its comments, for files that people write
            return of_dvc(text, path, typ)
        try:
            return pickle.loads(known(text))
        except corrupted:
            return of_dvc(text, path, typ)  # says which file

    lock = _Lock(parse, _yaml._dump)
    modify_any = dvcfile.modify_yaml

    def modify(path: Any, fs: Any = None) -> Any:
        return lock.modified(Path(path)) if Path(path).name == dvcfile.LOCK_FILE else modify_any(path, fs=fs)

    _yaml.parse_yaml = strictyaml.parse_yaml = parse
    dvcfile.modify_yaml = modify
    param.dpath = SimpleNamespace(get=functools.partial(_get, get), search=search)


def _get(of_dvc: Callable[..., Any], config: Any, key: str, separator: str) -> Any:
    """The value of a dotted key. dpath walks through all keys to find those that match a pattern."""
    found = config
    for part in key.split(separator):
        if not isinstance(found, dict) or part not in found or _PATTERN.search(part):
            return of_dvc(config, key, separator=separator)
        found = found[part]
    return found


class _Lock:
    """dvc.lock, which holds no comments of users."""

    def __init__(self, parse: Any, dump: Any) -> None:
        self._parse, self._dump = parse, dump
        self._last: tuple[str, bytes] = ("", b"")  # the text that was written, and what it says
        self._blocks: dict[bytes, str] = {}

    @contextlib.contextmanager
    def modified(self, path: Path) -> Iterator[dict[str, Json]]:
        """What the file holds, to be changed; it is written at the end."""
        text = path.read_text(encoding="utf-8") if path.exists() else ""
        last, content = self._last
        data = pickle.loads(content) if text and text == last else self._parse(text, path)
        yield data
        text = self._text(data)
        path.write_text(text, encoding="utf-8")
        self._last = (text, pickle.dumps(data))

    def _text(self, data: dict[str, Any]) -> str:
        """As DVC writes it: one entry below the other, those of the stages indented."""
        others = {key: value for key, value in data.items() if key != "stages"}
        blocks = [self._block({"stages": {name: stage}}) for name, stage in data.get("stages", {}).items()]
        return "".join([self._block(others), *blocks[:1], *(block.partition("\n")[2] for block in blocks[1:])])

    def _block(self, content: dict[str, Any]) -> str:
        key = pickle.dumps(content)
        if key not in self._blocks:
            stream = io.StringIO()
            self._dump(content, stream)
            self._blocks[key] = stream.getvalue()
        return self._blocks[key]
