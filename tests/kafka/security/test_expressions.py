"""The coordinator keeps an expression (KIP-848) and resolves it with the rights of the node: a member whose rights were
taken gets no topic by it that it may not see any more.
"""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import uuid
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.messages.new_groups import CONSUMER_GROUP_HEARTBEAT
from tests.kafka.security.secured import NODE, Secured
from tests.kafka.security.test_audit import client
from tests.kafka.security.test_parked_rights import add, connected, delete, node, rules
from tests.wait import wait_for_async

if TYPE_CHECKING:
    from tests.conftest import Unique
    from tests.kafka.security.secured import Wire
    from tests.nodes import NodeProcess

__all__ = ["node"]
_ALLOW = AclPermissionType.ALLOW
_LITERAL = ResourcePatternType.LITERAL


class Member:
    """A member of a group, on a connection of its own. `heard`: what it has, by its last assignment."""

    def __init__(self, wire: Wire, group: str, **subscribed: Any) -> None:
        self._wire = wire
        self._subscribed = subscribed
        self._who = {"group_id": group, "member_id": str(uuid.uuid4()), "instance_id": None, "rack_id": None}
        self._epoch = 0
        self.heard: set[bytes] = set()

    async def beat(self, *, whole: bool = False) -> dict[str, Any]:
        """A heartbeat: the first and a `whole` one say everything, and are answered with the assignment."""
        asked: dict[str, Any] = {"rebalance_timeout_ms": -1, "subscribed_topic_names": None, "topic_partitions": None}
        if whole or not self._epoch:
            asked |= {"rebalance_timeout_ms": 30_000, "subscribed_topic_names": [], "topic_partitions": []}
        if not self._epoch:
            asked |= self._subscribed
        asked = {"subscribed_topic_regex": None, "server_assignor": None, "member_epoch": self._epoch} | asked
        answer = await self._wire.ask_table(CONSUMER_GROUP_HEARTBEAT, 1, self._who | asked)
        if not answer["error_code"]:
            self._epoch = answer["member_epoch"]
            if answer["assignment"] is not None:
                self.heard = {each["topic_id"] for each in answer["assignment"]["topic_partitions"]}
        return answer

    async def hears_of(self, count: int) -> bool:
        """Whether it has that many topics."""
        await self.beat()
        return len(self.heard) == count


async def test_an_expression_brings_a_member_nothing_of_a_topic_that_it_may_not_describe_any_more(
    secured: Secured, node: NodeProcess, unique: Unique
) -> None:
    prefix, group = unique("ledger"), unique("group")
    orders, salaries = f"{prefix}-orders", f"{prefix}-salaries"
    secured.topics(orders, salaries)
    through = client(node, NODE)  # what passes through the node it knows at once
    groups = [group, f"{group}-of-names"]
    in_groups = [
        AclBinding(ResourceType.GROUP, each, _LITERAL, "User:alice", "*", AclOperation.READ, _ALLOW) for each in groups
    ]
    add(through, *in_groups, *rules(_ALLOW, "alice", "*", orders))
    async with AsyncExitStack() as stack:
        matching = Member(await connected(stack, node, "alice"), group, subscribed_topic_regex=f"{prefix}.*")
        await wait_for_async(lambda: matching.hears_of(2), "both topics, by the expression", 60)
        delete(secured, ResourceType.TOPIC, "*", "alice")
        answers: list[dict[str, Any]] = []

        async def refused() -> bool:
            answers.append(await matching.beat(whole=True))
            return bool(answers[-1]["error_code"])

        await wait_for_async(refused, "the node to know what was taken", 20)
        assert answers[-1]["error_code"] == ErrorCode.INVALID_REGULAR_EXPRESSION
        assert answers[-1]["assignment"] is None
        assert "java.util.regex.Pattern" in answers[-1]["error_message"]
        anew = Member(await connected(stack, node, "alice"), group, subscribed_topic_regex=f"{prefix}.*")
        assert (await anew.beat())["error_code"] == ErrorCode.INVALID_REGULAR_EXPRESSION
        named = Member(await connected(stack, node, "alice"), groups[1], subscribed_topic_names=[orders])
        await wait_for_async(lambda: named.hears_of(1), "what it may see, by its name", 60)
