"""Error along the graph behind a choice of queries: rows are those of the same queries, whatever order FP16 chose."""

import numpy as np
import onnx.parser
import onnx_ir as ir
import pytest

from truehalf.verification.localize.both_files import BothFiles
from truehalf.verification.localize.node_errors import error_profile

GRAPH = """<ir_version: 8, opset_import: ["" : 17]>
g (float[1,64,4] x, float[1,64] s) => (float[1,8,4] y)
<int64[1] k = {8}, int64[1] last = {-1}, int64[3] wide = {1, 1, 4}>
{ HALF
  [choice] best, chosen = TopK<axis = 1, largest = LARGEST>(scores, k)
  [column] at = Unsqueeze(chosen, last)
  [spread] index = Tile(at, wide)
  [rows] q = GatherElements<axis = 1>(values, index)
  [act] z = Sigmoid(q)
  [back] y = BACK(z)
}"""
FP32 = "[vi] values = Identity(x)  [si] scores = Identity(s)"
FP16 = "[vi] values = Cast<to = 10>(x)  [si] scores = Cast<to = 10>(s)"


def files(largest: int) -> BothFiles:
    texts = [
        GRAPH.replace("HALF", half).replace("BACK", back).replace("LARGEST", str(largest))
        for half, back in ((FP32, "Identity"), (FP16, "Cast<to = 1>"))
    ]
    return BothFiles(*(ir.serde.deserialize_model(onnx.parser.parse_model(text)) for text in texts))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("largest", [0, 1])
def test_rows_are_compared_by_query(seed: int, largest: int) -> None:
    """Scores closer to each other than FP16 can tell: it chooses other queries, in another order."""
    rng = np.random.default_rng(seed)
    scores = (1 + 1e-5 * rng.permutation(64)).astype(np.float32).reshape(1, 64)
    feeds = {"x": rng.normal(size=(1, 64, 4)).astype(np.float32), "s": scores}
    assert len(np.unique(scores.astype(np.float16))) < 4
    errors = {row["node"]: row["error"] for row in error_profile(files(largest), feeds)}
    assert {"rows", "act"} <= set(errors)
    assert all(error is not None and error < 2e-3 for error in errors.values()), errors
