"""Who may read a shadow: lists of principals in Kafka's form (KIP-11; permissions of a shadow: PIP-180). Pure."""

from collections.abc import Sequence
from typing import Final

ANYBODY: Final = "User:*"
ANONYMOUS: Final = "User:ANONYMOUS"
"""Kafka's principal of a client that did not authenticate: every client of a node without SASL and client
certificates."""
EVERYBODY: Final = (ANYBODY,)
ENTRIES: Final = 1_000
"""In one list."""
PRINCIPAL_BYTES: Final = 255
"""Of one principal, in UTF-8: a full list fits into one record of the ownership topic."""

_TYPE: Final = "User:"


def checked(allow: Sequence[str]) -> tuple[str, ...]:
    """The list, each principal once. An empty one means nobody. Raises ValueError."""
    if len(allow) > ENTRIES:
        raise ValueError(
            f"allow has {len(allow)} entries, {ENTRIES} are the most: allow a principal that stands for more"
        )
    for principal in allow:
        if not principal.startswith(_TYPE) or principal == _TYPE:
            raise ValueError(f"{principal[:100]!r} is no principal: User:NAME, or {ANYBODY}")
        if not principal.isprintable():
            raise ValueError(f"{principal[:100]!r} is no principal: a name holds printable characters")
        if len(principal.encode()) > PRINCIPAL_BYTES:
            raise ValueError(f"{principal[:40]!r}… is too long: {PRINCIPAL_BYTES} bytes of UTF-8 are the most")
    return tuple(dict.fromkeys(allow))


def nobody_reads(allow: Sequence[str], *, authenticated: bool) -> str | None:
    """Why none of the clients that can connect may read, None where some may. `authenticated`: whether a listener asks
    clients who they are.
    """
    if not allow:
        return f"nobody can read it: its list is empty: allow {ANYBODY}, or some"
    if authenticated or ANYBODY in allow or ANONYMOUS in allow:
        return None
    return f"nobody can read it: no listener of this node asks clients who they are: allow {ANONYMOUS} or {ANYBODY}"
