"""The compiled module, where there is one: it does the same as code in Python, which stays beside it as its twin.

`records` and `stretches` call it for the walk through records, `produce` and `batch` for what every Produce passes.
"""

import os
from types import ModuleType
from typing import Final

try:
    from sidecar.protocol import _records
except ImportError:
    _records = None  # built without Cython or a C compiler

PURE: Final = "SIDECAR_PURE"
"""Set to 1, this variable of the environment keeps the module out: for tests, and to rule it out in a search."""

COMPILED: Final[ModuleType | None] = None if os.environ.get(PURE) == "1" else _records
