"""What to do next where a node refuses, by what was asked and answered: a command to look with. Pure."""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import unquote

_HINTS: Final = (
    (404, r"/v1/topics/\S* there is no topic ", "sidecar topic list"),
    (404, r"/v1/topics/[^/]+/policy", "sidecar topic list --governed"),
    (404, r"/v1/topics/([^/]+)/dedup/.", "sidecar dedup show {0}"),
    (404, r"/v1/topics/([^/]+)/shadows/.", "sidecar shadow list {0}"),
    (404, r"/v1/topics/", "sidecar topic list"),
    (404, r"/v1/shadows/", "sidecar shadow list"),
    (409, r"/v1/topics/([^/]+)/(?:fence|release)", "sidecar producer list {0}"),
    (412, r"/v1/topics/([^/]+)/", "sidecar producer list {0}"),
    (409, r"/v1/topics/([^/]+)/dedup", "sidecar topic show {0}"),
    (409, r"/v1/topics/([^/? ]+)(?:\?\S*)? .* is a shadow", "sidecar shadow delete {0}"),
    (409, r"/v1/topics/([^/? ]+)[? ]", "sidecar shadow list {0}"),
    (409, r"/v1/shadows/([^/]+)/cursors/.", "sidecar cursor list {0}"),
    (503, r"/", "sidecar doctor"),
)
"""The first one that fits: HTTP's status, a pattern of the target, a space and the message."""


def hint(status: int, target: str, message: str) -> str | None:
    """A command that shows more about a refusal; None where the message says all there is."""
    for code, pattern, command in _HINTS:
        if code == status and (found := re.match(pattern, f"{target} {message}")):
            return command.format(*map(unquote, found.groups()))
    return None
