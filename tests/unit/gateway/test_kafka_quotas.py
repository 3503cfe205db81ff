"""Which of Kafka's quotas a node counts for a client, by the names under which brokers see its traffic."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, cast

import pytest

from sidecar.gateway.client import MOST_FETCHED
from sidecar.gateway.kafka_quotas import MOST_RATES, UNKNOWN_USER, KafkaQuotas, SentAs
from sidecar.gateway.metering import Metering
from sidecar.policy import identity
from sidecar.protocol.calls.admin import ConfigResource, DescribeConfigs, Described, Resource
from sidecar.protocol.calls.security import DescribedQuotas, QuotaEntry
from sidecar.security.broker_access import user_at_brokers
from sidecar.security.client_quotas import ClientQuotas, Limit, Quota, Who
from sidecar.settings import load

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.gateway.client import Client

BY_ID: Final = {"client-id": "billing"}
BY_USER: Final = {"user": "alice"}
BY_DEFAULT_USER: Final = {"user": None}
NOBODY: Final = SimpleNamespace(over_client_quota=lambda *_: None)


def quotas(entity: Mapping[str, str | None], user: str = "node") -> KafkaQuotas:
    found = KafkaQuotas(cast(Any, NOBODY), user, cast(Any, NOBODY), lambda: None)
    found.quotas = ClientQuotas.of([QuotaEntry(entity, {"producer_byte_rate": 5.0, "consumer_byte_rate": 7.0})])
    return found


def client(principal: str = "User:alice", *, token: bool = False, raw: bytes = b"billing;mode=shared") -> Client:
    """`token`: its own connections log in at brokers as its user."""
    links = SimpleNamespace(user=principal if token else None)
    connection = SimpleNamespace(meter=None, repeating=None, pause=lambda _: None, resume=lambda _: None)
    found = SimpleNamespace(
        principal=principal, links=links, identity=identity.parse(raw), is_known=True, connection=connection
    )
    return cast("Client", found)


def counted(found: KafkaQuotas, who: Client) -> set[SentAs]:
    limits = found.limits(who)
    if limits is None:
        return set()
    for each in SentAs:
        assert (limits.producer[each] is None) == (limits.consumer[each] is None)
    return {each for each in SentAs if limits.producer[each] is not None}


@pytest.mark.parametrize(
    ("entity", "token", "expected"),
    [
        (BY_ID, False, {SentAs.NODE}),
        (BY_ID, True, {SentAs.NODE}),
        (BY_USER, False, {SentAs.CLIENT, SentAs.NODE_FOR_CLIENT, SentAs.NODE}),
        (BY_USER, True, {SentAs.NODE_FOR_CLIENT, SentAs.NODE}),
        (BY_DEFAULT_USER, True, {SentAs.NODE_FOR_CLIENT, SentAs.NODE}),
        ({"client-id": "another"}, False, set()),
    ],
)
def test_a_node_counts_what_brokers_see_under_another_name(
    entity: Mapping[str, str | None], token: bool, expected: set[SentAs]
) -> None:
    assert counted(quotas(entity), client(token=token)) == expected


def test_without_logins_everyone_is_anonymous_to_brokers_and_the_users_quota_is_theirs() -> None:
    nobody = client("User:ANONYMOUS")
    assert counted(quotas({"user": "ANONYMOUS"}, "ANONYMOUS"), nobody) == set()
    assert counted(quotas(BY_ID, "ANONYMOUS"), nobody) == {SentAs.NODE}
    assert counted(quotas(BY_USER, UNKNOWN_USER), client()) == set(SentAs)


def test_a_client_has_a_meter_from_the_moment_when_it_has_a_quota() -> None:
    metering, free, limited = Metering(), client(raw=b"free"), client()
    metering.kafka = quotas({"client-id": "nobody"})
    clients = {1: free, 2: limited}
    assert not [*metering.apply_to_all(clients)]
    assert limited.connection.meter is None
    metering.kafka.quotas = quotas(BY_ID).quotas
    assert not [*metering.apply_to_all(clients)]
    assert free.connection.meter is None
    assert limited.connection.meter is not None
    assert limited.most_fetched == 7 * 10, "the quota of all windows but one"
    metering.kafka.quotas = ClientQuotas()
    assert not [*metering.apply_to_all(clients)]
    assert cast(Any, limited.connection.meter).limits is None
    assert limited.most_fetched == MOST_FETCHED


async def test_who_is_over_a_quota_is_reported_and_nobody_else() -> None:
    found, over = quotas(BY_USER), list[Any]()
    found._hooks = cast(Any, SimpleNamespace(over_client_quota=lambda *what: over.append(what)))
    limits = found.limits(client(token=True))
    assert limits is not None
    limit = next(each for each in limits.producer if each is not None)
    assert found.use(limit, 1) == 0
    assert not over
    seconds = found.use(limit, 10_000)
    assert seconds > 0
    assert over == [(limit.quota, limit.level, seconds)]


async def test_client_ids_without_number_hide_nobody_who_is_over() -> None:
    """A client may send each request under another client id."""
    found = quotas({"user": None, "client-id": None})

    def limit(user: str, name: str) -> Limit:
        held = found.quotas.limit(Quota.PRODUCER, Who(user, name))
        assert held is not None
        return held

    assert found.use(limit("alice", "billing"), 10_000)
    for number in range(2 * MOST_RATES):
        assert not found.use(limit("mallory", str(number)), 1)
        if not number % 1_000:
            assert found.use(limit("alice", "billing"), 1)
    assert len(found._rates) == MOST_RATES  # pyright: ignore[reportPrivateUsage]


@pytest.mark.parametrize(
    ("settings", "user"),
    [
        ({}, "ANONYMOUS"),
        ({"kafka_security_protocol": "SSL"}, "ANONYMOUS"),
        ({"kafka_security_protocol": "SSL", "kafka_ssl_certificate": "/a.pem"}, None),
        ({"kafka_security_protocol": "SASL_SSL", "kafka_sasl_username": "node"}, "node"),
        ({"kafka_security_protocol": "SASL_SSL", "kafka_sasl_mechanism": "OAUTHBEARER"}, None),
    ],
)
def test_the_nodes_name_at_brokers_is_known_where_its_settings_have_it(
    settings: dict[str, str], user: str | None
) -> None:
    assert user_at_brokers(replace(load(), **cast(Any, settings))) == user


class Brokers:
    """Brokers that show a quota. `configs`: the answer of each about its windows."""

    def __init__(self, *configs: Described | None) -> None:
        self.configs = dict(enumerate(configs, 1))
        self.answer = DescribedQuotas(0, None, (QuotaEntry(BY_ID, {"consumer_byte_rate": 7_000.0}),))
        self.failed: list[str] = []
        self.changes: list[int] = []

    def serves(self, *_: int) -> bool:
        return True

    async def ask_any(self, _: object) -> DescribedQuotas:
        return self.answer

    async def brokers(self) -> list[int]:
        return [*self.configs]

    async def call(self, broker: int, request: DescribeConfigs) -> dict[Resource, Described]:
        assert request.names == ("quota.window.num", "quota.window.size.seconds")
        config = self.configs[broker]
        return {} if config is None else {Resource(ConfigResource.BROKER, str(broker)): config}

    def client_quotas_failed(self, error: Exception) -> None:
        self.failed.append(str(error))

    def client_quotas_changed(self, count: int) -> None:
        self.changes.append(count)


def windows(count: str | None, size_s: str | None, error: int = 0) -> Described:
    return Described(error, None, {"quota.window.num": count, "quota.window.size.seconds": size_s})


@pytest.mark.parametrize(
    ("configs", "most"),
    [
        ([], 7_000 * 10),
        ([windows(None, None)], 7_000 * 10),
        ([windows("3", "2"), windows("9", "9")], 7_000 * 2 * 2),
        ([None, windows("4", "4", error=31), windows("3", "1")], 7_000 * 2),
    ],
)
async def test_quotas_are_those_of_the_brokers_and_so_are_their_windows(
    configs: list[Described | None], most: int
) -> None:
    brokers, changed = Brokers(*configs), list[int]()
    found = KafkaQuotas(cast(Any, brokers), "node", cast(Any, brokers), lambda: changed.append(1))
    for _ in range(2):
        await found.try_to_read()
    assert (found.is_read, brokers.changes, changed, brokers.failed) == (True, [1], [1], [])
    limits = found.limits(client())
    assert limits is not None
    assert found.most_fetched(limits) == most
    brokers.answer = DescribedQuotas(31, "not you", ())
    for _ in range(2):
        await found.try_to_read()
    assert (found.is_read, len(brokers.failed), bool(found.quotas)) == (False, 1, True), "a failure changes nothing"
    brokers.answer = DescribedQuotas(0, None, ())
    await found.try_to_read()
    assert (found.is_read, found.limits(client()), len(changed)) == (True, None, 2)
