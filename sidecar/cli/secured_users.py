"""Users of a secured Kafka and what they may do, made by requests to a broker that lets a certificate in.

Passwords go as SCRAM has them, salted and hashed, over TLS; Kafka's own tool would take them as arguments. Repeating it
is harmless.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Mapping, Sequence
from dataclasses import field
from hashlib import pbkdf2_hmac
from typing import Final

from sidecar.cluster.upstream import KafkaUpstream
from sidecar.protocol.calls.security import AclBinding
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.messages import security
from sidecar.protocol.schema import Values
from sidecar.protocol.views import View
from sidecar.security.acls import CLUSTER_NAME, WILDCARD, Operation, PatternType, Permission, ResourceType
from sidecar.security.broker_access import BrokerAccess
from sidecar.security.scram import MIN_ITERATIONS, SALT_BYTES, Hash

_SCRAM_SHA_512: Final = 2
"""Kafka's number of it (`ScramMechanism`)."""
_TIMEOUT_S: Final = 10.0
_OF_APPLICATIONS: Final = {
    ResourceType.TOPIC: (Operation.READ, Operation.WRITE, Operation.CREATE),
    ResourceType.GROUP: (Operation.READ,),
    ResourceType.TRANSACTIONAL_ID: (Operation.WRITE,),
}


class _SetPasswords(View[None], of=security.ALTER_USER_SCRAM_CREDENTIALS, version=0):
    """A password for each user, by SCRAM-SHA-512. Raises KafkaError."""

    passwords: Mapping[str, str] = field(repr=False)

    def asked(self) -> Values:
        return {"deletions": [], "upsertions": [_salted(*each) for each in self.passwords.items()]}

    def answered(self, values: Values) -> None:
        for each in values["results"]:
            _check(each, f"the password of {each['user']}")


class _CreateAcls(View[None], of=security.CREATE_ACLS, version=2):
    """Rules, those that there are too. Raises KafkaError."""

    bindings: Sequence[AclBinding]

    def asked(self) -> Values:
        return {
            "creations": [
                {
                    "resource_type": each.resource_type,
                    "resource_name": each.resource_name,
                    "resource_pattern_type": each.pattern_type,
                    "principal": each.principal,
                    "host": each.host,
                    "operation": each.operation,
                    "permission_type": each.permission,
                }
                for each in self.bindings
            ]
        }

    def answered(self, values: Values) -> None:
        for each in values["results"]:
            _check(each, "an ACL")


def may_everything(user: str) -> list[AclBinding]:
    """The ACLs of a user who runs the cluster."""
    resources = {
        ResourceType.TOPIC: WILDCARD,
        ResourceType.GROUP: WILDCARD,
        ResourceType.TRANSACTIONAL_ID: WILDCARD,
        ResourceType.CLUSTER: CLUSTER_NAME,
    }
    return [_allowed(user, kind, name, PatternType.LITERAL, Operation.ALL) for kind, name in resources.items()]


def may_use(user: str, prefix: str) -> list[AclBinding]:
    """The ACLs of an application whose topics, groups and transactional ids begin like this."""
    return [
        _allowed(user, kind, prefix, PatternType.PREFIXED, operation)
        for kind, operations in _OF_APPLICATIONS.items()
        for operation in operations
    ]


async def make_users(
    broker: tuple[str, int], context: ssl.SSLContext, passwords: Mapping[str, str], acls: Sequence[AclBinding]
) -> None:
    """Have `broker` know these users and rules. `context` has the certificate of a super user.

    Raises UpstreamError, KafkaError.
    """
    access = BrokerAccess(lambda: context)
    upstream = KafkaUpstream([broker], connect_timeout=_TIMEOUT_S, request_timeout=_TIMEOUT_S, access=access)
    try:
        await upstream.call(None, _SetPasswords(passwords))
        await upstream.call(None, _CreateAcls(acls))
    finally:
        await upstream.close()


def _salted(user: str, password: str) -> Values:
    salt = os.urandom(SALT_BYTES)
    return {
        "name": user,
        "mechanism": _SCRAM_SHA_512,
        "iterations": MIN_ITERATIONS,
        "salt": salt,
        "salted_password": pbkdf2_hmac(Hash.SCRAM_SHA_512.value, password.encode(), salt, MIN_ITERATIONS),
    }


def _allowed(user: str, kind: ResourceType, name: str, pattern: PatternType, operation: Operation) -> AclBinding:
    return AclBinding(kind, name, pattern, f"User:{user}", WILDCARD, operation, Permission.ALLOW)


def _check(result: Values, what: str) -> None:
    if result["error_code"]:
        raise KafkaError(result["error_code"], f"{what}: {result['error_message']}")
