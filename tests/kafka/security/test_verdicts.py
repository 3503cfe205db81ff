"""`acls.py` against Kafka's own authorizer: random rules, and what the broker says that each user may do by them."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import random
from contextlib import AsyncExitStack
from typing import Final

import pytest
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from sidecar.protocol.calls.security import AclBinding as Rule
from sidecar.protocol.calls.security import DescribeAcls
from sidecar.protocol.messages.cluster import METADATA
from sidecar.protocol.messages.groups import DESCRIBE_GROUPS
from sidecar.protocol.messages.transactions import INIT_PRODUCER_ID
from sidecar.security import acls
from sidecar.security.acls import CLUSTER_NAME, Acls, Rules, Subject
from sidecar.security.credentials import PasswordCredentials
from tests.kafka.security.secured import PASSWORD, Secured, Wire
from tests.wait import wait_for_async

ROUNDS: Final = 60
USERS: Final = ("alice", "bob")
HOST: Final = "127.0.0.1"
TOPICS: Final = ("m", "ma", "mab", "mb")
GROUPS: Final = ("m", "mab")
OPERATIONS: Final = [each for each in AclOperation if each.name not in ("UNKNOWN", "ANY")]
KNOWN: Final = sum(1 << each for each in acls.Operation)


@pytest.fixture(scope="module", params=["closed", "open"])
def broker(request: pytest.FixtureRequest) -> tuple[Secured, Rules]:
    """Once as Kafka is, once with everything allowed that no rule names."""
    is_open = request.param == "open"
    shared: Secured = request.getfixturevalue("lenient" if is_open else "secured")
    shared.topics(*TOPICS)
    return shared, Rules(frozenset({"User:ANONYMOUS"}), is_open)


def random_rules(dice: random.Random) -> list[AclBinding]:
    found: list[AclBinding] = []
    for _ in range(dice.choice((1, 2, 4, 8))):
        kind = dice.choice((ResourceType.TOPIC, ResourceType.TOPIC, ResourceType.GROUP, ResourceType.BROKER))
        prefixed = kind != ResourceType.BROKER and dice.random() < 0.4
        name = (
            CLUSTER_NAME
            if kind == ResourceType.BROKER
            else dice.choice(("m", "ma", "mab", "x") if prefixed else (*TOPICS, "*", "*"))
        )
        found.append(
            AclBinding(
                kind,
                name,
                ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL,
                dice.choice(("User:alice", "User:alice", "User:bob", "User:*")),
                dice.choice((HOST, "*", "*", "127.0.0.9")),
                dice.choice(OPERATIONS),
                AclPermissionType.DENY if dice.random() < 0.3 else AclPermissionType.ALLOW,
            )
        )
    return [*{repr(each): each for each in found}.values()]


async def in_force(wire: Wire, count: int) -> tuple[Rule, ...]:
    """The rules that the broker has, once they are as many."""
    found: list[tuple[Rule, ...]] = []

    async def all_there() -> bool:
        answer = await wire.ask(DescribeAcls())
        assert answer.error == 0
        found.append(answer.bindings)
        return len(answer.bindings) == count

    await wait_for_async(all_there, f"{count} rules")
    return found[-1]


async def rights(wire: Wire) -> dict[tuple[int, str], int | None]:
    """What the broker says that a connection may do, as bits; None where it may not even be told."""
    topics = {"topics": [{"name": name} for name in TOPICS], "include_topic_authorized_operations": True}
    answer = await wire.ask_table(METADATA, 8, {**topics, "include_cluster_authorized_operations": True})
    found: dict[tuple[int, str], int | None] = {}
    for each in answer["topics"]:
        told = None if each["error_code"] == 29 else each["topic_authorized_operations"]
        found[acls.ResourceType.TOPIC, each["name"]] = told
    found[acls.ResourceType.CLUSTER, CLUSTER_NAME] = answer["cluster_authorized_operations"]
    answer = await wire.ask_table(DESCRIBE_GROUPS, 4, {"groups": [*GROUPS], "include_authorized_operations": True})
    for each in answer["groups"]:
        told = None if each["error_code"] == 30 else each["authorized_operations"]
        found[acls.ResourceType.GROUP, each["group_id"]] = told
    return found


async def writes_idempotently(wire: Wire) -> bool:
    values = {"transactional_id": None, "transaction_timeout_ms": 60_000, "producer_id": -1, "producer_epoch": -1}

    async def answered() -> list[int]:
        """A broker that has no producer ids yet fetches some, and says 14 meanwhile."""
        error = (await wire.ask_table(INIT_PRODUCER_ID, 3, values))["error_code"]
        return [] if error == 14 else [error]

    (error,) = await wait_for_async(answered, "a producer id")
    assert error in (0, 31)
    return error == 0


@pytest.mark.timeout(300)
async def test_every_verdict_is_the_brokers(broker: tuple[Secured, Rules]) -> None:
    secured, rules = broker
    dice = random.Random(19)
    compared = denied = 0
    snapshot = Acls(rules=rules)
    async with AsyncExitStack() as open_wires:
        root = await open_wires.enter_async_context(secured.wire("PLAINTEXT"))
        everything = await rights(root)
        wires: dict[str, Wire] = {}
        for user in USERS:
            wires[user] = await open_wires.enter_async_context(secured.wire("SASL_PLAINTEXT"))
            await wires[user].login(PasswordCredentials("PLAIN", user, PASSWORD))
        for _ in range(ROUNDS):
            secured.forget_acls()
            await in_force(root, 0)
            made = random_rules(dice)
            for each in secured.admin.create_acls(made).values():
                each.result(30)
            snapshot = snapshot.replaced(await in_force(root, len(made)))
            for user, wire in wires.items():
                subject = Subject(f"User:{user}", HOST)
                for (kind, name), bits in (await rights(wire)).items():
                    supported = (everything[kind, name] or 0) & KNOWN
                    ours = snapshot.allowed(subject, kind, name)
                    described = bool(ours >> acls.Operation.DESCRIBE & 1)
                    if kind == acls.ResourceType.CLUSTER and not described:
                        assert bits == 0, (made, subject)  # whoever may not describe the cluster is told of no right
                    elif bits is None:
                        assert not described, (made, subject, kind, name)
                    else:
                        assert described, (made, subject, kind, name)
                        assert ours & supported == bits & supported, (made, subject, kind, name)
                        compared += supported.bit_count()
                    denied += not described
                assert snapshot.may_write_idempotently(subject) is await writes_idempotently(wire), (made, subject)
    assert compared > 500
    assert denied > 20
