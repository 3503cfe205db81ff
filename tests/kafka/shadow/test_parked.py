"""A reader that waits at a shadow while that goes, or becomes one of another topic."""

from __future__ import annotations

import pytest

from tests.conftest import Unique
from tests.kafka.exclusive.producers import RawProducer
from tests.kafka.gateway.test_shared_reads import Limits, ask, receive, send
from tests.logs import read_log
from tests.nodes import NodeProcess
from tests.raw import PARKED_MS, RawClient
from tests.rest import Rest
from tests.services import Services
from tests.topics import create_topic


@pytest.mark.parametrize("crowd", [1, 2], ids=["alone", "with others"])
def test_who_waits_at_a_shadow_that_is_deleted_gets_nothing_of_what_its_source_was_given_since(
    services: Services, node: NodeProcess, rest: Rest, unique: Unique, crowd: int
) -> None:
    """Under the name may be a shadow of another topic by then."""
    first, second = (create_topic(services.kafka_bootstrap, 1) for _ in range(2))
    shadow = unique("audit")
    assert rest.call("POST", f"/v1/topics/{first}/shadows", {"name": shadow})[0] == 201
    readers = [RawClient(node.bootstrap) for _ in range(crowd)]
    for reader in readers:
        assert ask(reader, [(shadow, 0, 0)], Limits(wait_ms=1))[shadow, 0].error == 0
    for reader in readers:
        send(reader, [(shadow, 0, 0)], Limits(wait_ms=PARKED_MS))
    assert rest.call("DELETE", f"/v1/topics/{first}/shadows/{shadow}")[0] == 204
    assert rest.call("POST", f"/v1/topics/{second}/shadows", {"name": shadow})[0] == 201
    with RawProducer(node.bootstrap, "writer") as writer:
        assert writer.send(first, b"not in the shadow").error == 0
    assert len(read_log(services.kafka_bootstrap, first)) == 1
    for reader in readers:
        with pytest.raises(ConnectionError):
            receive(reader)
        reader.close()
