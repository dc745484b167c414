"""Values of JSON and YAML files that are taken as they are, whatever their keys.

Where the keys are known, a dataclass or a TypedDict beside the code that writes the file names them.
"""

from collections.abc import Mapping, Sequence
from typing import TypeAlias

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
JsonObject: TypeAlias = "Mapping[str, Json]"
