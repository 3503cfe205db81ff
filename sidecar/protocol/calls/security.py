"""Calls about logins and rules: SaslHandshake, SaslAuthenticate, DescribeAcls, DescribeClientQuotas, and about
delegation tokens.
"""

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from sidecar.protocol.messages import security
from sidecar.protocol.schema import Values
from sidecar.protocol.views import View

_ANY: Final = 1
"""The number for any resource type, pattern type, operation or permission in a filter of DescribeAcls."""


class OfferedMechanisms(NamedTuple):
    """Answer of SaslHandshake: error 33 if the broker lacks the mechanism, and the mechanisms that it has."""

    error: int
    mechanisms: tuple[str, ...]


class SaslHandshake(View[OfferedMechanisms], of=security.SASL_HANDSHAKE, version=1):
    """Name the mechanism of the SaslAuthenticate requests that follow (KIP-152)."""

    mechanism: str

    def answered(self, values: Values) -> OfferedMechanisms:
        return OfferedMechanisms(values["error_code"], tuple(values["mechanisms"]))


@dataclass(frozen=True, slots=True)
class Authenticated:
    """Answer of SaslAuthenticate. `lifetime_ms`: how long the broker keeps the session without another login, 0 for
    ever (KIP-368). `data` may hold secrets of the exchange, so it is not shown.
    """

    error: int
    message: str | None
    data: bytes = field(repr=False)
    lifetime_ms: int


class SaslAuthenticate(View[Authenticated], of=security.SASL_AUTHENTICATE, version=2):
    """One message of the exchange that SaslHandshake began; never shown."""

    data: bytes = field(repr=False)

    def asked(self) -> Values:
        return {"auth_bytes": self.data}

    def answered(self, values: Values) -> Authenticated:
        error, message = values["error_code"], values["error_message"]
        return Authenticated(error, message, bytes(values["auth_bytes"]), values["session_lifetime_ms"])


class AclBinding(NamedTuple):
    """One rule, with Kafka's numbers (`AclOperation`, `AclPermissionType`, `ResourceType`, `PatternType`)."""

    resource_type: int
    resource_name: str
    pattern_type: int
    principal: str
    host: str
    operation: int
    permission: int


@dataclass(frozen=True, slots=True)
class DescribedAcls:
    """Answer of DescribeAcls; `error` is 54 where the broker has no authorizer."""

    error: int
    message: str | None
    bindings: tuple[AclBinding, ...]


class DescribeAcls(View[DescribedAcls], of=security.DESCRIBE_ACLS, version=2):
    """All rules of the cluster. Takes DESCRIBE on the cluster."""

    def asked(self) -> Values:
        return {
            "resource_type_filter": _ANY,
            "resource_name_filter": None,
            "pattern_type_filter": _ANY,
            "principal_filter": None,
            "host_filter": None,
            "operation": _ANY,
            "permission_type": _ANY,
        }

    def answered(self, values: Values) -> DescribedAcls:
        bindings = tuple(
            AclBinding(
                resource["resource_type"],
                resource["resource_name"],
                resource["pattern_type"],
                acl["principal"],
                acl["host"],
                acl["operation"],
                acl["permission_type"],
            )
            for resource in values["resources"]
            for acl in resource["acls"]
        )
        return DescribedAcls(values["error_code"], values["error_message"], bindings)


class QuotaEntry(NamedTuple):
    """The quotas of one entity, by key. `entity`: names by type (`user`, `client-id`, `ip`), None for the default."""

    entity: Mapping[str, str | None]
    values: Mapping[str, float]


@dataclass(frozen=True, slots=True)
class DescribedQuotas:
    """Answer of DescribeClientQuotas; `error` is 31 CLUSTER_AUTHORIZATION_FAILED without the right. `entries` can be
    read once: a cluster may have a hundred thousand, which are converted one by one.
    """

    error: int
    message: str | None
    entries: Iterable[QuotaEntry]


class DescribeClientQuotas(View[DescribedQuotas], of=security.DESCRIBE_CLIENT_QUOTAS, version=1):
    """All quotas of the cluster (KIP-546). Takes DESCRIBE_CONFIGS on the cluster."""

    def asked(self) -> Values:
        return {"components": [], "strict": False}

    def answered(self, values: Values) -> DescribedQuotas:
        entries: list[Values] = values["entries"] or []
        return DescribedQuotas(values["error_code"], values["error_message"], map(_quotas_of, entries))


def _quotas_of(entry: Values) -> QuotaEntry:
    entity = {each["entity_type"]: each["entity_name"] for each in entry["entity"]}
    return QuotaEntry(entity, {each["key"]: each["value"] for each in entry["values"]})


@dataclass(frozen=True, slots=True)
class TokenOwners:
    """Answer of DescribeDelegationToken: principals by token id. The tokens' secrets, which brokers send too, are left
    out.
    """

    error: int
    owners: Mapping[str, str]


class DescribeTokenOwners(View[TokenOwners], of=security.DESCRIBE_DELEGATION_TOKEN, version=1):
    """The owners of delegation tokens (KIP-48): of all that the sender may DESCRIBE, or those of one `owner` (type,
    name). Error 61 if brokers have no tokens, 64 over a connection without a login.
    """

    owner: tuple[str, str] | None = None

    def asked(self) -> Values:
        return {"owners": None if self.owner is None else [_principal(self.owner)]}

    def answered(self, values: Values) -> TokenOwners:
        owners = {each["token_id"]: f"{each['principal_type']}:{each['principal_name']}" for each in values["tokens"]}
        return TokenOwners(values["error_code"], owners)


def _principal(of: tuple[str, str]) -> Values:
    return {"principal_type": of[0], "principal_name": of[1]}


@dataclass(frozen=True, slots=True)
class MadeToken:
    """Answer of CreateDelegationToken. `requester`: type and name of the principal that asked."""

    error: int
    requester: tuple[str, str]
    id: str
    hmac: bytes = field(repr=False)
    life_ms: int

    @property
    def password(self) -> str:
        """The password for SCRAM."""
        return base64.b64encode(self.hmac).decode()


class CreateDelegationToken(View[MadeToken], of=security.CREATE_DELEGATION_TOKEN, version=3):
    """Create a token for the sender, or for an `owner` (type, name; KIP-373), which requires CREATE_TOKENS. `renewers`
    may renew, expire and see it, too.
    """

    owner: tuple[str, str] | None
    renewers: tuple[tuple[str, str], ...]
    max_life_ms: int

    def asked(self) -> Values:
        kind, name = (None, None) if self.owner is None else self.owner
        return {
            "owner_principal_type": kind,
            "owner_principal_name": name,
            "renewers": [_principal(each) for each in self.renewers],
            "max_lifetime_ms": self.max_life_ms,
        }

    def answered(self, values: Values) -> MadeToken:
        requester = values["token_requester_principal_type"], values["token_requester_principal_name"]
        life_ms = values["expiry_timestamp_ms"] - values["issue_timestamp_ms"]
        return MadeToken(values["error_code"], requester, values["token_id"], bytes(values["hmac"]), life_ms)


class ExpireDelegationToken(View[int], of=security.EXPIRE_DELEGATION_TOKEN, version=1):
    """End a token at once; the answer is an error code."""

    hmac: bytes = field(repr=False)

    def asked(self) -> Values:
        return {"hmac": self.hmac, "expiry_time_period_ms": -1}

    def answered(self, values: Values) -> int:
        code: int = values["error_code"]
        return code
