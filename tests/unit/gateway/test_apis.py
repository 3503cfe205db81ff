"""What the row of an API says is what a node does."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from uuid import UUID

import pytest

import sidecar.gateway
from sidecar.cluster.resolver import ANYBODY, NameResolver, Source
from sidecar.cluster.upstream import KafkaUpstream
from sidecar.gateway.apis.relays import relayed
from sidecar.gateway.apis.spec import ApiSpec, Route
from sidecar.gateway.apis.table import ALL_APIS, APIS, handlers
from sidecar.gateway.client_metrics import by_instance
from sidecar.gateway.shadow_rules import ShadowRule
from sidecar.protocol.api import ApiKey
from sidecar.protocol.api_versions import VersionRange
from sidecar.protocol.caller import CoordinatorKind
from sidecar.protocol.errors import ErrorCode
from tests.unit.gateway.brokers import Client, Setup, batch, play
from tests.unit.gateway.services import services

COLD = sorted(key for key, row in APIS.items() if row.hot is None)


def module_docs() -> list[str]:
    return [path.read_text().split('"""')[1] for path in Path(sidecar.gateway.__file__).parent.rglob("*.py")]


@pytest.mark.parametrize("key", COLD, ids=[APIS[key].name for key in COLD])
def test_some_module_says_in_its_docstring_which_versions_it_serves(key: int) -> None:
    api = APIS[key]
    served = {
        versions
        for text in module_docs()
        for names, versions in re.findall(r"((?:\w+(?:,| and)\s+)*\w+)\s+\((\d+(?:-\d+)?)\)", text)
        if api.name in re.split(r"[\s,]+", names)
    }
    expected = f"{api.first}-{api.last}" if api.first != api.last else f"{api.last}"
    assert served == {expected}


def test_every_row_has_its_module() -> None:
    modules = {path.stem for path in Path(sidecar.gateway.__file__).parent.glob("apis/k*_*.py")}
    assert modules == {f"k{key:02}_{ApiKey(key).name.lower()}" for key in ALL_APIS}


def serve(setup: Setup, row: ApiSpec) -> None:
    """Let a node that runs serve this API alone."""
    made = handlers(services(setup.upstream, setup.resolver), {row.key: row})
    setup.gateway.serve(made, [VersionRange(row.key, *row.versions)])


async def with_two_coordinators(setup: Setup) -> str:
    """A name whose group and whose transactional id have different coordinators."""
    for number in range(20):
        name = f"name-{number}"
        of_group, of_transaction = [await setup.upstream.coordinator(name, kind) for kind in _KINDS]
        if of_group != of_transaction:
            return name
    raise AssertionError("both kinds of coordinators are placed alike")


_KINDS = CoordinatorKind.GROUP, CoordinatorKind.TRANSACTION


async def heartbeat(client: Client, group: str) -> int:
    fields = {"group_id": group, "generation_id": 1, "member_id": "m", "group_instance_id": None}
    answer = await client.asks(ALL_APIS[ApiKey.HEARTBEAT].message, 3, fields)
    return answer["error_code"]


def test_a_request_goes_to_the_broker_that_its_rows_route_names() -> None:
    async def story(setup: Setup) -> None:
        row, client = ALL_APIS[ApiKey.HEARTBEAT], await setup.client()
        group = await with_two_coordinators(setup)
        serve(setup, row)
        assert await heartbeat(client, group) == ErrorCode.UNKNOWN_MEMBER_ID
        serve(setup, replace(row, route=Route.TRANSACTION))
        assert await heartbeat(client, group) == ErrorCode.NOT_COORDINATOR

    play(story)


@pytest.mark.parametrize(
    ("key", "fields", "answered", "codes"),
    [
        (
            ApiKey.CREATE_TOPICS,
            {"name": "others", "num_partitions": 1, "replication_factor": 1, "assignments": [], "configs": []},
            "topics",
            {ShadowRule.TAKEN: 36, ShadowRule.REFUSED: 29, ShadowRule.OWN: 36},
        ),
        (
            ApiKey.CREATE_PARTITIONS,
            {"name": "others", "count": 9, "assignments": None},
            "results",
            {ShadowRule.REFUSED: 29, ShadowRule.OWN: 0},
        ),
    ],
)
def test_a_shadow_is_refused_as_the_rows_rule_says(
    key: ApiKey, fields: dict[str, object], answered: str, codes: dict[ShadowRule, int]
) -> None:
    async def story(setup: Setup) -> None:
        setup.resolver.set_shadows({b"others": Source(b"orders", UUID(int=1), frozenset({ANYBODY}))})
        row, client = ALL_APIS[key], await setup.client()
        asked = {"topics": [fields], "timeout_ms": 1_000, "validate_only": False}
        assert row.shadow is next(iter(codes))
        found: dict[ShadowRule, int] = {}
        for rule in codes:
            serve(setup, replace(row, shadow=rule))
            (topic,) = (await client.asks(row.message, row.last, asked))[answered]
            found[rule] = topic["error_code"]
            has_said_what_it_is = topic["error_message"] is not None and "shadow" in topic["error_message"]
            assert has_said_what_it_is is (rule is not ShadowRule.OWN)
        assert found == codes

    play(story)


def test_a_shadow_is_read_from_its_source_if_the_rows_rule_says_so() -> None:
    async def story(setup: Setup) -> None:
        row, client = ALL_APIS[ApiKey.LIST_OFFSETS], await setup.client()
        await client.sends(("orders", 0, batch(1, 2, 3)))
        source = UUID(bytes=setup.cluster.controller.topics["orders"].id)
        setup.resolver.set_shadows({b"others": Source(b"orders", source, frozenset({ANYBODY}))})
        newest = {"partition_index": 0, "current_leader_epoch": -1, "timestamp": -1}
        asked = {"replica_id": -1, "isolation_level": 0, "topics": [{"name": "others", "partitions": [newest]}]}
        found: dict[ShadowRule, tuple[int, int]] = {}
        for rule in (ShadowRule.READ, ShadowRule.OWN, ShadowRule.REFUSED):
            serve(setup, replace(row, shadow=rule))
            (topic,) = (await client.asks(row.message, 5, asked))["topics"]
            found[rule] = topic["partitions"][0]["error_code"], topic["partitions"][0]["offset"]
        assert found == {ShadowRule.READ: (0, 3), ShadowRule.OWN: (0, 0), ShadowRule.REFUSED: (29, -1)}

    play(story)


@pytest.mark.parametrize("rule", [ShadowRule.REFUSED, ShadowRule.TAKEN, ShadowRule.READ, ShadowRule.SHOWN])
def test_an_api_that_is_relayed_unread_may_not_have_a_rule_that_nobody_keeps(rule: ShadowRule) -> None:
    of = services(KafkaUpstream([("127.0.0.1", 1)], connect_timeout=1, request_timeout=1), NameResolver())
    unread = [row for row in ALL_APIS.values() if row.hot is None and row.cold is None and row.form is None]
    assert {ApiKey.DESCRIBE_ACLS, ApiKey.CREATE_ACLS} <= {row.key for row in unread}
    for row in unread:
        relayed(row, of)
        with pytest.raises(TypeError, match=row.name):
            relayed(replace(row, shadow=rule), of)


def test_a_client_instance_has_one_broker_of_those_that_there_are() -> None:
    ids = [UUID(int=number).bytes for number in range(200)]
    homes = {each: by_instance(each, [1, 2, 3])[0] for each in ids}
    assert {each: by_instance(each, (3, 1, 2))[0] for each in ids} == homes
    assert all(40 < [*homes.values()].count(broker) < 95 for broker in (1, 2, 3))
    moved = {each for each in ids if by_instance(each, [1, 2])[0] != homes[each]}
    assert moved == {each for each, broker in homes.items() if broker == 3}


@pytest.mark.parametrize("key", [ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY])
def test_metrics_of_clients_wait_for_their_interval_if_their_broker_is_lost(key: ApiKey) -> None:
    """These brokers close the connection of a request that they do not know. Other errors would end the telemetry."""

    async def story(setup: Setup) -> None:
        row, client = ALL_APIS[key], await setup.client()
        serve(setup, row)
        answer = await client.asks(row.message, 0, {"client_instance_id": UUID(int=7).bytes})
        assert answer["error_code"] == ErrorCode.THROTTLING_QUOTA_EXCEEDED

    play(story)
