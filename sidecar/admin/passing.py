"""How a node shows another one that a request which it passes on was allowed: signed with a key of their common token.
Pure but for the clock and random numbers.

The token itself never travels between nodes: Redis says where a node is, so a writer to Redis could get it. The node
that is asked answers a request that its rules refuse with a *nonce* of its own (as HTTP Digest does, RFC 7616 §3.3);
the other one signs this nonce together with all that the request says and for whom it is passed on, by HMAC-SHA-256.
A nonce is good for one request within 30 seconds of the clock of the node that gave it: clocks of nodes may differ.
So a signature cannot be made up, sent again, changed, or used at another node.
"""

from __future__ import annotations

import base64
import binascii
import hmac
import json
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from sidecar.admin.access import OPERATOR, READER

SCHEME: Final = "Sidecar-Node"
NONCE_S: Final = 30.0
_VERSION: Final = "sidecar admin 1"
_LONGEST: Final = 8_192
"""Characters of the header that shows a signature."""


@dataclass(frozen=True, slots=True)
class Passed:
    """A request as one node passes it on. `receiver`: the address of the other one (`SIDECAR_ADMIN_ADVERTISE`);
    `target`: path and query as they stand in the request; `match`: If-Match, "" where absent.
    """

    receiver: str
    method: str
    target: str
    match: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Behalf:
    """For whom: who he is (`access.Judged`), his address, the subject of his certificate ("": none)."""

    who: str
    peer: str
    certificate: str = ""


class Nonces:
    """Those that a node gives out; nothing is kept of one until it is used with a right signature. `clock`: seconds."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._secret = secrets.token_bytes(32)
        self._clock = clock
        self._used: OrderedDict[str, float] = OrderedDict()

    def new(self) -> str:
        """One more."""
        head = f"{int(self._clock() * 1000):x}.{secrets.token_hex(16)}"
        return f"{head}.{self._mark(head)}"

    def take(self, nonce: str) -> bool:
        """Whether it is one of these, young, and never taken before."""
        now = self._clock()
        while self._used and next(iter(self._used.values())) < now - NONCE_S:
            self._used.popitem(last=False)
        head, _, mark = nonce.rpartition(".")
        if not hmac.compare_digest(mark.encode(errors="replace"), self._mark(head).encode()) or nonce in self._used:
            return False
        if now - int(head.partition(".")[0], 16) / 1000 > NONCE_S:
            return False
        self._used[nonce] = now
        return True

    def _mark(self, head: str) -> str:
        return hmac.digest(self._secret, head.encode(errors="replace"), "sha256").hex()


def challenge(nonce: str) -> str:
    """The value of WWW-Authenticate that asks for a signature."""
    return f'{SCHEME} nonce="{nonce}"'


def nonce_of(challenges: list[str]) -> str | None:
    """The nonce among the values of WWW-Authenticate."""
    for each in challenges:
        scheme, _, rest = each.partition(" ")
        if scheme == SCHEME and rest.startswith('nonce="') and rest.endswith('"'):
            return rest.removeprefix('nonce="').removesuffix('"')
    return None


def signed(tokens: tuple[str | None, str | None], nonce: str, passed: Passed, behalf: Behalf) -> str | None:
    """The value of Authorization; None without a token. `tokens`: to operate, to read; the first that there is signs,
    and only the holder of the first one's operates.
    """
    role, token = next(((role, each) for role, each in zip(_ROLES, tokens, strict=True) if each is not None), ("", ""))
    if not token:
        return None
    shown = {
        "role": role,
        "nonce": nonce,
        "who": behalf.who,
        "peer": behalf.peer,
        "certificate": behalf.certificate,
        "signature": _signature(token, role, nonce, passed, behalf),
    }
    return f"{SCHEME} {base64.b64encode(json.dumps(shown).encode()).decode()}"


def checked(
    tokens: tuple[str | None, str | None], nonces: Nonces, authorization: str, passed: Passed
) -> tuple[str, Behalf] | None:
    """Which token signed a request (`access.OPERATOR` or `READER`), and for whom it is passed on. None where this is
    no signature, not for this request at this node, or was shown before.
    """
    found = _read(authorization)
    if found is None:
        return None
    role, nonce, behalf = found["role"], found["nonce"], Behalf(found["who"], found["peer"], found["certificate"])
    token = next((each for name, each in zip(_ROLES, tokens, strict=True) if name == role), None)
    if token is None:
        return None
    right = _signature(token, role, nonce, passed, behalf)
    if not hmac.compare_digest(found["signature"].encode(errors="replace"), right.encode()) or not nonces.take(nonce):
        return None
    return role, behalf


_ROLES: Final = (OPERATOR, READER)
_FIELDS: Final = frozenset({"role", "nonce", "who", "peer", "certificate", "signature"})


def _read(authorization: str) -> dict[str, str] | None:
    scheme, _, rest = authorization.partition(" ")
    if scheme != SCHEME or len(rest) > _LONGEST:
        return None
    try:
        found: Any = json.loads(base64.b64decode(rest, validate=True))
    except (ValueError, binascii.Error, RecursionError):
        return None
    if not isinstance(found, dict) or found.keys() != _FIELDS or not all(isinstance(v, str) for v in found.values()):
        return None
    return found


def _signature(token: str, role: str, nonce: str, passed: Passed, behalf: Behalf) -> str:
    key = hmac.digest(token.encode(), f"{_VERSION} {role}".encode(), "sha256")
    text = json.dumps(
        [
            *(_VERSION, nonce, passed.receiver, passed.method, passed.target, passed.match),
            *(sha256(passed.body).hexdigest(), behalf.who, behalf.peer, behalf.certificate),
        ]
    )
    return hmac.digest(key, text.encode(), "sha256").hex()
