"""The REST interface of a node under test."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Rest:
    """The node's REST interface."""

    url: str

    def call(self, method: str, path: str, body: object = None) -> tuple[int, Any]:
        """Status and decoded answer."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} if data is not None else {}
        request = urllib.request.Request(self.url + path, data, headers, method=method)
        try:
            with urllib.request.urlopen(request, timeout=20) as answer:
                text = answer.read()
                return answer.status, json.loads(text) if text else None
        except urllib.error.HTTPError as error:
            with error:
                return error.code, json.loads(error.read())

    def topic(self, name: str) -> dict[str, Any]:
        status, found = self.call("GET", f"/v1/topics/{name}")
        assert status == 200, found
        return found


def govern(rest: Rest, topic: str, mode: str = "exclusive") -> None:
    """Put a topic under a policy."""
    status, answer = rest.call("PUT", f"/v1/topics/{topic}/policy", {"access_mode": mode})
    assert status == 200, answer
