"""Requests and replies lost or cut at a byte (S3): the client sends again, also by a second node, and each id is in the
log once.
"""

from __future__ import annotations

import random
import time
import uuid
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass

import pytest

from tests.conftest import Unique
from tests.nodes import NodeProcess
from tests.rest import Rest
from tests.services import Services
from tests.slow.faults.application import Application
from tests.slow.faults.checker import Attempt, Floors, Told
from tests.slow.faults.conftest import QUICK, StartFailing
from tests.slow.faults.frame_proxy import FrameProxy, Way
from tests.slow.faults.scene import assert_once, judge, make_topic

SEED = 20
_SHORT_MS = 300
_TOPICS = 10
_FIRST = 1_000
"""Ids of four digits: every request of a kind has the same length."""


@dataclass(frozen=True)
class Pair:
    """Two nodes of a cluster, each with a proxy in front."""

    nodes: dict[int, NodeProcess]
    proxies: dict[int, FrameProxy]

    def serving(self, topic: str) -> int:
        """The id of the node that serves a topic."""
        found = Rest(self.nodes[1].admin_url).topic(topic)["serving_node"]
        assert found in self.nodes
        return found


@pytest.fixture(scope="session")
def pair(services: Services, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    directory, cluster = tmp_path_factory.mktemp("pair"), f"f-{uuid.uuid4().hex[:8]}"
    nodes: dict[int, NodeProcess] = {}
    proxies: dict[int, FrameProxy] = {}
    with ExitStack() as running:
        for number in (1, 2):
            node = nodes[number] = NodeProcess(
                directory, services.kafka_bootstrap, services.redis_url, cluster=cluster, node_id=number, **QUICK
            )
            running.callback(node.check_log)
            node.start()
            running.callback(node.stop)
            proxies[number] = running.enter_context(FrameProxy(node.bootstrap))
        yield Pair(nodes, proxies)


class Trials:
    """One application on one topic, a fault for each of its batches."""

    def __init__(self, pair: Pair, services: Services, name: str, mode: str, *, plain: bool) -> None:
        self.history: list[Attempt] = []
        self.faults = 0
        self._bootstrap = services.kafka_bootstrap
        self.topic = make_topic(services.kafka_bootstrap, pair.nodes[1], mode)
        direct = [node.bootstrap for node in pair.nodes.values()]
        self.application = Application(name, self.topic, direct, self.history, plain=plain, mode=mode)
        self.application.write(_FIRST, _FIRST + 1)
        self._next = _FIRST + 2
        self._number = 0
        self.serving = serving = pair.serving(self.topic)
        self.proxy = pair.proxies[serving]
        self.addresses = [
            self.proxy.address,
            pair.nodes[3 - serving].bootstrap,
            pair.nodes[serving].bootstrap,
        ]

    def ids(self) -> tuple[int, int]:
        """Of new ones, part duplicates and whole duplicates the next pair."""
        self._number += 1
        behind = self._number % 3
        first = self._next - behind
        self._next = max(self._next, first + 2)
        return first, first + 1

    def cut(self, way: Way, at: int) -> int:
        """One batch that is cut, and sent again by the second node, and by the first; the frame's length."""
        application = self.application
        application.disconnect()
        application.addresses[:] = self.addresses
        application.connect()
        fault = self.proxy.cut(way, at)
        application.write(*self.ids())
        self.faults += 1
        return len(fault.wait().data)

    def check(self) -> None:
        self.application.disconnect()
        floors = Floors(2 + self.faults // 3, self.faults)
        assert_once(judge(self._bootstrap, self.topic, [self.application], floors, faults=self.faults))
        assert sum(attempt.told is Told.INFO for attempt in self.history) >= 2 * self.faults  # nobody was answered


@pytest.mark.parametrize("way", Way)
@pytest.mark.parametrize(("mode", "plain"), [("exclusive", False), ("shared", True)])
def test_a_frame_cut_at_some_byte_leaves_each_id_once(
    pair: Pair, services: Services, unique: Unique, way: Way, mode: str, plain: bool
) -> None:
    trials = Trials(pair, services, unique("billing"), mode, plain=plain)
    length = trials.cut(way, 0)
    stride = 17 if way is Way.REQUEST else 5
    offsets = {*range(random.Random(SEED).randrange(stride), length, stride), 4, length - 1, length}
    for at in sorted(offsets):
        trials.cut(way, at)
    trials.check()


@pytest.mark.parametrize("way", Way)
@pytest.mark.parametrize("mode", ["exclusive", "shared"])
@pytest.mark.parametrize("plain", [False, True])
@pytest.mark.parametrize("turn", range(3))
def test_a_frame_cut_at_every_byte_leaves_each_id_once(
    pair: Pair, services: Services, unique: Unique, way: Way, mode: str, plain: bool, turn: int
) -> None:
    """In three turns every offset meets new ids, part duplicates and whole duplicates."""
    trials = Trials(pair, services, unique("billing"), mode, plain=plain)
    for _ in range(turn):
        trials.ids()
    at = length = 0
    while at <= length:
        found = trials.cut(way, at)
        length = max(length, found) if way is Way.REQUEST else found  # an answer may bear a message
        at += 1
    trials.check()


def test_a_batch_whose_reply_was_lost_is_told_its_own_offset(pair: Pair, services: Services, unique: Unique) -> None:
    """By the node that has it in memory: an owner that lost its last connection left, and is told 46, no offset."""
    for _ in range(_TOPICS):
        trials = Trials(pair, services, unique("billing"), "shared", plain=False)
        again: list[Attempt] = []
        for _ in range(9):
            before = len(trials.history)
            trials.cut(Way.REPLY, 0)
            again += trials.history[before:]
        trials.check()
        if pair.serving(trials.topic) == trials.serving:
            break  # else it went to the node whose share it is, which remembers no place
    assert pair.serving(trials.topic) == trials.serving
    placed = {attempt.key.id for attempt in again if attempt.told is Told.OK and attempt.offset >= 0}
    assert len(placed) == 6  # of nine pairs three were all new; of what is dropped nobody knows a place


# Between node and broker --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("way", Way)
@pytest.mark.parametrize(("mode", "plain"), [("exclusive", True), ("shared", False)])
def test_a_frame_cut_between_node_and_broker_leaves_each_id_once(
    node_behind_proxy: NodeProcess,
    proxy: FrameProxy,
    services: Services,
    unique: Unique,
    way: Way,
    mode: str,
    plain: bool,
) -> None:
    check_towards_broker(node_behind_proxy, proxy, services, unique("billing"), way, mode, plain=plain, stride=23)


@pytest.mark.parametrize("way", Way)
@pytest.mark.parametrize("mode", ["exclusive", "shared"])
@pytest.mark.parametrize("plain", [False, True])
def test_a_frame_cut_between_node_and_broker_at_every_byte_leaves_each_id_once(
    node_behind_proxy: NodeProcess,
    proxy: FrameProxy,
    services: Services,
    unique: Unique,
    way: Way,
    mode: str,
    plain: bool,
) -> None:
    check_towards_broker(node_behind_proxy, proxy, services, unique("billing"), way, mode, plain=plain, stride=1)


def check_towards_broker(
    node: NodeProcess,
    proxy: FrameProxy,
    services: Services,
    name: str,
    way: Way,
    mode: str,
    *,
    plain: bool,
    stride: int,
) -> None:
    """The node sends again by itself: its client hears of nothing."""
    topic = make_topic(services.kafka_bootstrap, node, mode)
    history: list[Attempt] = []
    application = Application(name, topic, [node.bootstrap], history, plain=plain, mode=mode)
    application.write(_FIRST, _FIRST + 1)
    at, after, faults, length = 0, _FIRST + 2, 0, 1
    while at <= length:
        fault = proxy.cut(way, at, proxy.produce_to(topic))
        application.write(*range(after - faults % 2, after + 2))  # new ones, every other time behind one that is there
        length = len(fault.wait().data)
        application.write(after, after + 1)
        after, faults, at = after + 2, faults + 1, at + stride
    application.disconnect()
    assert_once(judge(services.kafka_bootstrap, topic, [application], Floors(faults, 3), faults=faults))
    assert all(attempt.told is Told.OK for attempt in history[4:])


@pytest.mark.parametrize("way", Way)
@pytest.mark.parametrize("who", ["the same session", "the next session"])
@pytest.mark.parametrize(("mode", "plain"), [("exclusive", True), ("shared", False)])
def test_a_batch_that_was_given_up_in_doubt_is_there_once(
    node_behind_proxy: NodeProcess,
    proxy: FrameProxy,
    services: Services,
    unique: Unique,
    way: Way,
    who: str,
    mode: str,
    plain: bool,
) -> None:
    """The node has told its client that time is over, and does not know whether Kafka has the batch: either may be."""
    node = node_behind_proxy
    topic = make_topic(services.kafka_bootstrap, node, mode)
    history: list[Attempt] = []
    application = Application(unique("billing"), topic, [node.bootstrap], history, plain=plain, mode=mode)
    application.write(0)
    keys = [application.key(1), application.key(2)]
    held = proxy.hold(way, proxy.produce_to(topic))
    connection = application.connect()
    connection.push(topic, 0, application.batch(keys), _SHORT_MS)
    held.wait()
    time.sleep(1.5 * _SHORT_MS / 1000)  # the batch's time is over: it is not sent once more
    held.release(lost=True)
    assert not application.settles(keys, connection.finish())
    if who == "the next session":
        application.restart()
        application.write(0, 1)
    application.write(1, 2)
    application.write(3)
    application.disconnect()
    assert_once(judge(services.kafka_bootstrap, topic, [application], Floors(4, 1), faults=proxy.resets))


@pytest.mark.smoke
def test_a_frame_of_a_node_that_was_frozen_comes_too_late(
    start_failing: StartFailing, proxy: FrameProxy, services: Services, unique: Unique
) -> None:
    """The other node has taken the topic over and written the same ids: what is released then is refused by Kafka."""
    cluster = unique("f")
    first = start_failing(kafka=proxy.address, cluster=cluster, node_id=1)
    topic = make_topic(services.kafka_bootstrap, first, "exclusive")
    history: list[Attempt] = []
    application = Application(unique("billing"), topic, [first.bootstrap], history)
    application.write(0)
    second = start_failing(cluster=cluster, node_id=2)
    keys = [application.key(1), application.key(2)]
    held = proxy.hold(Way.REQUEST, proxy.produce_to(topic))
    application.connect().push(topic, 0, application.batch(keys), 10_000)
    held.wait()
    first.pause()
    application.lost_sight(keys)
    application.disconnect()
    application.addresses[:] = [second.bootstrap]
    application.write(1, 2)
    application.restart()
    application.write(2, 3)
    held.release()
    first.resume()
    application.addresses[:] = [first.bootstrap, second.bootstrap]
    for number in range(4, 7):
        application.disconnect()
        application.write(number - 1, number)
    application.disconnect()
    second.stop()
    first.stop()
    assert_once(judge(services.kafka_bootstrap, topic, [application], Floors(7, 1), faults=1))
