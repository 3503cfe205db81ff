"""Settings of what clients may do (docs/access.md). Imported while settings are being read, never by a running node
(`sidecar.settings`).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import AfterValidator
from pydantic_settings import BaseSettings

from sidecar.security.acls import parse_super_users
from sidecar.settings.checks import YES_NO, Needs, about


def _super_users(value: str) -> str:
    parse_super_users(value)
    return value


class Rules(BaseSettings):
    """Whether and how Kafka's ACLs are enforced on clients."""

    authorizer: Annotated[
        Literal["none", "kafka"] | None,
        about(
            "kafka: clients may do what Kafka's ACLs allow them, as at a broker. none: all that this node may do."
            " By default kafka where clients authenticate, else none.",
            "kafka",
        ),
        Needs("none or kafka"),
    ] = None
    super_users: Annotated[
        str,
        AfterValidator(_super_users),
        about(
            "Principals that may do everything: what `super.users` of the brokers says, with ; between them. Where no"
            " ACLs are enforced, they alone may change brokers, ACLs, SCRAM credentials and Kafka's own topics."
        ),
        Needs("TYPE:NAME;TYPE:NAME, such as User:admin;User:CN=ops", r"^(\s*;|[^:;]+:[^;]*(;|$))*\s*$"),
    ] = ""
    allow_if_no_acl_found: Annotated[
        bool,
        about(
            "Whether what no ACL names is open to everybody: what `allow.everyone.if.no.acl.found` of the brokers says."
        ),
        YES_NO,
    ] = False
    govern_by_client_id: Annotated[
        bool,
        about(
            "Whether a client that asks for a mode puts a topic without a policy under one. false: only operators do;"
            " such a client is refused with 44 POLICY_VIOLATION."
        ),
        YES_NO,
    ] = True
    take_over_operation: Annotated[
        Literal["WRITE", "ALTER"],
        about("What it takes on a governed topic to depose others or to name a generation."),
        Needs("WRITE or ALTER"),
    ] = "ALTER"
