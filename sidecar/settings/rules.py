"""Settings of what clients may do (docs/access.md). Only reading settings imports this module, a running node does
not (`sidecar.settings`).
"""

from __future__ import annotations

from typing import Annotated, Literal

from sidecar.security.acls import parse_super_users
from sidecar.settings.checks import Flag, Needs, SettingsGroup, as_it_is, optional, setting


class Rules(SettingsGroup):
    """Whether and how Kafka's ACLs are enforced on clients."""

    authorizer: Annotated[Literal["none", "kafka"] | None, Needs("none or kafka")] = optional(
        "kafka: clients may do what Kafka's ACLs allow them, as at a broker. none: all that this node may do."
        " By default kafka where clients authenticate, else none.",
        "kafka",
    )
    super_users: Annotated[
        str,
        as_it_is(parse_super_users),
        Needs("TYPE:NAME;TYPE:NAME, such as User:admin;User:CN=ops", r"^(\s*;|[^:;]+:[^;]*(;|$))*\s*$"),
    ] = setting(
        "",
        "Principals that may do everything: what `super.users` of the brokers says, with ; between them. Where no"
        " ACLs are enforced, they alone may change brokers, ACLs, SCRAM credentials and Kafka's own topics.",
    )
    allow_if_no_acl_found: Flag = setting(
        False,
        "Whether what no ACL names is open to everybody: what `allow.everyone.if.no.acl.found` of the brokers says.",
    )
    govern_by_client_id: Flag = setting(
        True,
        "Whether a client that asks for a mode puts a topic without a policy under one. false: only operators do;"
        " such a client is refused with 44 POLICY_VIOLATION.",
    )
    take_over_operation: Annotated[Literal["WRITE", "ALTER"], Needs("WRITE or ALTER")] = setting(
        "ALTER", "What it takes on a governed topic to depose others or to name a generation."
    )
