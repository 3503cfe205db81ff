"""Kafka's rules for client quotas: which entity holds, whose traffic shares a rate, how long a client waits."""

from __future__ import annotations

from itertools import combinations
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sidecar.protocol.calls.security import DescribeClientQuotas, QuotaEntry
from sidecar.protocol.limits import SLICE
from sidecar.security.client_quotas import WINDOW_MS, WINDOWS, ClientQuotas, Quota, Who, Window

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

PRODUCER, CONSUMER = Quota.PRODUCER, Quota.CONSUMER
ALICE: Final = Who("alice", "billing")
LEVELS: Final = (
    ({"user": "alice", "client-id": "billing"}, ("alice", "billing"), "user,client-id"),
    ({"user": "alice", "client-id": None}, ("alice", "billing"), "user,client-id"),
    ({"user": "alice"}, ("alice", ""), "user"),
    ({"user": None, "client-id": "billing"}, ("alice", "billing"), "user,client-id"),
    ({"user": None, "client-id": None}, ("alice", "billing"), "user,client-id"),
    ({"user": None}, ("alice", ""), "user"),
    ({"client-id": "billing"}, ("", "billing"), "client-id"),
    ({"client-id": None}, ("", "billing"), "client-id"),
)
"""The order of `ClientQuotaManager`, from the most to the least specific: entity, who shares its rate, its level."""


def entry(entity: Mapping[str, str | None], **values: float) -> QuotaEntry:
    return QuotaEntry(entity, values)


def quotas(*levels: int, key: str = PRODUCER) -> ClientQuotas:
    """Those of these levels; each has its number, counted from 1, as its value."""
    return ClientQuotas.of(entry(LEVELS[each][0], **{key: each + 1.0}) for each in levels)


@pytest.mark.parametrize("levels", [each for size in range(1, 9) for each in combinations(range(8), size)])
def test_the_most_specific_entity_holds(levels: tuple[int, ...]) -> None:
    limit = quotas(*reversed(levels)).limit(PRODUCER, ALICE)
    _, shared_by, level = LEVELS[levels[0]]
    assert limit == (PRODUCER, shared_by, levels[0] + 1.0, level)


@pytest.mark.parametrize("level", range(8))
def test_an_entity_holds_for_those_alone_whom_it_names(level: int) -> None:
    entity = LEVELS[level][0]
    for who in (Who("bob", "billing"), Who("alice", "other"), Who("bob", "other")):
        named = {"user": who.user, "client-id": who.client_id}
        holds = all(name is None or name == named[kind] for kind, name in entity.items())
        assert (quotas(level).limit(PRODUCER, who) is not None) == holds


def test_producers_and_consumers_have_quotas_of_their_own() -> None:
    found = ClientQuotas.of([entry({"user": "alice"}, producer_byte_rate=1.0), entry({}, consumer_byte_rate=1.0)])
    assert found.limit(CONSUMER, ALICE) is None
    both = ClientQuotas.of(
        [entry({"user": "alice"}, producer_byte_rate=1.0), entry({"client-id": "billing"}, consumer_byte_rate=2.0)]
    )
    assert [both.limit(each, ALICE) for each in Quota] == [
        (PRODUCER, ("alice", ""), 1.0, "user"),
        (CONSUMER, ("", "billing"), 2.0, "client-id"),
    ]


def test_what_a_node_cannot_enforce_is_left_out() -> None:
    found = ClientQuotas.of(
        [
            entry({"ip": "127.0.0.1"}, connection_creation_rate=5.0),
            entry({"user": "alice"}, request_percentage=1.0, controller_mutation_rate=1.0),
        ]
    )
    assert not found
    assert len(found) == 0


@pytest.mark.parametrize(
    ("levels", "expected"), [((6, 7), None), ((1, 4), None), ((1, 2), 3.0), ((1, 5), 6.0), ((4, 5), 6.0), ((5,), 6.0)]
)
def test_a_client_without_a_client_id_has_the_quota_of_its_user_or_none(
    levels: tuple[int, ...], expected: float | None
) -> None:
    """Kafka finds an entity with a client id first, and then looks for one without: `quotaMetricTags`, `quotaLimit`."""
    limit = quotas(*levels).limit(PRODUCER, Who("alice", ""))
    assert (None if limit is None else limit.per_second) == expected
    assert limit is None or limit.shared_by == ("alice", "")


NODE: Final = Who("node", "sidecar")


@pytest.mark.parametrize(
    ("levels", "seen", "counted_here"),
    [
        ((6,), Who("node", "billing"), False),  # by client id alone: brokers see that
        ((7,), Who("node", "billing"), False),
        ((7,), NODE, True),  # the default client id's rate is one for each client id
        ((2,), Who("node", "billing"), True),
        ((2,), Who("alice", "billing"), False),
        ((2,), Who("alice", "sidecar"), False),  # the node is the same user, whose rate all its clients share
        ((5,), Who("node", "billing"), True),
        ((0,), Who("alice", "sidecar"), True),
    ],
)
def test_what_brokers_count_for_the_same_clients_is_not_counted_again(
    levels: tuple[int, ...], seen: Who, counted_here: bool
) -> None:
    found = quotas(*levels)
    assert (found.uncounted(PRODUCER, ALICE, seen) is not None) == counted_here


def test_a_quota_of_the_nodes_own_user_hides_the_clients_from_brokers() -> None:
    """By user comes before by client id: brokers see the node's user, and no longer look at the client id."""
    found = ClientQuotas.of(
        [entry({"client-id": "billing"}, producer_byte_rate=5.0), entry({"user": "node"}, producer_byte_rate=1e9)]
    )
    limit = found.uncounted(PRODUCER, ALICE, Who("node", "billing"))
    assert limit is not None
    assert limit.per_second == 5.0


def test_the_quotas_of_a_large_cluster_are_read_in_slices() -> None:
    """Answers have all quotas of a cluster, every five seconds."""
    values = [{"key": "producer_byte_rate", "value": 1.0}]
    entries = [
        {"entity": [{"entity_type": "user", "entity_name": str(number)}], "values": values}
        for number in range(4 * SLICE)
    ]
    converted = 0

    def counted(entries: Iterable[QuotaEntry]) -> Iterator[QuotaEntry]:
        nonlocal converted
        for each in entries:
            converted += 1
            yield each

    answer = DescribeClientQuotas().answered({"error_code": 0, "error_message": None, "entries": entries})
    assert [converted for _ in ClientQuotas.of_steps(counted(answer.entries))] == [SLICE * turn for turn in range(1, 5)]


# Windows ----------------------------------------------------------------------------------------------------------


def test_a_new_client_may_use_all_windows_but_one_at_once() -> None:
    """`Rate` assumes that N - 1 windows have passed: 10 s of the quota."""
    assert Window().use(10_000, 1_000, 0) == 0
    assert Window().use(10_001, 1_000, 0) == 1
    assert Window().use(30_000, 1_000, 0) == 20_000


def test_a_client_waits_until_its_average_is_the_quota() -> None:
    window = Window()
    assert window.use(15_000, 1_000, 0) == 5_000
    assert window.use(0, 1_000, 5_000) == 5_000, "the windows before its first request count as empty ones"
    assert window.use(0, 1_000, 10_999) == 4_001
    assert window.use(10_000, 1_000, 11_000) == 0


def test_what_is_older_than_all_windows_is_forgotten() -> None:
    window = Window(windows=2, window_ms=1_000)
    assert window.use(2_000, 1_000, 0) == 1_000
    assert window.use(1_000, 1_000, 2_000) == 0


def test_a_quota_that_was_changed_holds_at_once_for_what_was_counted_before() -> None:
    window = Window()
    assert window.use(20_000, 2_000, 0) == 0
    assert window.use(0, 1_000, 0) == 10_000


def test_no_throttle_time_exceeds_its_field() -> None:
    assert Window().use(1e12, 1.0, 0) == 2**31 - 1


_STEPS: Final = st.lists(st.tuples(st.integers(0, 3_000), st.integers(0, 5_000)), min_size=1, max_size=60)


@given(_STEPS, st.integers(2, 12), st.sampled_from([500, 1_000, 3_000]))
def test_the_rate_is_that_of_the_samples_that_kafka_keeps(
    steps: list[tuple[int, int]], windows: int, window_ms: int
) -> None:
    """Against Kafka's definition spelled out: `SampledStat` with one sample more than windows, `Rate.windowSize`."""
    window, now, current = Window(windows, window_ms), 0, 0
    samples: list[dict[str, int]] = []
    for pause, amount in steps:
        now += pause
        if not samples:
            samples.append({"start": now, "last": now, "sum": 0})
        if now - samples[current]["start"] >= window_ms:
            current = (current + 1) % (windows + 1)
            fresh = {"start": now, "last": now, "sum": 0}
            samples[current : current + 1] = [fresh]
        samples[current]["sum"] += amount
        samples[current]["last"] = now
        for each in samples:
            if now - each["last"] >= windows * window_ms:
                each.update(start=now, last=now, sum=0)
        elapsed = now - min(each["start"] for each in samples)
        full = elapsed // window_ms
        elapsed = max(1, elapsed + max(0, windows - 1 - full) * window_ms)
        rate, bound = sum(each["sum"] for each in samples) / (elapsed / 1000), 700.0
        expected = round((rate - bound) / bound * elapsed) if rate > bound else 0
        assert abs(window.use(amount, bound, now) - expected) <= 1


@given(st.lists(st.integers(1, 1_000), min_size=1, max_size=300), st.integers(1_000, 5_000))
def test_who_waits_as_told_gets_the_quota_and_one_burst(sizes: list[int], per_second: int) -> None:
    """With requests of less than a second's quota, as Kafka's own tests have them."""
    window, now, used = Window(), 0, 0
    for size in sizes:
        used += size
        now += window.use(size, per_second, now)
    burst_ms = (WINDOWS + 1) * WINDOW_MS
    assert used <= per_second * (now + burst_ms) / 1000 + max(sizes)
