"""Kafka's ACLs, decided as `StandardAuthorizer` decides them, from what DescribeAcls answers. Pure.

The rules (KIP-11, KIP-290; `StandardAuthorizerData.findAclRule` of Kafka 4.1):

- A super user may do everything.
- An ACL applies to a resource of its type if its name is the resource's (LITERAL), the beginning of it (PREFIXED), or
  `*` (LITERAL); if its principal is the caller's or `User:*`; and if its host is the caller's or `*`.
- One DENY that applies outweighs every ALLOW.
- ALLOW of READ, WRITE, DELETE or ALTER allows DESCRIBE too; ALLOW of ALTER_CONFIGS allows DESCRIBE_CONFIGS too. A DENY
  denies its own operation alone. ALL is every operation.
- If no ACL applies the action is denied. If no ACL of any principal names the resource,
  `allow.everyone.if.no.acl.found` decides.

A decision takes one look-up for each length of PREFIXED names, and two more: microseconds with 10,000 ACLs.
Rights are bits: bit n is the operation with Kafka's number n.
"""

import ipaddress
from collections.abc import Collection, Generator, Iterable, Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from sidecar.protocol.calls.security import AclBinding
from sidecar.protocol.limits import BOUNDS
from sidecar.protocol.primitives import at_once

WILDCARD: Final = "*"
ANYBODY: Final = "User:*"
CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of type CLUSTER."""


class Operation(IntEnum):
    """`org.apache.kafka.common.acl.AclOperation`."""

    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15


class ResourceType(IntEnum):
    """`org.apache.kafka.common.resource.ResourceType`."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7


class PatternType(IntEnum):
    """`org.apache.kafka.common.resource.PatternType`, those that an ACL can have."""

    LITERAL = 3
    PREFIXED = 4


class Permission(IntEnum):
    """`org.apache.kafka.common.acl.AclPermissionType`."""

    DENY = 2
    ALLOW = 3


class Subject(NamedTuple):
    """The client: its principal as `User:alice`, and the address that it comes from, as `java_address` writes it."""

    principal: str
    host: str


_EVERYTHING: Final = -1
"""All bits."""
_DESCRIBING: Final = (Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER)
_ALLOWED_BY: Final[Mapping[int, int]] = {
    Operation.ALL: _EVERYTHING,
    Operation.ALTER_CONFIGS: 1 << Operation.ALTER_CONFIGS | 1 << Operation.DESCRIBE_CONFIGS,
    **{operation: 1 << operation | 1 << Operation.DESCRIBE for operation in _DESCRIBING},
}
"""The operations that an ALLOW allows, if they are more than its own."""


class Rules(NamedTuple):
    """The settings of an authorizer: `super.users`, and `allow.everyone.if.no.acl.found`."""

    super_users: frozenset[str] = frozenset()
    allow_if_no_acl: bool = False


NO_RULES: Final = Rules()
"""The rules of an authorizer without settings."""


class _Masks:
    """The operations that one principal and host are allowed and denied on the resources of one pattern."""

    __slots__ = ("allowed", "denied")

    def __init__(self) -> None:
        self.allowed = 0
        self.denied = 0


_Pattern = dict[Subject, _Masks]
"""Masks by principal and host as ACLs have them, wildcards included."""


class _Patterns:
    """The ACLs of one resource type. `lengths`: those of the PREFIXED names, each once."""

    __slots__ = ("lengths", "literal", "prefixed")

    def __init__(self) -> None:
        self.literal: dict[str, _Pattern] = {}
        self.prefixed: dict[str, _Pattern] = {}
        self.lengths: tuple[int, ...] = ()

    def of(self, name: str) -> list[_Pattern]:
        """Return the patterns that match a resource's name."""
        found = [self.literal.get(name), self.literal.get(WILDCARD) if name != WILDCARD else None]
        size = len(name)
        found += [self.prefixed.get(name[:length]) for length in self.lengths if length <= size]
        return [pattern for pattern in found if pattern is not None]


class _Index:
    """ACLs by resource type and name, and by subject."""

    __slots__ = ("by_subject", "by_type")

    def __init__(self) -> None:
        self.by_type: Final[dict[int, _Patterns]] = {}
        self.by_subject: Final[dict[tuple[int, Subject], list[AclBinding]]] = {}

    def fill_steps(self, bindings: Iterable[AclBinding]) -> Generator[None, None, None]:
        """Add all ACLs, in slices."""
        for count, binding in enumerate(bindings, 1):
            self._add(binding)
            if count % BOUNDS.turn == 0:
                yield
        for patterns in self.by_type.values():
            patterns.lengths = tuple(sorted({len(name) for name in patterns.prefixed}))

    def _add(self, binding: AclBinding) -> None:
        patterns = self.by_type.setdefault(binding.resource_type, _Patterns())
        if binding.pattern_type == PatternType.LITERAL:
            pattern = patterns.literal.setdefault(binding.resource_name, {})
        elif binding.pattern_type == PatternType.PREFIXED:
            pattern = patterns.prefixed.setdefault(binding.resource_name, {})
        else:  # of a newer Kafka; no resource here has it
            return
        subject = Subject(binding.principal, binding.host)
        masks = pattern.setdefault(subject, _Masks())
        if binding.permission == Permission.ALLOW:
            masks.allowed |= _ALLOWED_BY.get(binding.operation, 1 << binding.operation)
        else:  # DENY: Kafka treats everything but ALLOW as DENY
            masks.denied |= _EVERYTHING if binding.operation == Operation.ALL else 1 << binding.operation
        self.by_subject.setdefault((binding.resource_type, subject), []).append(binding)


class Acls:
    """All ACLs of a cluster at one moment; never changes. `version` changes whenever the ACLs change."""

    __slots__ = ("_by_subject", "_by_type", "bindings", "rules", "version")

    def __init__(
        self,
        bindings: Iterable[AclBinding] = (),
        rules: Rules = NO_RULES,
        version: int = 0,
        _index: _Index | None = None,
    ) -> None:
        self.bindings: Final = frozenset(bindings)
        self.rules: Final = rules
        self.version: Final = version
        if _index is None:
            _index = _Index()
            at_once(_index.fill_steps(self.bindings))
        self._by_type: Final = _index.by_type
        self._by_subject: Final = _index.by_subject

    def replaced(self, bindings: Iterable[AclBinding]) -> "Acls":
        """The snapshot after an answer of DescribeAcls: this one if nothing has changed."""
        return at_once(self.replaced_steps(bindings))

    def replaced_steps(self, bindings: Iterable[AclBinding]) -> "Generator[None, None, Acls]":
        """As `replaced`, in slices: 10,000 ACLs are tens of milliseconds."""
        found = frozenset(bindings)
        if found == self.bindings:
            return self
        index = _Index()
        yield from index.fill_steps(found)
        return Acls(found, self.rules, self.version + 1, index)

    def is_super_user(self, principal: str) -> bool:
        """Whether a principal may do everything."""
        return principal in self.rules.super_users

    def allowed(self, subject: Subject, kind: int, name: str) -> int:
        """The operations that are allowed on one resource, as bits."""
        if self.is_super_user(subject.principal):
            return _EVERYTHING
        by_type = self._by_type.get(kind)
        patterns = by_type.of(name) if by_type is not None else ()
        if not patterns:
            return _EVERYTHING if self.rules.allow_if_no_acl else 0
        allowed = denied = 0
        for each in _matching(subject):
            for pattern in patterns:
                masks = pattern.get(each)
                if masks is not None:
                    allowed |= masks.allowed
                    denied |= masks.denied
        return allowed & ~denied

    def may(self, subject: Subject, operation: int, kind: int, name: str) -> bool:
        """`Authorizer.authorize` for one action."""
        return bool(self.allowed(subject, kind, name) >> operation & 1)

    def may_somewhere(self, subject: Subject, operation: int, kind: int) -> bool:
        """`Authorizer.authorizeByResourceType` (KIP-679): whether the subject may do the operation on some resource of
        the type. As there, implied operations do not count, and a name without ACLs counts.
        """
        if self.may(subject, operation, kind, "hardcode"):
            return True
        denied_literal: set[str] = set()
        denied_prefixed: set[str] = set()
        allowed: list[AclBinding] = []
        for each in _matching(subject):
            for binding in self._by_subject.get((kind, each), ()):
                if binding.operation not in (operation, Operation.ALL):
                    continue
                literal = binding.pattern_type == PatternType.LITERAL
                if binding.permission == Permission.ALLOW:
                    allowed.append(binding)
                elif literal and binding.resource_name == WILDCARD:
                    return False
                else:
                    (denied_literal if literal else denied_prefixed).add(binding.resource_name)
        return any(_is_open(binding, denied_literal, denied_prefixed) for binding in allowed)

    def may_everywhere(self, subject: Subject, operation: int, kind: int) -> bool:
        """Whether the subject may do an operation on all resources of a type, future ones included: it is allowed on
        `*`, and denied on no name.
        """
        if self.is_super_user(subject.principal):
            return True
        by_type = self._by_type.get(kind)
        anything = by_type.literal.get(WILDCARD, {}) if by_type is not None else {}
        allowed = any(masks.allowed >> operation & 1 for each in _matching(subject) if (masks := anything.get(each)))
        return allowed and not any(
            binding.permission != Permission.ALLOW and binding.operation in (operation, Operation.ALL)
            for each in _matching(subject)
            for binding in self._by_subject.get((kind, each), ())
        )

    def may_write_idempotently(self, subject: Subject) -> bool:
        """Whether the subject has what InitProducerId without a transactional id requires: IDEMPOTENT_WRITE on the
        cluster, or WRITE on any topic (KIP-679).
        """
        return self.may(subject, Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, CLUSTER_NAME) or self.may_somewhere(
            subject, Operation.WRITE, ResourceType.TOPIC
        )


def _matching(subject: Subject) -> tuple[Subject, ...]:
    principal, host = subject
    return subject, Subject(principal, WILDCARD), Subject(ANYBODY, host), Subject(ANYBODY, WILDCARD)


def _is_open(allow: AclBinding, denied_literal: Collection[str], denied_prefixed: Collection[str]) -> bool:
    """Whether an ALLOW allows some name that no DENY covers."""
    name = allow.resource_name
    if allow.pattern_type == PatternType.LITERAL:
        if name == WILDCARD:
            return True
        if name in denied_literal:
            return False
    return not any(name[:size] in denied_prefixed for size in range(1, len(name) + 1))


class Verdicts:
    """The rights of one connection's subject, cached until the ACLs change or `LIMIT` resources are cached."""

    LIMIT: Final = 1_000
    LONGEST: Final = 255
    """The longest name, in characters, that is cached: a client may send ever new names of 32 KiB."""
    __slots__ = ("_acls", "_allowed", "_idempotent", "subject")

    def __init__(self, subject: Subject, acls: Acls) -> None:
        self.subject: Final = subject
        self._acls = acls
        self._allowed: Final[dict[tuple[int, str], int]] = {}
        self._idempotent: bool | None = None

    def allowed(self, acls: Acls, kind: int, name: str) -> int:
        """As `Acls.allowed`; `acls` is the current snapshot."""
        self._follow(acls)
        found = self._allowed.get((kind, name))
        if found is None:
            found = acls.allowed(self.subject, kind, name)
            if len(name) <= self.LONGEST:
                if len(self._allowed) >= self.LIMIT:
                    self._allowed.clear()
                self._allowed[kind, name] = found
        return found

    def may(self, acls: Acls, operation: int, kind: int, name: str) -> bool:
        """As `Acls.may`; `acls` is the current snapshot."""
        return bool(self.allowed(acls, kind, name) >> operation & 1)

    def may_write_idempotently(self, acls: Acls) -> bool:
        """As `Acls.may_write_idempotently`; `acls` is the current snapshot."""
        self._follow(acls)
        if self._idempotent is None:
            self._idempotent = acls.may_write_idempotently(self.subject)
        return self._idempotent

    def _follow(self, acls: Acls) -> None:
        if acls is not self._acls:
            self._acls = acls
            self._allowed.clear()
            self._idempotent = None


def parse_super_users(text: str) -> frozenset[str]:
    """Kafka's `super.users`: principals with `;` between them. Raises ValueError."""
    found = [principal for part in text.split(";") if (principal := part.strip())]
    for principal in found:
        kind, separator, _ = principal.partition(":")
        if not kind or not separator:
            raise ValueError(f"{principal[:100]!r} is no principal: TYPE:NAME such as User:admin is meant")
    return frozenset(found)


def java_address(text: str) -> str:
    """An IP address as Java's `InetAddress.getHostAddress` writes it, which is what hosts of ACLs are compared with.

    IPv6 has all of its eight groups, without leading zeros; an IPv4 address inside one is written as IPv4. Raises
    ValueError.
    """
    address = ipaddress.ip_address(text)
    if address.version == 4:
        return str(address)
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    groups = [f"{int.from_bytes(address.packed[at : at + 2], 'big'):x}" for at in range(0, 16, 2)]
    return ":".join(groups) + (f"%{address.scope_id}" if address.scope_id else "")
