"""Values of JSON and YAML files that are taken as they are, whatever their keys.

Where the keys are known, a dataclass or a TypedDict beside the code that writes the file names them.
"""

import math
from collections.abc import Mapping, Sequence
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
JsonObject: TypeAlias = "Mapping[str, Json]"


def is_finite_number(value: object) -> bool:
    """Whether a value is a number; neither true nor false, NaN or Inf."""
    return isinstance(value, (int, float)) and not isinstance(value, bool) and math.isfinite(value)
