"""The node's own calls to a broker that is silent, or cannot be reached."""

import asyncio
import re
from dataclasses import replace
from typing import Any
from uuid import UUID

import pytest

from sidecar.cluster.upstream import KafkaUpstream
from sidecar.protocol.api import api_name
from sidecar.protocol.caller import CallTimeoutError, CoordinatorKind, DisconnectedError, UnknownTopicError
from sidecar.protocol.calls.admin import ApiVersions, FoundCoordinator, ServedVersions
from sidecar.protocol.errors import ErrorCode, KafkaError
from sidecar.protocol.limits import BOUNDS
from sidecar.protocol.metadata import Broker, ClusterState, MetadataRequest, PartitionState, TopicState
from tests.wait import wait_until


async def test_a_broker_that_is_silent_is_told_with_the_name_of_what_was_asked():
    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read()
        writer.close()

    server = await asyncio.start_server(silent, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    upstream = KafkaUpstream([("127.0.0.1", port)], connect_timeout=5, request_timeout=0.05)
    async with server:
        with pytest.raises(CallTimeoutError, match=rf"127\.0\.0\.1:{port} did not answer ApiVersions within 0\.05 s"):
            await upstream.call(None, ApiVersions())
        await upstream.close()


async def test_while_a_broker_is_left_alone_it_is_told_why() -> None:
    """/readyz shows the last failure: without the reason nobody would see that a password is wrong."""
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    upstream = KafkaUpstream([("127.0.0.1", port)], connect_timeout=5, request_timeout=5)
    async with server:
        with pytest.raises(DisconnectedError) as first:
            await upstream.call(None, ApiVersions())
        with pytest.raises(DisconnectedError, match=f"failed a moment ago: {re.escape(str(first.value))}"):
            await upstream.call(None, ApiVersions())
        await upstream.close()


class Coordinating(KafkaUpstream):
    """One broker, which coordinates everything."""

    def __init__(self) -> None:
        super().__init__([("127.0.0.1", 1)], connect_timeout=1, request_timeout=1)
        self.asked: list[str] = []
        self.view.apply(ClusterState(0, (Broker(0, "127.0.0.1", 1),), "cluster", 0, ()))

    async def ask_any(self, request: Any, *_: Any) -> Any:
        self.asked.append(request.key)
        return FoundCoordinator(0, "", 0, "127.0.0.1", 1)


async def test_coordinators_are_remembered_within_a_number_of_characters() -> None:
    upstream = Coordinating()
    long = [f"{number:04}" + "g" * 30_000 for number in range(1_200)]
    for key in ("mine", "mine", *long):
        await upstream.coordinator(key, CoordinatorKind.GROUP)
    assert upstream.asked == ["mine", *long]
    assert sum(len(key) for key, _ in upstream._coordinators) <= 16 * 1024 * 1024
    for key, kind in [*upstream._coordinators]:
        upstream.forget_coordinator(key, kind)
        upstream.forget_coordinator(key, kind)
    assert upstream._coordinators_chars == 0
    await upstream.close()


class Lagging(KafkaUpstream):
    """Brokers by number, with what each says of the topic `t`: its id, and its partitions with leader epochs."""

    def __init__(self, **said: tuple[int, dict[int, int]] | None) -> None:
        super().__init__([("127.0.0.1", 1)], connect_timeout=1, request_timeout=1)
        self.said = list(said.values())
        self.asked: list[int] = []
        self.silent: set[int] = set()
        known = tuple(Broker(number, "127.0.0.1", 9000 + number) for number in range(len(self.said)))
        self.view.apply(ClusterState(0, known, "cluster", 0, ()))

    async def metadata(self, request: Any) -> ClusterState:
        return ClusterState(0, tuple(self.view.brokers.values()), "cluster", 0, ())

    async def call(self, broker_id: int | None, request: Any, **_: Any) -> Any:
        assert broker_id is not None
        self.asked.append(broker_id)
        if broker_id in self.silent:
            raise CallTimeoutError("nothing came", sent=True)
        found = self.said[broker_id]
        if found is None:
            topic = TopicState("t", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UUID(int=0), False, ())
        else:
            states = tuple(PartitionState(index, 0, broker_id, epoch) for index, epoch in found[1].items())
            topic = TopicState("t", 0, UUID(int=found[0]), False, states)
        return ClusterState(0, tuple(self.view.brokers.values()), "cluster", 0, (topic,))


async def test_the_partitions_of_a_topic_are_those_that_any_broker_knows_of() -> None:
    upstream = Lagging(a=(1, {0: 5}), b=(1, {0: 6, 1: 0, 2: 0}), c=None)
    layout = await upstream.whole_layout("t")
    assert (layout.topic_id, dict(layout.leaders)) == (UUID(int=1), {0: 1, 1: 1, 2: 1})
    assert sorted(upstream.asked) == [0, 1, 2]


async def test_brokers_that_do_not_agree_which_topic_it_is_are_asked_again() -> None:
    with pytest.raises(KafkaError, match="created anew a moment ago") as failure:
        await Lagging(a=(1, {0: 5}), b=(2, {0: 0})).whole_layout("t")
    assert failure.value.code == ErrorCode.LEADER_NOT_AVAILABLE


async def test_a_topic_that_no_broker_knows_is_not_there() -> None:
    with pytest.raises(UnknownTopicError):
        await Lagging(a=None, b=None).whole_layout("t")


async def test_a_topic_that_no_live_broker_knows_is_absent() -> None:
    assert await Lagging(a=None, b=None, c=None).absent(["t"]) == {"t"}


async def test_one_broker_that_lags_makes_no_topic_absent() -> None:
    assert not await Lagging(a=None, b=None, c=(1, {0: 5})).absent(["t"])


async def test_no_topic_is_absent_while_a_broker_is_silent() -> None:
    upstream = Lagging(a=None, b=None)
    upstream.silent = {1}
    assert not await upstream.absent(["t"])


async def test_no_topic_is_absent_while_an_answer_names_a_broker_that_was_not_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    upstream = Lagging(a=None, b=None)
    only_one = ClusterState(0, (upstream.view.brokers[0],), "cluster", 0, ())
    monkeypatch.setattr(upstream, "metadata", lambda request: asyncio.sleep(0, only_one))
    assert not await upstream.absent(["t"])


async def test_those_who_ask_for_a_topic_together_share_the_answers() -> None:
    upstream = Lagging(a=(1, {0: 5}), b=(1, {0: 5}))
    first, second = await asyncio.gather(upstream.whole_layout("t"), upstream.whole_layout("t"))
    assert (first, len(upstream.asked)) == (second, 2)


def test_an_api_that_nobody_serves_is_named_by_its_key():
    assert [api_name(key) for key in (1, 1000, 32)] == ["Fetch", "Own", "DescribeConfigs"]
    assert api_name(999) == "api key 999"


class Versioned(KafkaUpstream):
    """Brokers that say what they serve of Produce."""

    def __init__(self, *newest: int) -> None:
        super().__init__([("127.0.0.1", 1)], connect_timeout=1, request_timeout=1)
        self.newest = list(newest)
        self.asked = 0
        known = tuple(Broker(number, "127.0.0.1", 9000 + number) for number in range(len(newest)))
        self.view.apply(ClusterState(0, known, "cluster", 0, ()))

    async def call(self, broker_id: int | None, request: Any, **_: Any) -> Any:
        assert broker_id is not None
        self.asked += 1
        return {0: ServedVersions(0, self.newest[broker_id])}


async def test_brokers_are_asked_again_what_they_serve_once_a_second_at_most() -> None:
    upstream = Versioned(13, 13)
    await upstream.api_versions()
    assert upstream.serves(0, 13)
    upstream.newest[1] = 12  # replaced by an older one
    for _ in range(100):
        upstream.ask_versions_soon()
    await wait_until(lambda: not upstream.serves(0, 13), "the new answer")
    assert (upstream.serves(0, 12), upstream.asked) == (True, 4)
    await upstream.close()


class Lagged(KafkaUpstream):
    """Brokers by number: what each has of the topic `t` (None: nothing), as its id and the leader epochs by partition.
    `next_broker` is asked first.
    """

    def __init__(self, *have: tuple[int, dict[int, int]] | None) -> None:
        super().__init__([("127.0.0.1", 1)], connect_timeout=1, request_timeout=1)
        self.have: list[tuple[int, dict[int, int]] | None] = list(have)
        self.asked: list[int] = []
        self.silent: set[int] = set()
        self.next_broker = 0
        self.known = tuple(Broker(number, "127.0.0.1", 9000 + number) for number in range(len(have)))
        self.view.apply(ClusterState(0, self.known, "cluster", 0, ()))

    def live_broker(self, asked: Any = ()) -> int:
        return self.next_broker

    def may_connect(self, broker_id: int) -> bool:
        return True

    async def call(self, broker_id: int | None, request: Any, **_: Any) -> Any:
        assert broker_id is not None
        self.asked.append(broker_id)
        if broker_id in self.silent:
            raise DisconnectedError("gone", sent=True)
        found, wanted = self.have[broker_id], request.request
        if found is None:
            missing = ErrorCode.UNKNOWN_TOPIC_ID if wanted.ids else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            name, topic_id = ("", UUID(bytes=wanted.ids[0])) if wanted.ids else ("t", UUID(int=0))
            topics = () if wanted.topics is None else (TopicState(name, missing, topic_id, False, ()),)
        else:
            states = tuple(PartitionState(index, 0, broker_id, epoch) for index, epoch in found[1].items())
            topics = (TopicState("t", 0, UUID(int=found[0]), False, states),)
        return ClusterState(0, self.known, "cluster", 0, topics)

    async def shows(self, broker: int, **how: Any) -> dict[str, tuple[int, int, dict[int, int]]]:
        """What the node answers when a broker is asked first: error, topic id and leader epochs by name."""
        self.next_broker = broker
        state = await self.metadata(replace(MetadataRequest(("t",)), **how))
        return {
            topic.name: (
                topic.error,
                topic.topic_id.int,
                {each.partition: each.leader_epoch for each in topic.partitions},
            )
            for topic in state.topics
        }


THERE = (1, {0: 5})


@pytest.mark.parametrize(
    "how", [{}, {"topics": None}, {"topics": (), "ids": (UUID(int=1).bytes,)}], ids=["by name", "all", "by id"]
)
async def test_a_broker_that_lags_does_not_take_a_shown_topic_back(how: dict[str, Any]) -> None:
    upstream = Lagged(THERE, None)
    shown = {"t": (0, 1, {0: 5})}
    assert await upstream.shows(0) == shown
    assert [await upstream.shows(1, **how) for _ in range(3)] == [shown] * 3
    upstream.have[1] = THERE
    assert await upstream.shows(1, **how) == shown
    assert upstream.view.leader(b"t", 0) == 1


@pytest.mark.parametrize("first", [0, 1])
async def test_a_topic_is_gone_once_a_broker_that_had_shown_it_says_so(first: int) -> None:
    """At once: the broker itself says it, or it is asked because another one says it."""
    upstream = Lagged(THERE, None)
    await upstream.shows(0)
    upstream.have[0] = None
    assert (await upstream.shows(first))["t"][0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert upstream.view.route(b"t") is None
    upstream.asked.clear()
    await upstream.shows(1)
    assert upstream.asked == [1], "what is not known is not asked for twice"


async def test_a_topic_that_is_left_out_of_the_list_of_all_by_who_had_shown_it_is_gone() -> None:
    upstream = Lagged(THERE, None)
    await upstream.shows(0)
    upstream.have[0] = None
    assert await upstream.shows(0, topics=None) == {}
    assert upstream.view.route(b"t") is None


async def test_what_no_broker_can_say_that_has_shown_it_is_believed() -> None:
    upstream = Lagged(THERE, None)
    await upstream.shows(0)
    upstream.silent = {0}
    assert (await upstream.shows(1))["t"][0] == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_former_topic_of_the_name_does_not_come_back() -> None:
    upstream = Lagged((2, {0: 0}), (1, {0: 9}))
    assert await upstream.shows(0) == {"t": (0, 2, {0: 0})}
    assert await upstream.shows(1) == {"t": (0, 2, {0: 0})}
    with pytest.raises(KafkaError, match="created anew a moment ago"):
        await upstream.whole_layout("t")
    assert upstream.view.route(b"t").topic_id == UUID(int=2)  # type: ignore[union-attr]
    upstream.have = [(3, {0: 0}), (3, {0: 0})]
    assert await upstream.shows(1) == {"t": (0, 3, {0: 0})}


async def test_an_answer_has_no_older_leader_and_no_fewer_partitions_than_the_one_before() -> None:
    upstream = Lagged((1, {0: 6, 1: 2}), (1, {0: 5}))
    newest = {"t": (0, 1, {0: 6, 1: 2})}
    assert [await upstream.shows(broker) for broker in (0, 1)] == [newest, newest]
    state = await upstream.metadata(MetadataRequest(("t",)))
    assert [(each.error, each.leader) for each in state.topics[0].partitions] == [(0, 0), (0, 0)]


async def test_a_topic_asked_for_by_its_id_is_not_answered_with_a_newer_one_of_its_name() -> None:
    """The broker that had shown it was asked by name."""
    upstream = Lagged(THERE, None)
    await upstream.shows(0)
    upstream.have[0] = (2, {0: 0})
    asked = {"topics": (), "ids": (UUID(int=1).bytes,)}
    assert await upstream.shows(1, **asked) == {"": (ErrorCode.UNKNOWN_TOPIC_ID, 1, {})}
    assert upstream.view.route(b"t").topic_id == UUID(int=2)  # type: ignore[union-attr]


@pytest.mark.parametrize("gone", [True, False])
async def test_a_whole_layout_is_of_the_topic_that_brokers_have_if_none_has_the_former_one(gone: bool) -> None:
    """The only broker that had shown the former topic was away: each takeover got that one's layout."""
    upstream = Lagged(THERE, THERE)
    await upstream.shows(0)
    upstream.have, upstream.silent = [None, (2, {0: 0})], set() if gone else {0}
    assert (await upstream.whole_layout("t")).topic_id == UUID(int=2)


async def test_an_answer_with_all_topics_of_a_cluster_is_compared_in_slices() -> None:
    view = Lagged(THERE).view
    topics = tuple(
        TopicState(f"t{number}", 0, UUID(int=number), False, (PartitionState(0, 0, 0, 0),))
        for number in range(1, 3_001)
    )
    view.apply(ClusterState(0, (Broker(0, "h", 1),), "c", 0, topics), 0)
    for answer in (topics, ()):
        steps = view.doubted(ClusterState(0, (), "c", 0, answer), 1, is_all=True)
        assert len(list(steps)) >= 3_000 // BOUNDS.turn
