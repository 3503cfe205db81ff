"""The topics that have a state on this node, and the connections that claim them. A state is made at the first request
for its topic.
"""

from typing import TypeGuard

from sidecar.exclusive.environment import Environment
from sidecar.exclusive.partitions import PartitionedTopic, Topic
from sidecar.exclusive.refusals import Refusals, RefusedLedger
from sidecar.exclusive.topic import GovernedTopic
from sidecar.policy.policies import Scope
from sidecar.protocol.session import Session


class Registry:
    """`by_name`: by the names in requests, as bytes. `named`: the same by name."""

    def __init__(self, environment: Environment) -> None:
        self.by_name: dict[bytes, Topic] = {}
        self.named: dict[str, Topic] = {}
        self.refused = RefusedLedger()
        self._env = environment
        self._of_connection: dict[int, set[Topic]] = {}
        environment.watchers.append(self._changed)

    def topic(self, name: str) -> Topic:
        """The state of a governed topic on this node."""
        return self.named.get(name) or self.begin(name, Refusals(self.refused))

    def begin(self, name: str, refusals: Refusals) -> Topic:
        """Make the state of a topic anew, of the kind that its policy's scope requires."""
        kind = PartitionedTopic if self._env.catalog.book.scope(name) is Scope.PARTITION else GovernedTopic
        topic = self.named[name] = self.by_name[name.encode()] = kind(name, self._env, refusals)
        return topic

    def remove(self, topic: Topic) -> None:
        """Remove a topic that is not governed any more."""
        del self.named[topic.name], self.by_name[topic.name.encode()]

    def drop(self, topic: Topic) -> None:
        """Remove a topic that Kafka does not have, or of which nothing is left."""
        topic.serving = False
        self.remove(topic)
        self._env.rights.forget(topic.name)
        for topics in self._of_connection.values():
            topics.discard(topic)
        self._env.hooks.topic_forgotten(topic.name)

    def _changed(self, name: str, _partition: int | None) -> None:
        """Drop a topic that Kafka did not know: a prefix covers any name that clients send."""
        topic = self.named.get(name)
        if topic is not None and self._is_unused(topic) and topic.is_unknown:
            self.drop(topic)

    def missing(self, name: bytes) -> None:
        """Drop the topic of this name if nobody wrote to it: Kafka knows none."""
        topic = self.by_name.get(name)
        if topic is None:
            self._env.hooks.topic_forgotten(name.decode(errors="replace"))
        elif self._is_unused(topic):
            self.drop(topic)

    @staticmethod
    def _is_unused(topic: Topic) -> TypeGuard[GovernedTopic]:
        """Whether nothing is stored of a topic, and nobody is about to take it."""
        return isinstance(topic, GovernedTopic) and topic.is_new and not topic.busy

    def forget_refusals(self, session: Session) -> None:
        """Forget the refused sequences of a session on all topics."""
        for topic in self.named.values():
            topic.refusals.forget(session)

    # Connections ----------------------------------------------------------------------------------------------------

    def connected(self, connection: int, topic: Topic) -> None:
        """Note that a client connection claims a topic, which has to hear of the connection's end."""
        self._of_connection.setdefault(connection, set()).add(topic)

    def claimed_by(self, connection: int) -> int:
        """The number of topics that a connection claims."""
        return len(self._of_connection.get(connection, ()))

    def connection_closed(self, connection: int) -> list[GovernedTopic]:
        """Forget a connection; returns what it claimed, topics and partitions with their own owners."""
        self.refused.connection_closed(connection)
        return [part for topic in self._of_connection.pop(connection, ()) for part in topic.parts]

    def has_clients(self, topic: Topic) -> bool:
        """Whether a connection claims a topic."""
        return any(topic in topics for topics in self._of_connection.values())
