"""The rights of one client by Kafka's current ACLs. Pure.

The principal is read at each check, because a login may follow the connection. Verdicts are cached per resource until
the ACLs change (`sidecar.security.acls.Verdicts`).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol, TypeAlias

from sidecar.cluster.resolver import INTERNAL_PREFIX, NameResolver
from sidecar.security.acls import CLUSTER_NAME, Acls, Operation, ResourceType, Subject, Verdicts

KAFKAS_OWN: Final = frozenset({"__consumer_offsets", "__transaction_state", "__share_group_state"})
"""Topics that only coordinators write to. A broker refuses most other writes too, but not those of a client with the
client.id `__admin_client`.
"""
_SIDECARS_OWN: Final = INTERNAL_PREFIX.decode()
_READING: Final = 1 << Operation.READ | 1 << Operation.DESCRIBE | 1 << Operation.DESCRIBE_CONFIGS
"""The operations that an ACL can grant on Kafka's or the sidecar's internal topics."""
_NONE: Final[frozenset[bytes]] = frozenset()
Denied: TypeAlias = tuple[int, int, str]
"""An action that was not allowed: operation, kind of the resource and its name."""


class Whose(Protocol):
    """The client whose rights are checked."""

    @property
    def principal(self) -> str: ...


class Limited(Whose, Protocol):
    """A client with its rights; None if ACLs are not enforced."""

    @property
    def rights(self) -> Rights | None: ...


class Part(Protocol):
    """One partition in a request."""

    @property
    def topic(self) -> bytes: ...


class Current(Protocol):
    """The current ACLs; None while brokers have no authorizer: nothing is enforced then. `take_over`: the operation
    that a client needs to depose others.
    """

    acls: Acls | None
    take_over: Operation


_LEAVES_CLUSTER: Final = ~(1 << Operation.ALTER | 1 << Operation.ALTER_CONFIGS | 1 << Operation.DELETE)
"""The operations on the cluster, without those that change it for all clients."""


def may_see(client: Limited, resolver: NameResolver, topic: str) -> bool:
    """Whether a client may know of a topic. One that it may not DESCRIBE looks as if it did not exist, and so does a
    shadow whose allow list lacks its principal.
    """
    rights = client.rights
    may = rights is None or rights.topic(Operation.DESCRIBE, topic)
    return may and not resolver.hides(topic.encode(), client.principal)


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
        """The first denied action since this was set to None. An action on the cluster is replaced by a later one on
        another resource, because it is often checked as an alternative to one on a topic.
        """

    @property
    def enforced(self) -> bool:
        """False if everything is allowed because brokers have no authorizer."""
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
        """Whether the client may own a governed topic. `deposes`: also depose its owner, or name its generation."""
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
        """The cluster's operations for DescribeCluster and Metadata: none if the client may not DESCRIBE it."""
        bits = self.allowed(ResourceType.CLUSTER, CLUSTER_NAME)
        return bits & supported if bits >> Operation.DESCRIBE & 1 else 0

    def describes_every_topic(self) -> bool:
        """Whether the client may DESCRIBE every topic, including future ones."""
        acls = self._current.acls
        if acls is None:
            return True
        return acls.may_everywhere(self._known(acls).subject, Operation.DESCRIBE, ResourceType.TOPIC)

    def writes_idempotently(self) -> bool:
        """Whether the client may send InitProducerId without a transactional id (KIP-679)."""
        acls = self._current.acls
        return acls is None or self._known(acls).may_write_idempotently(acls)

    def refuses(self, operation: int, topic: bytes) -> bool:
        """Whether an operation on a topic is denied. For hot requests: caches allowed topics by their bytes."""
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
        """The topics, among those of `parts`, on which an operation is not allowed."""
        refuses = self.refuses
        found = [part.topic for part in parts if refuses(operation, part.topic)]
        return frozenset(found) if found else _NONE


class _Nobody:
    """An empty principal, without ACLs."""

    principal = ""
    acls: Acls | None = None
    take_over = Operation.ALTER


class WithoutRules(Rights):
    """The rights that `enforcement` checks for every client if no ACLs are enforced. Upstream everything is done with
    the node's own rights, so changes of the cluster for all clients need a super user.
    """

    __slots__ = ()

    def __init__(self) -> None:
        super().__init__(_Nobody(), "", _Nobody())

    def allowed(self, kind: int, name: str) -> int:
        """All operations, except those that change the cluster or Kafka's own topics."""
        if kind == ResourceType.CLUSTER:
            return _LEAVES_CLUSTER
        return _READING if kind == ResourceType.TOPIC and name in KAFKAS_OWN else -1
