"""What hangs on which connection: claims and places whose connections come, go, and die while they wait."""

from __future__ import annotations

import pytest

from sidecar.v1 import control_pb2 as control
from tests.conftest import StartNode, Unique
from tests.nodes import NodeProcess
from tests.own import FENCING, WAIT, OwnClient, new_token, string, topic
from tests.rest import Rest, govern
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for


@pytest.fixture
def orders(services: Services, rest: Rest) -> str:
    """A governed topic of two partitions."""
    name = create_topic(services.kafka_bootstrap)
    govern(rest, name)
    return name


def settle(observer: OwnClient) -> None:
    """What other connections sent before this was read by the node when it returns."""
    for _ in range(20):
        observer.owner(string("nobody's"))


def test_the_end_of_a_connection_is_seen_while_its_watch_is_parked(node: NodeProcess, unique: Unique) -> None:
    leader, token = string(unique("leader")), new_token()
    with OwnClient(node.bootstrap) as observer:
        with OwnClient(node.bootstrap) as own:
            assert own.own(leader, token=token).error == control.NONE
            own.begin_watch(token, 300_000)
            settle(observer)
        wait_for(lambda: not observer.owner(leader).owner_session, "the string to be free")


def test_a_session_ends_with_its_process_though_its_watch_is_parked(node: NodeProcess, unique: Unique) -> None:
    leader, token = string(unique("leader")), new_token()
    with OwnClient(node.bootstrap) as observer:
        with OwnClient(node.bootstrap) as own, OwnClient(node.bootstrap) as watch:
            assert own.own(leader, token=token, producer_id=4_200_001).error == control.NONE
            watch.begin_watch(token, 300_000)
            settle(observer)
        wait_for(lambda: not observer.owner(leader).owner_session, "the string to be free")


def test_who_waits_by_its_next_connection_owns_by_that_one(node: NodeProcess, orders: str) -> None:
    token = new_token()
    with OwnClient(node.bootstrap) as observer, OwnClient(node.bootstrap) as second:
        with OwnClient(node.bootstrap) as holder:
            assert holder.own(topic(orders)).error == control.NONE
            with OwnClient(node.bootstrap) as first:
                waiting = first.own(topic(orders), mode=WAIT, token=token, producer_id=4_200_002)
                assert waiting.error == control.TIMED_OUT
            settle(observer)
            second.begin_own(topic(orders), mode=WAIT, token=token, producer_id=4_200_002, wait_ms=20_000)
            settle(observer)
        assert second.finish(control.OwnResponse).error == control.NONE
        second.close()
        wait_for(lambda: not observer.owner(topic(orders)).owner_session, "the topic to be free")


def test_nobody_waits_behind_a_connection_that_ended_while_its_request_was_decided(
    node: NodeProcess, orders: str
) -> None:
    with OwnClient(node.bootstrap) as observer, OwnClient(node.bootstrap) as last:
        for _ in range(10):
            with OwnClient(node.bootstrap) as holder, OwnClient(node.bootstrap) as fencer:
                assert holder.own(topic(orders), mode=WAIT, wait_ms=20_000).error == control.NONE
                fencer.begin_own(topic(orders), mode=FENCING)  # the topic changes hands meanwhile
                with OwnClient(node.bootstrap) as gone:
                    gone.begin_own(topic(orders), mode=WAIT, wait_ms=20_000)
                    observer.owner(string("nobody's"))
                assert fencer.finish(control.OwnResponse).error == control.NONE
        assert last.own(topic(orders), mode=WAIT, wait_ms=20_000).error == control.NONE


def test_a_watch_of_another_connection_hears_that_the_owner_s_has_ended(node: NodeProcess, unique: Unique) -> None:
    leader, token = string(unique("leader")), new_token()
    with OwnClient(node.bootstrap) as watch, OwnClient(node.bootstrap) as observer:
        with OwnClient(node.bootstrap) as own:
            assert own.own(leader, token=token).error == control.NONE
            watch.begin_watch(token, 300_000)
            settle(observer)
        assert watch.finish(control.WatchResponse).error == control.DEPOSED


def test_a_session_that_comes_back_within_its_grace_by_its_token_keeps_the_topic(
    services: Services, node_process: StartNode, unique: Unique
) -> None:
    kept, let_go = create_topic(services.kafka_bootstrap), create_topic(services.kafka_bootstrap)
    node = node_process(cluster=unique("own"), node_id=1, DISCONNECT_GRACE_MS="1500")
    token = new_token()
    with OwnClient(node.bootstrap) as observer, OwnClient(node.bootstrap) as again:
        with OwnClient(node.bootstrap) as own, OwnClient(node.bootstrap) as other:
            assert own.own(topic(kept), token=token, producer_id=4_200_003).error == control.NONE
            assert other.own(topic(let_go), producer_id=4_200_004).error == control.NONE
            own.close()
            settle(observer)
        assert again.own(topic(kept), token=token, producer_id=4_200_003).error == control.NONE
        wait_for(lambda: not observer.owner(topic(let_go)).owner_session, "the grace of the other to end")
        assert observer.owner(topic(kept)).owner_session == "pid:4200003"
