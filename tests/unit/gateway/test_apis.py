"""The table of APIs and the modules that handle them fit together."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, cast

import pytest

import sidecar.gateway
from sidecar.cluster.nodes import NodeAddress, NodeDirectory
from sidecar.cluster.resolver import NameResolver
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.gateway.apis import cold_apis
from sidecar.gateway.handler import ColdApi
from sidecar.gateway.share import ShareApi
from sidecar.protocol.api import APIS, Route
from sidecar.protocol.errors import KafkaError
from sidecar.resources.readers import ReaderClaims
from sidecar.shadow.auto_reset import AutoReset

_HOT = {0, 1, 2, 18, 21, 23}
_DESCRIBING_NODES = {3, 10, 60, 75}


class NoSessions:
    """No session is known."""

    def check(self, client: object, producer_id: int, *, transactional: bool) -> KafkaError | None:
        return None

    def initialised(
        self, client: object, new_producer_id: int, named_producer_id: int | None, *, transactional: bool
    ) -> None:
        """Not looked at."""


def not_looked_at(*_: object) -> None:
    """A node that wants to know nothing."""


def handlers(upstream: KafkaUpstream) -> dict[int, ColdApi]:
    nodes, resolver = NodeDirectory(NodeAddress(1, "127.0.0.1", 19092)), NameResolver()
    claims = ReaderClaims(lambda _: False)
    auto_reset = AutoReset(upstream, resolver, not_looked_at, not_looked_at)
    shares = ShareApi(upstream, nodes, resolver, claims)
    return cold_apis(upstream, nodes, resolver, claims, cast(Any, NoSessions()), auto_reset, shares)


def test_every_api_outside_the_hot_path_has_a_handler_and_no_other_has() -> None:
    upstream = KafkaUpstream([("127.0.0.1", 1)], connect_timeout=1, request_timeout=1)
    assert handlers(upstream).keys() == APIS.keys() - _HOT - _DESCRIBING_NODES


def module_docs() -> dict[str, str]:
    directory = Path(sidecar.gateway.__file__).parent
    return {path.stem: path.read_text().split('"""')[1] for path in directory.glob("*.py")}


@pytest.mark.parametrize("key", sorted(APIS.keys() - _HOT), ids=[APIS[key].name for key in sorted(APIS.keys() - _HOT)])
def test_some_module_says_in_its_docstring_which_versions_it_serves(key: int) -> None:
    api = APIS[key]
    served = {
        versions
        for text in module_docs().values()
        for names, versions in re.findall(r"((?:\w+(?:,| and)\s+)*\w+)\s+\((\d+(?:-\d+)?)\)", text)
        if api.name in re.split(r"[\s,]+", names)
    }
    expected = f"{api.first}-{api.last}" if api.first != api.last else f"{api.last}"
    assert served == {expected}


def test_what_passes_as_it_is_goes_where_the_table_says() -> None:
    upstream = KafkaUpstream([("127.0.0.1", 1)], connect_timeout=1, request_timeout=1)
    for key, handler in handlers(upstream).items():
        name = getattr(handler, "__name__", "")
        if name == "handle_any":
            assert APIS[key].route is Route.ANY
        if name == "handle_controller":
            assert APIS[key].route is Route.CONTROLLER
