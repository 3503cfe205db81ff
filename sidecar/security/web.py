"""The web servers that logins need, token endpoints and key sets: one small HTTP client for both."""

import ssl
from collections.abc import Callable, Mapping
from typing import Final, NamedTuple, Protocol

from aiohttp import ClientError, ClientSession, ClientTimeout, DummyCookieJar, TCPConnector

ANSWER_BYTES: Final = 1024 * 1024
"""The largest answer in bytes; a token has a few KiB, a key set some tens of KiB."""
_TIMEOUT: Final = ClientTimeout(total=10, sock_connect=5)


class WebAnswer(NamedTuple):
    """Status and body."""

    status: int
    body: bytes


class WebError(Exception):
    """There is no answer: the server is unreachable, slow or not trusted, or its answer is too large."""


class Fetch(Protocol):
    """Send a request to a web server: GET, or POST with a form. Raises WebError."""

    async def __call__(
        self, url: str, *, form: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> WebAnswer:
        """The answer, whatever its status."""
        ...

    async def close(self) -> None:
        """Close the connections."""
        ...


class WebClient:
    """A `Fetch` over HTTP that keeps its connections. Follows no redirect, keeps no cookie, needs no proxy, and opens
    nothing that is compressed: 64 KiB of that may be 64 MiB.

    `context` gives the TLS context for servers with https, each time a connection may be opened; without it the
    system's certificates are trusted.
    """

    def __init__(self, context: Callable[[], ssl.SSLContext] | None = None) -> None:
        self._context = context
        self._session: ClientSession | None = None

    async def __call__(
        self, url: str, *, form: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> WebAnswer:
        """See `Fetch`."""
        if self._session is None:
            self._session = ClientSession(
                connector=TCPConnector(limit=4),
                timeout=_TIMEOUT,
                cookie_jar=DummyCookieJar(),
                trust_env=False,
                headers={"Accept-Encoding": "identity"},
                auto_decompress=False,
            )
        try:
            async with self._session.request(
                "GET" if form is None else "POST",
                url,
                data=form,
                headers=headers,
                allow_redirects=False,
                ssl=self._context() if self._context is not None else True,
            ) as answer:
                body = bytearray()
                async for piece in answer.content.iter_any():
                    body += piece
                    if len(body) > ANSWER_BYTES:
                        raise WebError(f"{url} answers with more than {ANSWER_BYTES} bytes")
                return WebAnswer(answer.status, bytes(body))
        except TimeoutError:
            raise WebError(f"{url} does not answer within {_TIMEOUT.total} s") from None
        except (ClientError, OSError, ValueError) as error:
            raise WebError(f"{url} cannot be asked: {error or type(error).__name__}") from None

    async def close(self) -> None:
        """Close the connections. The client may be used again."""
        session, self._session = self._session, None
        if session is not None:
            await session.close()
