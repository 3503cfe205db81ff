"""The ACLs as a node knows them: what is kept where they cannot be read, and when others are told."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

import pytest

from sidecar.gateway.enforcement import AclMirror
from sidecar.network.tasks import Tasks
from sidecar.protocol.caller import DisconnectedError
from sidecar.protocol.calls.admin import ConfigResource, DescribeConfigs, Described, Resource
from sidecar.protocol.calls.security import AclBinding, DescribeAcls, DescribedAcls
from sidecar.protocol.errors import KafkaError
from sidecar.security.acls import Operation, ResourceType, Rules
from tests.wait import wait_until

if TYPE_CHECKING:
    from sidecar.cluster.upstream import KafkaUpstream

RULE = AclBinding(ResourceType.TOPIC, "a", 3, "User:alice", "*", Operation.READ, 3)


class Kafka:
    """A cluster that answers DescribeAcls with the next of `answers`, the last one for ever."""

    def __init__(self, *answers: DescribedAcls | Exception) -> None:
        self.answers = [*answers]
        self.failures: list[Exception] = []
        self.counts: list[int] = []
        self.creates: dict[int, Described | None] = {}
        """The answers of brokers about `auto.create.topics.enable`."""

    async def ask_any(self, request: DescribeAcls) -> DescribedAcls:
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def brokers(self) -> list[int]:
        return [*self.creates]

    async def call(self, broker: int, request: DescribeConfigs) -> dict[Resource, Described]:
        creates, (resource,) = self.creates[broker], request.resources
        assert (request.names, resource) == (
            ("auto.create.topics.enable",),
            Resource(ConfigResource.BROKER, str(broker)),
        )
        return {} if creates is None else {resource: creates}

    def acls_failed(self, error: Exception) -> None:
        self.failures.append(error)

    def acls_changed(self, count: int) -> None:
        self.counts.append(count)

    def mirror(self) -> AclMirror:
        return AclMirror(cast("KafkaUpstream", self), Rules(), self)


def told(*rules: AclBinding, error: int = 0) -> DescribedAcls:
    return DescribedAcls(error, None, rules)


def config(value: str | None = None, *, error: int = 0) -> Described:
    return Described(error, None, {} if value is None else {"auto.create.topics.enable": value})


async def test_without_an_authorizer_nothing_is_enforced() -> None:
    mirror = Kafka(told(error=54)).mirror()
    await mirror.read()
    assert mirror.acls is None


async def test_an_authorizer_without_rules_allows_nothing() -> None:
    mirror = Kafka(told()).mirror()
    await mirror.read()
    assert mirror.acls is not None


@pytest.mark.parametrize("failure", [told(error=54), told(error=31), DisconnectedError("gone", sent=True)])
async def test_what_was_read_last_holds_where_it_cannot_be_read(failure: DescribedAcls | Exception) -> None:
    kafka = Kafka(told(RULE), failure)
    mirror = kafka.mirror()
    await mirror.read()
    read = mirror.acls
    with pytest.raises((KafkaError, DisconnectedError)):
        await mirror.read()
    assert mirror.acls is read


async def test_others_are_told_of_changes_alone() -> None:
    kafka = Kafka(told(), told(), told(RULE), told(RULE))
    mirror = kafka.mirror()
    changes: list[Any] = []
    mirror.changed = lambda: changes.append(mirror.acls)
    for _ in range(4):
        await mirror.read()
    assert kafka.counts == [0, 1]
    assert len(changes) == 2
    assert mirror.age < 60


async def test_a_change_that_passed_is_read_at_once_and_a_failure_ends_nothing() -> None:
    kafka = Kafka(told(), DisconnectedError("gone", sent=True), told(RULE))
    mirror = kafka.mirror()
    await mirror.read()
    crashed: list[BaseException] = []
    tasks = Tasks(crashed.append)
    tasks.start(mirror.run())
    mirror.read_soon()
    await wait_until(lambda: kafka.counts == [0, 1], "the new rules")
    assert len(kafka.failures) == 1
    assert not crashed
    await tasks.cancel()


@pytest.mark.parametrize(
    ("answers", "creates"),
    [
        ([config("false")], False),
        ([config("true"), config("false")], True),
        ([None, config(error=31), config("false")], False),
        ([config(None)], True),
        ([], True),
    ],
)
async def test_the_first_broker_that_says_it_says_whether_topics_are_created(
    answers: list[Described | None], creates: bool
) -> None:
    kafka = Kafka(told())
    kafka.creates = dict(enumerate(answers, 1))
    mirror = kafka.mirror()
    await mirror.read()
    assert mirror.creates_topics is creates
