"""Calls about logins and rules: SaslHandshake, SaslAuthenticate, DescribeAcls, DescribeDelegationToken."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from sidecar.protocol.messages import security
from sidecar.protocol.views import View

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sidecar.protocol.schema import Values

_ANY: Final = 1
"""What a filter of DescribeAcls calls any resource type, pattern type, operation or permission."""


class OfferedMechanisms(NamedTuple):
    """Answer of SaslHandshake: 33 where the broker does not have the mechanism, and those that it has."""

    error: int
    mechanisms: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class SaslHandshake(View[OfferedMechanisms], of=security.SASL_HANDSHAKE, version=1):
    """Name the mechanism of the SaslAuthenticate requests that follow (KIP-152)."""

    mechanism: str

    def asked(self) -> Values:
        return {"mechanism": self.mechanism}

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


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
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


@dataclass(frozen=True, slots=True)
class TokenOwners:
    """Answer of DescribeDelegationToken: principals by token id. The tokens' secrets, which brokers send too, are left
    out.
    """

    error: int
    owners: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class DescribeTokenOwners(View[TokenOwners], of=security.DESCRIBE_DELEGATION_TOKEN, version=1):
    """Whose each delegation token is (KIP-48): all that its sender may DESCRIBE. 61 where brokers have none, 64 over a
    connection without a login.
    """

    def asked(self) -> Values:
        return {"owners": None}

    def answered(self, values: Values) -> TokenOwners:
        owners = {each["token_id"]: f"{each['principal_type']}:{each['principal_name']}" for each in values["tokens"]}
        return TokenOwners(values["error_code"], owners)
