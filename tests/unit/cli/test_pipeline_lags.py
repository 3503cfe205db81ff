"""How far behind readers of shadows are, as a report asks a node for it."""

from typing import Any

from sidecar.cli.api import AdminApi
from sidecar.cli.pipeline.audit import lags_of
from sidecar.pipeline.audit.facts import Lag
from sidecar.settings import AdminAccess


class InPages(AdminApi):
    """A node that tells one shadow per page, each read by one group."""

    def get(self, path: str, **query: str | int) -> Any:
        if path.endswith("/cursors"):
            return {"items": [{"group": "audit", "partitions": {"0": {"lag": 3}, "1": {"lag": None}}}]}
        assert path == "/v1/topics/orders/shadows"
        first = "page_token" not in query
        return {"items": [{"name": "a" if first else "b"}], "next_page_token": "a" if first else None}


def test_the_readers_of_shadows_on_every_page_are_counted() -> None:
    found = lags_of(InPages(AdminAccess("http://127.0.0.1:9", "")))("orders")
    assert found == [Lag("a", "audit", 3), Lag("b", "audit", 3)]
