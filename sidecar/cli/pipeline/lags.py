"""How far behind the readers of a topic's shadows are, as a node answers it. Without a node it is not known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from sidecar.cli.api import AdminApi, topic_path
from sidecar.cli.cursor import cursors
from sidecar.cli.failure import CommandError
from sidecar.cli.pipeline.running import say
from sidecar.pipeline.audit.facts import Lag


def lags_of(api: AdminApi) -> Callable[[str], list[Lag]]:
    """Asks a node for the shadows of a topic and their cursors; where none answers says so once, and knows none."""
    silent: list[str] = []

    def lags(topic: str) -> list[Lag]:
        if silent:
            return []
        try:
            shadows = [each["name"] for each in api.pages(topic_path(topic, "shadows"))]
            found = [(name, each) for name in shadows for each in cursors(api, name)]
        except CommandError as error:
            silent.append(topic)
            say(f"how far behind the readers of shadows are is not noted: {error.message}")
            return []
        return [Lag(name, each["group"], _behind(each)) for name, each in found]

    return lags


def _behind(cursor: dict[str, Any]) -> int:
    return sum(part["lag"] or 0 for part in cursor["partitions"].values())
