"""What one client may do, by Kafka's ACLs of now. Pure.

The principal is read anew at each question, as a login may come after the connection; verdicts are remembered per
resource until the ACLs change (`sidecar.security.acls.Verdicts`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol, TypeAlias

from sidecar.cluster.resolver import INTERNAL_PREFIX
from sidecar.security.acls import CLUSTER_NAME, Acls, Operation, ResourceType, Subject, Verdicts

KAFKAS_OWN: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Topics that coordinators alone write to. A broker refuses most of it too, but not to a client that calls itself
`__admin_client`."""
_SIDECARS_OWN: Final = INTERNAL_PREFIX.decode()
_READING: Final = 1 << Operation.READ | 1 << Operation.DESCRIBE | 1 << Operation.DESCRIBE_CONFIGS
"""What an ACL can grant on such a topic."""
_NONE: Final[frozenset[bytes]] = frozenset()
Denied: TypeAlias = tuple[int, int, str]
"""An action that was not allowed: operation, kind of the resource and its name."""


class Whose(Protocol):
    """The client that asks."""

    @property
    def principal(self) -> str: ...


class Limited(Protocol):
    """A client with its rights; None where nothing is enforced."""

    @property
    def rights(self) -> Rights | None: ...


class Part(Protocol):
    """One partition in a request."""

    @property
    def topic(self) -> bytes: ...


class Current(Protocol):
    """Where the ACLs of now are; None while nothing is enforced, as brokers have no authorizer. `take_over`: the
    operation that deposing others takes.
    """

    acls: Acls | None
    take_over: Operation


_LEAVES_CLUSTER: Final = ~(1 << Operation.ALTER | 1 << Operation.ALTER_CONFIGS | 1 << Operation.DELETE)
"""What is left of the cluster's operations without those that change it for all."""


def may_see(client: Limited, topic: str) -> bool:
    """Whether a client may know of a topic: what it may not DESCRIBE looks like what is not there."""
    rights = client.rights
    return rights is None or rights.topic(Operation.DESCRIBE, topic)


class Rights:
    """The rights of one client connection. `host` is as Kafka writes addresses (`sidecar.security.acls`)."""

    __slots__ = ("_current", "_granted", "_granted_by", "_granted_to", "_host", "_verdicts", "_whose", "denied")

    def __init__(self, whose: Whose, host: str, current: Current) -> None:
        self._whose: Final = whose
        self._host: Final = host
        self._current: Final = current
        self._verdicts: Verdicts | None = None
        self._granted: Final[set[tuple[int, bytes]]] = set()
        self._granted_by: Acls | None = None
        self._granted_to = ""
        self.denied: Denied | None = None
        """The first action that was not allowed since somebody set this to None. One on the
        cluster gives way to others: it is often asked for in place of one on a topic.
        """

    @property
    def enforced(self) -> bool:
        """False where everything is allowed, as brokers have no authorizer."""
        return self._current.acls is not None

    def _known(self, acls: Acls) -> Verdicts:
        principal = self._whose.principal
        found = self._verdicts
        if found is None or found.subject.principal != principal:
            found = self._verdicts = Verdicts(Subject(principal, self._host), acls)
        return found

    def allowed(self, kind: int, name: str) -> int:
        """The operations that are allowed on one resource, as bits: bit n is the operation with Kafka's number n."""
        acls = self._current.acls
        if acls is None:
            return -1
        known = self._known(acls)
        bits = known.allowed(acls, kind, name)
        if kind == ResourceType.TOPIC and name.startswith("__") and not acls.is_super_user(self._whose.principal):
            return bits & _READING if name in KAFKAS_OWN or name.startswith(_SIDECARS_OWN) else bits
        return bits

    def may(self, operation: int, kind: int, name: str) -> bool:
        """`Authorizer.authorize` for one action."""
        if self.allowed(kind, name) >> operation & 1:
            return True
        if self.denied is None or self.denied[1] == ResourceType.CLUSTER:
            self.denied = operation, kind, name
        return False

    def topic(self, operation: int, name: str) -> bool:
        """Whether an operation on a topic is allowed."""
        return self.may(operation, ResourceType.TOPIC, name)

    def may_own(self, topic: str, *, deposes: bool) -> bool:
        """Whether a client may own a governed topic, and take it from any owner at once, or name its generation."""
        if not self.topic(Operation.WRITE, topic):
            return False
        return not deposes or self.topic(self._current.take_over, topic)

    def group(self, operation: int, name: str) -> bool:
        """Whether an operation on a group is allowed."""
        return self.may(operation, ResourceType.GROUP, name)

    def transactional_id(self, operation: int, name: str) -> bool:
        """Whether an operation on a transactional id is allowed."""
        return self.may(operation, ResourceType.TRANSACTIONAL_ID, name)

    def cluster(self, operation: int) -> bool:
        """Whether an operation on the cluster is allowed."""
        return self.may(operation, ResourceType.CLUSTER, CLUSTER_NAME)

    def cluster_operations(self, supported: int) -> int:
        """What DescribeCluster and Metadata say of the cluster: no operation to a client that may not describe it."""
        bits = self.allowed(ResourceType.CLUSTER, CLUSTER_NAME)
        return bits & supported if bits >> Operation.DESCRIBE & 1 else 0

    def describes_every_topic(self) -> bool:
        """Whether no topic has to be hidden from the client, now or later."""
        acls = self._current.acls
        if acls is None:
            return True
        return acls.may_everywhere(self._known(acls).subject, Operation.DESCRIBE, ResourceType.TOPIC)

    def writes_idempotently(self) -> bool:
        """What InitProducerId without a transactional id takes (KIP-679)."""
        acls = self._current.acls
        return acls is None or self._known(acls).may_write_idempotently(acls)

    def refuses(self, operation: int, topic: bytes) -> bool:
        """Whether an operation on a topic is not allowed. For hot requests: what is allowed is found by its bytes."""
        acls = self._current.acls
        if acls is None:
            return False
        principal = self._whose.principal
        if acls is not self._granted_by or principal != self._granted_to:
            self._granted_by, self._granted_to = acls, principal
            self._granted.clear()
        key = operation, topic
        if key in self._granted:
            return False
        if not self.topic(operation, topic.decode(errors="replace")):
            return True
        if len(topic) <= Verdicts.LONGEST:
            if len(self._granted) >= Verdicts.LIMIT:
                self._granted.clear()
            self._granted.add(key)
        return False

    def refused(self, operation: int, parts: Iterable[Part]) -> frozenset[bytes]:
        """The topics of some partitions that an operation is not allowed on."""
        refuses = self.refuses
        found = [part.topic for part in parts if refuses(operation, part.topic)]
        return frozenset(found) if found else _NONE


class _Nobody:
    """A principal that no rule names, where there are no rules."""

    principal = ""
    acls: Acls | None = None
    take_over = Operation.ALTER


class WithoutRules(Rights):
    """The rights of every client where no ACLs are enforced, as far as `enforcement` asks: upstream all is done with
    the node's own rights, and what changes the cluster for everybody takes an operator.
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(_Nobody(), "", _Nobody())

    def allowed(self, kind: int, name: str) -> int:
        """All operations but those that change the cluster, and Kafka's own topics."""
        if kind == ResourceType.CLUSTER:
            return _LEAVES_CLUSTER
        return _READING if kind == ResourceType.TOPIC and name in KAFKAS_OWN else -1
