"""Ends the policies that clients made by asking for a mode. Such a topic is governed while sessions that asked are
there, and for the reconnect grace after them (PIP-68: a producer's access mode ends with the producer).

The node that serves the topic ends its policy. If none serves it, the node that would be first takes the right to
serve, and waits for one more grace: sessions of another node may come back. What a client made is marked in the
changelog, so policies end also after all nodes were away. An operator's change of the policy removes the mark.

A deletion is on its way to Kafka while its node may die, and another may take the topic and let a session own it. So
both sides fence each other, on the ownership partition (`GovernedTopic.end_policy`, `PolicyCatalog.hold`):

| the node that ends the policy | a node that lets sessions write |
|---|---|
| takes the topic's master slot, which frees the last owner | takes the topic's master slot |
| opens the policy's writer, and reads up to its marker | opens the policy's writer, and reads up to its marker |
| deletes, if the master slot is still its own | commits, if the policy is still there |

If the first node's marker is earlier, its deletion is read or refused. If it is later, the node has read the other's
fence of the master slot, and deletes nothing. This module decides when; it never decides who owns a topic.
"""

import asyncio
from dataclasses import dataclass, field
from typing import Final

from sidecar.exclusive.governed_topics import GovernedTopics
from sidecar.exclusive.policy_use import Idle
from sidecar.exclusive.topic import GovernedTopic

_LOOK_S: Final = 0.5
_AT_ONCE: Final = 16


@dataclass(eq=False)
class ClientPolicies:
    """The policies that clients made, on one node."""

    _governed: GovernedTopics
    _idle: dict[str, Idle] = field(default_factory=dict[str, Idle])

    async def run(self) -> None:
        """End policies that are over, until cancelled."""
        while True:
            await asyncio.sleep(_LOOK_S)
            await self.look()

    async def look(self) -> None:
        """End those that are over now, some at a time."""
        governed, now, before = self._governed, self._governed.env.now(), self._idle
        over: list[GovernedTopic] = []
        self._idle = {}
        for name in governed.env.catalog.by_clients:
            topic = self._of_this_node(name)
            if topic is None or topic.use().is_on(now):
                continue
            idle = self._idle[name] = before.get(name, Idle(now))
            if idle.is_over(now, max(_LOOK_S, governed.env.reconnect_grace)) and not topic.busy:
                over.append(topic)
        await asyncio.gather(*[self._end(topic) for topic in over[:_AT_ONCE]])

    def _of_this_node(self, name: str) -> GovernedTopic | None:
        """The topic, if this node ends its policy: it serves the topic, or it is first in line."""
        governed = self._governed
        if governed.env.draining or name in governed.env.rights.moving:
            return None
        if not (governed.serves(name) or governed.env.rights.is_first_in_line(name.encode())):
            return None
        return governed.whole(name)

    async def _end(self, topic: GovernedTopic) -> None:
        governed, served, idle = self._governed, topic.serving, self._idle[topic.name]
        await topic.end_policy()
        if topic.name not in governed.env.catalog.by_clients:
            self._idle.pop(topic.name, None)
        elif topic.serving and not served:
            self._idle[topic.name] = Idle(governed.env.now())
        else:
            self._idle[topic.name] = Idle(governed.env.now(), idle.failures + 1)
