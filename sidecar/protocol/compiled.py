"""The compiled module, if there is one. Each of its functions has a twin in Python that does the same.

`records` and `stretches` call it to walk through records, `produce` and `batch` for the path of every Produce.
"""

import os
from types import ModuleType
from typing import Final

try:
    from sidecar.protocol import _records
except ImportError:
    _records = None  # built without Cython or a C compiler

PURE: Final = "SIDECAR_PURE"
"""If this environment variable is 1, the module is not used: for tests, and to exclude it as the cause of an error."""

COMPILED: Final[ModuleType | None] = None if os.environ.get(PURE) == "1" else _records
