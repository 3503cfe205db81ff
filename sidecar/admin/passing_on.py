"""Passes a request on to the node that serves the topic, and repeats it while the topic moves.

This node has checked the caller's rights (`access`). The other node trusts that because of a signature with a key of
their common token, over TLS if this node's admin port has it. Neither the caller's token nor any other secret is sent.

The nodes' token itself never travels between them: node addresses come from Redis, so anybody who can write to Redis
could get it. A node answers a request that its rules refuse with a *nonce* of its own (as HTTP Digest does, RFC 7616
§3.3). The other node signs this nonce together with the whole request and its caller, by HMAC-SHA-256. A nonce is valid
for one request, within 30 seconds by the clock of the node that issued it: clocks of nodes may differ. So a signature
cannot be forged, replayed, changed, or used at another node.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import hmac
import json
import secrets
import ssl
import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from aiohttp import (
    ClientConnectorCertificateError,
    ClientConnectorError,
    ClientError,
    ClientSession,
    ClientTimeout,
    web,
)
from yarl import URL

from sidecar.admin.access import OPERATOR, READER, Rules
from sidecar.admin.judged import Behalf, judged_now
from sidecar.admin.replies import NOTHING_DONE
from sidecar.node.port import ElsewhereError, NothingDoneError, UnavailableError
from sidecar.security.words import in_words

SCHEME: Final = "Sidecar-Node"
NONCE_S: Final = 30.0
_VERSION: Final = "sidecar admin 1"
_LONGEST: Final = 8_192
"""The most characters in the header with a signature."""


@dataclass(frozen=True, slots=True)
class Passed:
    """A request as one node passes it on. `receiver`: the address of the other one (`SIDECAR_ADMIN_ADVERTISE`);
    `target`: unchanged path and query of the request; `match`: If-Match, "" if absent.
    """

    receiver: str
    method: str
    target: str
    match: str
    body: bytes


class Nonces:
    """The nonces of a node. It stores nothing about a nonce until it is used with a valid
    signature. `clock`: seconds.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._secret = secrets.token_bytes(32)
        self._clock = clock
        self._used: OrderedDict[str, float] = OrderedDict()

    def new(self) -> str:
        """A new nonce."""
        head = f"{int(self._clock() * 1000):x}.{secrets.token_hex(16)}"
        return f"{head}.{self._mark(head)}"

    def take(self, nonce: str) -> bool:
        """Whether the nonce was issued here, is not expired, and was not used before."""
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
    """The value of WWW-Authenticate that requests a signature."""
    return f'{SCHEME} nonce="{nonce}"'


def nonce_of(challenges: list[str]) -> str | None:
    """The nonce in the values of WWW-Authenticate."""
    for each in challenges:
        scheme, _, rest = each.partition(" ")
        if scheme == SCHEME and rest.startswith('nonce="') and rest.endswith('"'):
            return rest.removeprefix('nonce="').removesuffix('"')
    return None


def signed(tokens: tuple[str | None, str | None], nonce: str, passed: Passed, behalf: Behalf) -> str | None:
    """The value of Authorization; None without a token. `tokens`: the operator's, the reader's; the first one that is
    set signs, and only the operator's token gives the right to operate.
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
    """Which token signed a request (`access.OPERATOR` or `READER`), and for whom it is passed on. None if there is no
    valid signature, if it is for another request or node, or if its nonce was used before.
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


PASSED_ON: Final = "X-Sidecar-Passed-On"
_PASS_ON_S: Final = 15.0
"""Seconds for another node to perform a request that was passed on."""
READ_S: Final = 5.0
"""Seconds for another node to answer a read: the page waits little longer, and has to name the silent node."""
MOVES_S: Final = 8.0
"""Seconds that a change waits while the topic moves between nodes, or until the lease of a dead node ends."""
READ_MOVES_S: Final = 1.0
"""The same for a read."""
BEHIND: Final = "X-Sidecar-Behind"
"""The header of an answer that may lack what other nodes acknowledged, because it could not be read."""
_FIRST_PAUSE_S: Final = 0.05
_LONGEST_PAUSE_S: Final = 0.5
_READS: Final = frozenset({"GET", "HEAD"})
_BACK: Final = ("ETag", "Cache-Control", NOTHING_DONE, BEHIND)
_UNTAKEN: Final = frozenset({401, 403})


class SilentError(UnavailableError):
    """The node that serves a topic does not answer this one."""


class Passing:
    """Passes requests on to other nodes. `rules` returns the present rules; `tls`: None if admin ports have no TLS,
    else it returns the present context.
    """

    def __init__(self, rules: Callable[[], Rules], tls: Callable[[], ssl.SSLContext] | None) -> None:
        self._rules = rules
        self._tls = tls

    async def where_it_is_served(
        self, request: web.Request, answer: Callable[[], Awaitable[web.Response]], limit: float | None = None
    ) -> web.Response:
        """The answer of this node, or of the one that serves the topic, which has `limit` seconds for it.

        While the topic moves, each node may name another node, or none: both are tried again until one performs the
        request. A node that received the request from another node does not pass it on: the other node tries again.
        Raises NothingDoneError if it takes too long.
        """
        reads, now = request.method in _READS, asyncio.get_running_loop().time
        until, pause = now() + (READ_MOVES_S if reads else MOVES_S), _FIRST_PAUSE_S
        while True:
            try:
                return await answer()
            except NothingDoneError as error:
                if PASSED_ON in request.headers:
                    raise
                moves = error
            if isinstance(moves, ElsewhereError):
                try:
                    found = await self._pass_on(request, moves, limit or (READ_S if reads else _PASS_ON_S))
                except NothingDoneError as error:
                    moves = error
                else:
                    if NOTHING_DONE not in found.headers:
                        return found
            if now() + pause > until:
                raise moves
            await asyncio.sleep(pause)
            pause = min(_LONGEST_PAUSE_S, pause * 2)

    async def _pass_on(self, request: web.Request, elsewhere: ElsewhereError, limit: float) -> web.Response:
        """Send the request to the node that serves the topic, and return its answer. The path is sent unchanged,
        because an encoded name in it may hold any character. `limit`: seconds.

        Raises `SilentError` if a read gets no answer, NothingDoneError if a change did not reach the node, and
        UnavailableError if a change may have been made.
        """
        if elsewhere.admin is None:
            raise SilentError(str(elsewhere))
        reads, is_sent = request.method in _READS, False
        passed = Passed(
            elsewhere.admin,
            request.method,
            request.rel_url.raw_path_qs,
            ", ".join(request.headers.getall("If-Match", ())) if not reads else "",
            await request.read(),
        )
        judged_now().note(passed_to=elsewhere.admin)
        try:
            async with asyncio.timeout(limit), ClientSession(timeout=ClientTimeout()) as session:
                headers = await self._headers(session, request, passed)
                is_sent = True
                async with session.request(
                    passed.method,
                    self._url(passed.receiver, passed.target),
                    headers=headers,
                    data=passed.body or None,
                    ssl=self._context(),
                    allow_redirects=False,
                ) as answer:
                    body = await answer.read()
                    if answer.status in _UNTAKEN:
                        refused = f"{elsewhere}. {_UNLIKE.format(answer.status)}"
                        raise SilentError(refused) if reads else UnavailableError(refused)
                    kind = "application/json" if body else None
                    back = {name: answer.headers[name] for name in _BACK if name in answer.headers}
                    return web.Response(body=body, status=answer.status, content_type=kind, headers=back)
        except (ClientError, TimeoutError) as error:
            silent = f"{elsewhere}, which does not answer: {_why(error, limit)}"
            if reads:
                raise SilentError(silent) from None
            if not is_sent or isinstance(error, ClientConnectorError):
                raise NothingDoneError(silent) from None
            raise UnavailableError.unsettled(
                SilentError(silent), f"sidecar topic show {request.match_info['topic']}"
            ) from None

    async def _headers(self, session: ClientSession, request: web.Request, passed: Passed) -> dict[str, str]:
        """The headers for the other node, signed if that node requires a token, as this one does. An open read is
        signed too if its caller showed the operator's token: its answer may contain producer ids.
        """
        rules = self._rules()
        headers = {PASSED_ON: "1"} | ({"If-Match": passed.match} if passed.match else {})
        is_open = (rules.read if request.method in _READS else rules.operate) is None
        if is_open and judged_now().behalf.who != OPERATOR:
            return headers
        where = self._url(passed.receiver, "/livez")
        ask = session.get(where, headers={PASSED_ON: "1"}, ssl=self._context(), allow_redirects=False)
        async with ask as answer:
            nonce = nonce_of(answer.headers.getall("WWW-Authenticate", []))
        if nonce is None:  # it requires no token, or its version has none
            return headers
        shown = signed((rules.operate, rules.read), nonce, passed, judged_now().behalf)
        return headers if shown is None else headers | {"Authorization": shown}

    def _url(self, address: str, target: str) -> URL:
        return URL(f"{'http' if self._tls is None else 'https'}://{address}{target}", encoded=True)

    def _context(self) -> ssl.SSLContext | bool:
        return True if self._tls is None else self._tls()


_UNLIKE: Final = (
    "It refuses requests of this node (HTTP {0}): all nodes of a cluster need the same SIDECAR_ADMIN_TOKEN and"
    " SIDECAR_ADMIN_READ_TOKEN, and certificates under one authority. Without a token each takes writes from its own"
    " machine only"
)


def _why(error: Exception, limit: float) -> str:
    if isinstance(error, ClientConnectorCertificateError):
        return in_words(error.certificate_error)
    return str(error) or f"{limit:g} s are over"
