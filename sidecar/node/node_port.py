"""What the HTTP side needs of a node, and what the node calls of its HTTP side. The node implements `NodePort`; tests
do too.

Names are checked before a call is made: what arrives here is a legal Kafka topic name, or `PREFIX*` where a method says
so, and never an internal topic (`__…`) in a method that changes something.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Sequence

    from sidecar.node.log_port import LogPort
    from sidecar.node.port import (
        Check,
        ClientFacts,
        Event,
        IfMatch,
        NewTopic,
        Policy,
        Producer,
        ProducerIds,
        Refusal,
        Status,
        Topic,
    )
    from sidecar.node.shadow_port import ShadowPort
    from sidecar.settings import Settings
    from sidecar.settings.loaded import Shown
    from sidecar.telemetry.hooks import NodeMetrics


class NodePort(Protocol):
    """The node as the HTTP side sees it. All methods may raise `UnavailableError`."""

    async def checks(self) -> Sequence[Check]:
        """Readiness as known now; at least `kafka`, `redis` and `changelog`. Quick: no round trip of its own."""
        ...

    async def status(self) -> Status:
        """The node and what it sees now."""
        ...

    async def clients(self, after: int, most: int) -> tuple[Sequence[ClientFacts], int | None]:
        """The clients connected to this node, oldest first: `most` of them after the place `after` (0: the beginning),
        and the place to go on after, None at the end.
        """
        ...

    def refusals(self, topic: str | None = None) -> Sequence[Refusal]:
        """What this node refused its clients lately, of one topic or of all, what happened last first: a thousand
        entries at most. Quick.
        """
        ...

    def settings(self) -> Sequence[Shown]:
        """The node's settings, secrets masked."""
        ...

    async def catch_up(self) -> None:
        """Returns once this node knows what any node acknowledged before. A client that asks for owners, of who serves
        a topic, or of sequence ids waits for that first.
        """
        ...

    async def topic_names(self, *, governed: bool) -> Sequence[str]:
        """All topics that clients see and all prefixes with a policy, sorted.

        With `governed` only topics that are governed, by whatever policy, and the prefixes.
        """
        ...

    async def topics(self, names: Sequence[str], *, producers: bool = False) -> Sequence[Topic]:
        """These topics and prefixes in this order; those that do not exist are left out.

        With `producers` the newest names, of topics that this node serves and whose sequence ids it knows, and the
        numbers of shadows.
        """
        ...

    def events(self, after: int | None, newest: int = 0, topic: str | None = None) -> AsyncGenerator[Event | None]:
        """What happens, with one topic or at all, from now on, with the `newest` so many of before, or after a
        position, for ever.

        None at first, unless it is refused, and every second while nothing happens.
        """
        ...

    async def create_topic(self, wanted: NewTopic, policy: Policy | None, by: str = "") -> Topic:
        """Create a topic, then set fields of its policy; returns when clients find it and the policy is in force.
        Raises ConflictError where there is such a topic, InvalidError with Kafka's reason where Kafka refuses it: then
        nothing was done.
        """
        ...

    async def merge_policy(self, name: str, change: Policy, match: IfMatch | None = None, by: str = "") -> Topic:
        """Set the fields of `change` that are not None; returns when the policy is in force. `by`: who wants it, for
        the history.

        An empty change governs the topic with the defaults. `name` may be a prefix. Raises NotFoundError, InvalidError,
        ConflictError, GenerationError where `match` does not hold at the moment of the change.
        """
        ...

    async def delete_policy(self, name: str, match: IfMatch | None = None, by: str = "") -> None:
        """Forget the topic's or prefix's own policy. Raises NotFoundError where it has none, GenerationError."""
        ...

    async def fence(self, name: str, partition: int | None, generations: frozenset[int] | None = None) -> Topic:
        """Depose the owner for ever. `partition`: of a topic with scope partition.

        Raises NotFoundError, ConflictError without an owner, InvalidError where `partition` does not fit the scope,
        GenerationError where the generation is none of `generations` at the moment of the change, NothingDoneError
        while the topic moves between nodes.
        """
        ...

    async def release(self, name: str, partition: int | None, generations: frozenset[int] | None = None) -> Topic:
        """Clear the owner; its session may claim again. Raises as `fence`."""
        ...

    def check_serving(self, name: str) -> None:
        """Raises ElsewhereError where another live node serves the topic. Quick: no round trip."""
        ...

    async def producers(
        self, name: str, most: int, behind: tuple[int, bytes] | None = None
    ) -> tuple[Sequence[Producer], tuple[int, bytes] | None]:
        """The `most` producer names that wrote to a topic last, newest first, of those after a place (Unix seconds of
        the last record, name); and the place to go on after, None at the end.

        Takes a topic over that nobody serves. Raises NotFoundError without such a topic, ConflictError without
        deduplication, ElsewhereError, UnavailableError while the sequence ids are being read.
        """
        ...

    async def producer(self, name: str, producer: str) -> ProducerIds:
        """What is known of one name. Raises as `producers`, and NotFoundError for a name that is not known."""
        ...

    async def forget_producer(self, name: str, producer: str) -> None:
        """Forget a name and its sequence ids for good. Raises as `producer`, and ConflictError while it is in use."""
        ...

    @property
    def logs(self) -> LogPort:
        """What is asked about the logs of topics."""
        ...

    @property
    def shadows(self) -> ShadowPort:
        """What is asked about shadow topics."""
        ...


class AdminService(Protocol):
    """The HTTP side as the node sees it."""

    async def start(self) -> None:
        """Listen. Raises OSError where the address is taken."""
        ...

    async def stop(self) -> None:
        """Close; calls under way get a moment to end. Repeating it is harmless."""
        ...

    def take(self, settings: Settings) -> None:
        """From now on these hold, as far as they may change while it runs."""
        ...


AdminFactory = Callable[[NodePort, "NodeMetrics", "Settings"], AdminService]
"""How the node is given its HTTP side: `sidecar.admin.server.AdminServer` is one."""
