"""Models with a file of external data, behind links."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import onnx.parser

LAYOUTS = ("hub", "dvc", "alone")
GRAPH = """<ir_version: 8, opset_import: ["": 17]>
g (float[1,4] x) => (float[1,4] y) { y = MatMul (x, w) }"""


def stored(folder: Path, text: str = GRAPH) -> Path:
    """A model that reads w, float[4,4]."""
    folder.mkdir()
    model = onnx.parser.parse_model(text)
    model.graph.initializer.append(onnx.numpy_helper.from_array(np.arange(16, dtype=np.float32).reshape(4, 4), "w"))
    onnx.save(model, folder / "model.onnx", save_as_external_data=True, location="model.onnx_data", size_threshold=0)
    return folder / "model.onnx"


def linked(tmp_path: Path, layout: str, text: str = GRAPH) -> Path:
    """A model with a file of data: named by digests, beside each other (Hugging Face's hub) or in folders of two digits
    (DVC); or a link in another folder.
    """
    path = stored(tmp_path / "there", text)
    (tmp_path / "here").mkdir()
    if layout != "alone":
        for name, digest in (("model.onnx", "11"), ("model.onnx_data", "22")):
            digest = digest if layout == "hub" else f"{digest}/{digest * 15}"
            (tmp_path / "there" / digest).parent.mkdir(exist_ok=True)
            (tmp_path / "there" / name).rename(tmp_path / "there" / digest)
            (tmp_path / "here" / name).symlink_to(Path("../there", digest))
        return tmp_path / "here/model.onnx"
    (tmp_path / "here/other.onnx").symlink_to(path)
    return tmp_path / "here/other.onnx"
