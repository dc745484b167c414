"""Arrays by name in .npz files."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from tests.messages import raises
from truehalf.data.arrays import read_arrays, read_headers, write_arrays


@pytest.mark.parametrize("name", ["x", "arr_0", "images:0", "onnx::Add_3", "a/b/c", "file", "allow_pickle"])
def test_names_that_exporters_give_go_there_and_back(name: str, tmp_path: Path) -> None:
    arrays = {name: np.arange(6, dtype=np.float16).reshape(2, 3), f"{name}.1": np.array(True)}
    write_arrays(tmp_path / "a.npz", arrays)
    back, headers = read_arrays(tmp_path / "a.npz"), read_headers(tmp_path / "a.npz")
    assert list(back) == list(headers) == list(arrays)
    for key, array in arrays.items():
        assert np.array_equal(back[key], array) and back[key].dtype == array.dtype == headers[key].dtype
        assert headers[key].shape == array.shape
    with np.load(tmp_path / "a.npz", allow_pickle=False) as stored:
        assert len(stored.files) == 2


def test_no_pickles(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        write_arrays(tmp_path / "a.npz", {"a": np.array([{}], object)})
    assert not (tmp_path / "a.npz").exists()
    np.savez(tmp_path / "a.npz", a=np.array([{}], object))
    with raises("file-unreadable", tmp_path / "a.npz"):
        read_arrays(tmp_path / "a.npz")
