"""A node on paper: keeps topics and policies in memory, so that HTTP can be tested without a cluster."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import fields, replace

from sidecar.cluster.nodes import NodeAddress
from sidecar.node.port import (
    Check,
    ClientFacts,
    ConflictError,
    Deduplicated,
    ElsewhereError,
    GenerationError,
    IfMatch,
    InvalidError,
    NewTopic,
    NodeState,
    NotFoundError,
    Policy,
    Producer,
    ProducerIds,
    Refusal,
    Scope,
    Status,
    Topic,
    UnavailableError,
)
from sidecar.node.view import NodeView
from sidecar.protocol.metadata import Broker
from sidecar.settings import load
from sidecar.settings.loaded import LoadedSettings, Shown
from sidecar.v1 import state_pb2 as state
from tests.unit.admin.paper_logs import PaperLogs
from tests.unit.admin.paper_shadows import PaperShadows


class PaperNode(NodeView):
    """A view over a dictionary. `down`: a message with which every call fails; `bug`: an exception to raise. `ids`:
    producers by topic and name; `elsewhere`: the admin address of the node that has them.
    """

    def __init__(self, *topics: Topic) -> None:
        self.known = {topic.name: topic for topic in topics}
        self.readiness: list[Check] = [Check("kafka", True), Check("redis", True), Check("changelog", True)]
        self.history: list[tuple[int, state.Event]] = []
        self.down = ""
        self.bug: Exception | None = None
        self.calls: list[tuple[object, ...]] = []
        self.changed_by = ""
        self.ids: dict[str, dict[str, ProducerIds]] = {}
        self.shadows = PaperShadows(self.known, self.called)
        self.logs = PaperLogs(self.known, self.called)
        self.elsewhere = ""
        self.deduplicated = Deduplicated()
        self.connected: list[ClientFacts] = []
        self.refused: list[Refusal] = []

    def called(self, *call: object) -> None:
        self.calls.append(call)
        if self.bug is not None:
            raise self.bug
        if self.down:
            raise UnavailableError(self.down)

    async def checks(self) -> Sequence[Check]:
        return self.readiness

    async def status(self) -> Status:
        self.called("status")
        me, broker = NodeAddress(1, "127.0.0.1", 19092), Broker(1, "127.0.0.1", 9092)
        at = ("127.0.0.1", 19092)
        state, counted = NodeState.SERVING, self.deduplicated
        return Status(1, "default", state, 0, at, "id", [me], [broker], 2, 1, self.readiness, counted)

    async def clients(self, after: int, most: int) -> tuple[Sequence[ClientFacts], int | None]:
        self.called("clients", after, most)
        end = after + most
        return self.connected[after:end], end if end < len(self.connected) else None

    def refusals(self, topic: str | None = None) -> Sequence[Refusal]:
        self.called("refusals", topic)
        return [each for each in self.refused if topic in {None, each.topic}]

    def settings(self) -> Sequence[Shown]:
        return LoadedSettings(load()).shown

    async def catch_up(self) -> None:
        self.called("catch_up")

    async def topic_names(self, *, governed: bool) -> Sequence[str]:
        self.called("topic_names", governed)
        return sorted(name for name, topic in self.known.items() if not governed or topic.policy is not None)

    async def topics(self, names: Sequence[str], *, producers: bool = False) -> Sequence[Topic]:
        self.called("topics", tuple(names))
        return [self.known[name] for name in names if name in self.known]

    async def create_topic(self, wanted: NewTopic, policy: Policy | None, by: str = "") -> Topic:
        self.called("create_topic", wanted, policy)
        self.changed_by = by
        before = self.known.get(wanted.name)
        if before is not None and before.partitions:
            raise ConflictError(f"there is a topic {wanted.name} already")
        self.known[wanted.name] = Topic(
            wanted.name, wanted.partitions or 1, policy=policy or (before and before.policy)
        )
        return self.known[wanted.name]

    async def merge_policy(self, name: str, change: Policy, match: IfMatch | None = None, by: str = "") -> Topic:
        self.called("merge_policy", name, change, *([match] if match else []))
        self.changed_by = by
        self._match(name, match)
        if change.scope is Scope.PARTITION:
            raise InvalidError("scope partition is not served by this node")
        topic = self.known.get(name)
        if topic is None and not name.endswith("*"):
            raise NotFoundError(f"there is no topic {name}")
        topic = topic or Topic(name, 0)
        values = {each.name: getattr(change, each.name) for each in fields(change)}
        said = {name: value for name, value in values.items() if value is not None}
        self.known[name] = replace(topic, policy=replace(topic.policy or Policy(), **said))
        return self.known[name]

    async def delete_policy(self, name: str, match: IfMatch | None = None, by: str = "") -> None:
        self.called("delete_policy", name)
        self.changed_by = by
        self._match(name, match)
        topic = self.known.get(name)
        if topic is None or topic.policy is None:
            raise NotFoundError(f"{name} has no policy of its own")
        self.known[name] = replace(topic, policy=None)

    async def events(
        self, after: int | None, newest: int = 0, topic: str | None = None
    ) -> AsyncGenerator[tuple[int, state.Event] | None]:
        self.called("events", after, newest, topic)
        yield None
        for position, event in self.history:
            if (after is None or position > after) and topic in {None, event.topic}:
                yield position, event

    async def fence(self, name: str, partition: int | None, generations: frozenset[int] | None = None) -> Topic:
        return self._end("fence", name, partition, generations)

    async def release(self, name: str, partition: int | None, generations: frozenset[int] | None = None) -> Topic:
        return self._end("release", name, partition, generations)

    def _match(self, name: str, match: IfMatch | None) -> None:
        if match is not None and match.generations is not None:
            known = self.known.get(name)
            current = 0 if known is None else known.generation
            if current not in match.generations:
                raise GenerationError.of(name, current)

    async def producers(
        self, name: str, most: int, behind: tuple[int, bytes] | None = None
    ) -> tuple[Sequence[Producer], tuple[int, bytes] | None]:
        """In the order they were put in: a place is a number and a name, here the one that comes next."""
        self.called("producers", name, most)
        known = list(self._ids_of(name).values())
        end = (0 if behind is None else behind[0]) + most
        return known[end - most : end], (end, known[end].name.encode()) if end < len(known) else None

    async def producer(self, name: str, producer: str) -> ProducerIds:
        self.called("producer", name, producer)
        return self._known(name, producer)

    async def forget_producer(self, name: str, producer: str) -> None:
        self.called("forget_producer", name, producer)
        if self._known(name, producer).in_use:
            raise ConflictError(f"{producer} is in use")
        del self.ids[name][producer]

    def check_serving(self, name: str) -> None:
        if self.elsewhere:
            raise ElsewhereError(f"another node serves {name}", self.elsewhere)

    def _ids_of(self, name: str) -> dict[str, ProducerIds]:
        self.check_serving(name)
        if name not in self.known:
            raise NotFoundError(f"there is no topic {name}")
        if name not in self.ids:
            raise ConflictError(f"{name} has no deduplication")
        return self.ids[name]

    def _known(self, name: str, producer: str) -> ProducerIds:
        found = self._ids_of(name).get(producer)
        if found is None:
            raise NotFoundError(f"{producer} is not known")
        return found

    def _end(self, what: str, name: str, partition: int | None, generations: frozenset[int] | None) -> Topic:
        self.called(what, name, partition)
        topic = self.known.get(name)
        if topic is None:
            raise NotFoundError(f"there is no topic {name}")
        if topic.owners is not None and partition is None:
            raise InvalidError(f"{name} has the scope partition: say which one")
        if topic.owner is None:
            raise ConflictError(f"nobody owns {name}")
        if generations is not None:
            self._match(name, IfMatch(generations))
        self.known[name] = replace(topic, owner=None)
        return self.known[name]
