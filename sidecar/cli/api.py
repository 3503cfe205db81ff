"""A client of a node's REST interface for commands: one blocking request at a time; failures become exit codes."""

from __future__ import annotations

import http.client
import json
import re
import ssl
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from urllib.parse import quote, unquote, urlencode, urlsplit

from sidecar.cli.output import CommandError, Exit
from sidecar.security.tls import TlsFileError, TlsFiles, client_context, pinned_context
from sidecar.security.words import in_words
from sidecar.settings import AdminAccess
from sidecar.settings.loaded import text_of

_HINTS: Final = (
    (404, r"/v1/topics/\S* there is no topic ", "sidecar topic list"),
    (404, r"/v1/topics/[^/]+/policy", "sidecar topic list --governed"),
    (404, r"/v1/topics/([^/]+)/dedup/.", "sidecar dedup show {0}"),
    (404, r"/v1/topics/([^/]+)/shadows/.", "sidecar shadow list {0}"),
    (404, r"/v1/topics/", "sidecar topic list"),
    (404, r"/v1/shadows/", "sidecar shadow list"),
    (409, r"/v1/topics/([^/]+)/(?:fence|release)", "sidecar producer list {0}"),
    (412, r"/v1/topics/([^/]+)/", "sidecar producer list {0}"),
    (409, r"/v1/topics/([^/]+)/dedup", "sidecar topic show {0}"),
    (409, r"/v1/topics/([^/? ]+)(?:\?\S*)? .* is a shadow", "sidecar shadow delete {0}"),
    (409, r"/v1/topics/([^/? ]+)[? ]", "sidecar shadow list {0}"),
    (409, r"/v1/shadows/([^/]+)/cursors/.", "sidecar cursor list {0}"),
    (503, r"/", "sidecar doctor"),
)
"""The first match counts: HTTP's status, a pattern of the target, a space and the message."""


def hint(status: int, target: str, message: str) -> str | None:
    """A command that shows more about a refusal; None if the message says everything."""
    for code, pattern, command in _HINTS:
        if code == status and (found := re.match(pattern, f"{target} {message}")):
            return command.format(*map(unquote, found.groups()))
    return None


_CODES: Final = {400: Exit.USAGE, 404: Exit.NOT_FOUND, 409: Exit.CONFLICT, 412: Exit.CONFLICT, 503: Exit.UNREACHABLE}
_TIMEOUT: Final = 70.0
"""Seconds; more than a node's slowest answer takes."""
_UNSAID: Final = "the node does not do this without its token: set SIDECAR_ADMIN_TOKEN, or admin_token in sidecar.toml"
_ANOTHER: Final = (
    "the node wants another token for this than SIDECAR_ADMIN_TOKEN or SIDECAR_ADMIN_READ_TOKEN, in the environment or"
    " in sidecar.toml, says here"
)


class ApiError(CommandError):
    """The node refused the request; `status` is HTTP's, `body` the whole answer, `target` the requested path."""

    def __init__(self, status: int, message: str, body: Mapping[str, Any], target: str = "") -> None:
        super().__init__(message, _CODES.get(status, Exit.FAILURE), hint(status, target, message))
        self.status = status
        self.body = body


class AdminApi:
    """A client of a node's HTTP side. Every method raises CommandError with the right exit code."""

    def __init__(self, access: AdminAccess, timeout: float = _TIMEOUT) -> None:
        self.url = text_of("admin_url", access.url)
        """The URL without its password, for messages."""
        self._access = access
        self._tls: ssl.SSLContext | None = None
        self._timeout = timeout

    def get(self, path: str, **query: str | int) -> Any:
        """The JSON at `path`."""
        return self._request("GET", path, query)

    def get_text(self, path: str) -> str:
        """The content at `path`, unchanged."""
        status, text = self._exchange("GET", path, None)
        if status != http.client.OK:
            raise ApiError(status, f"{self.url}{path} answers {status}", {})
        return text

    def put(self, path: str, body: Mapping[str, Any]) -> Any:
        """PUT `body`."""
        return self._request("PUT", path, {}, json.dumps(body))

    def patch(self, path: str, body: Mapping[str, Any]) -> Any:
        """PATCH `body`."""
        return self._request("PATCH", path, {}, json.dumps(body))

    def post(self, path: str, *, if_generation: int | None = None, **query: str | int) -> Any:
        """POST without a body. With `if_generation` the node acts only if that is the present generation; else ApiError
        412.
        """
        return self._request("POST", path, query, if_generation=if_generation)

    def create(self, path: str, body: Mapping[str, Any]) -> Any:
        """POST `body`."""
        return self._request("POST", path, {}, json.dumps(body))

    def delete(self, path: str, **query: str | int) -> None:
        """DELETE."""
        self._request("DELETE", path, query)

    def pages(self, path: str, **query: str | int) -> Iterator[dict[str, Any]]:
        """All items of the list at `path`, page by page."""
        token: str | None = ""
        while token is not None:
            page = self.get(path, **query, **({"page_token": token} if token else {}))
            yield from page["items"]
            token = page.get("next_page_token")

    def topics(self, *, governed: bool) -> Iterator[dict[str, Any]]:
        """All topics, page by page."""
        return self.pages("/v1/topics", governed=str(governed).lower())

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str | int],
        body: str | None = None,
        *,
        if_generation: int | None = None,
    ) -> Any:
        target = f"{path}?{urlencode(query)}" if query else path
        status, text = self._exchange(method, target, body, if_generation)
        try:
            found = json.loads(text) if text else {}
        except ValueError:
            raise CommandError(
                f"{self.url} answers {status} with something that is no JSON: is it a sidecar?"
            ) from None
        if status == http.client.UNAUTHORIZED:
            raise ApiError(status, _ANOTHER if self._access.token else _UNSAID, found, target)
        if status >= http.client.BAD_REQUEST:
            raise ApiError(status, str(found.get("message") or f"{self.url} answers {status}"), found, target)
        return found

    def _exchange(
        self, method: str, target: str, body: str | None, if_generation: int | None = None
    ) -> tuple[int, str]:
        headers = {"Accept": "application/json"}
        if self._access.token:
            headers["Authorization"] = f"Bearer {self._access.token}"
        if if_generation is not None:
            headers["If-Match"] = f'"{if_generation}"'
        if body is not None:
            headers["Content-Type"] = "application/json"
        try:
            url = urlsplit(self._access.url)
            connection = self._connection(url.scheme, url.hostname or "", url.port)
        except (KeyError, ValueError, http.client.InvalidURL):
            raise self._wrong_url() from None
        try:
            connection.request(method, url.path + target, body, headers)
            answer = connection.getresponse()
            return answer.status, answer.read().decode(errors="replace")
        except UnicodeError:
            raise self._wrong_url() from None
        except (OSError, http.client.HTTPException) as error:
            if isinstance(error, TimeoutError) and connection.sock is not None:  # connected, but without an answer
                raise CommandError(
                    f"{self.url}{url.path}{target} does not answer within {self._timeout:.0f} s; what the node waits "
                    f"for is at {self.url}/readyz",
                    Exit.UNREACHABLE,
                ) from None
            reason = self._why(error)
            raise CommandError(
                f"no node answers at {self.url} ({reason}). Start one, or name its admin address with --admin-url "
                "or SIDECAR_ADMIN_URL.",
                Exit.UNREACHABLE,
            ) from None
        finally:
            connection.close()

    def _connection(self, scheme: str, host: str, port: int | None) -> http.client.HTTPConnection:
        """A connection that is not open yet. Raises KeyError for a scheme other than HTTP's."""
        if {"http": False, "https": True}[scheme]:
            return http.client.HTTPSConnection(host, port, timeout=self._timeout, context=self._context())
        return http.client.HTTPConnection(host, port, timeout=self._timeout)

    def _context(self) -> ssl.SSLContext:
        """The TLS context for connections; its files are read once. Raises CommandError if one cannot be used."""
        if self._tls is None:
            try:
                self._tls = context_of(self._access)
            except TlsFileError as error:
                raise CommandError(f"{error}. See the settings SIDECAR_ADMIN_CLIENT_SSL_…", Exit.USAGE) from None
        return self._tls

    def _why(self, error: Exception) -> str:
        if isinstance(error, ssl.SSLCertVerificationError):
            remedy = "its authority's certificate belongs in SIDECAR_ADMIN_CLIENT_SSL_CA"
            return f"{in_words(error)}; {remedy}"
        if isinstance(error, ssl.SSLError):
            return in_words(error)
        is_cut = isinstance(error, http.client.RemoteDisconnected | ConnectionResetError)
        if is_cut and self._access.url.startswith("http:"):
            return f"{error}; if its admin port has TLS, the URL begins with https://"
        return str(error) or type(error).__name__

    def _wrong_url(self) -> CommandError:
        return CommandError(f"{self.url} is not of the form http://host:port", Exit.USAGE)


def context_of(access: AdminAccess) -> ssl.SSLContext:
    """The TLS context for connections to a node. Raises TlsFileError."""
    names = access.certificate, access.key, access.ca
    certificate, key, ca = (None if name is None else Path(name) for name in names)
    files = TlsFiles(certificate, key, ca)
    return client_context(files) if access.own is None else pinned_context(Path(access.own), files)


def given(**fields: object) -> dict[str, object]:
    """A body with the fields that are not None."""
    return {name: value for name, value in fields.items() if value is not None}


def topic_path(topic: str, *more: str) -> str:
    """The path of a topic, or of something below it; its name may hold any character."""
    return "/".join(("/v1/topics", quoted(topic, safe="*"), *map(quoted, more)))


def shadow_path(shadow: str, *more: str) -> str:
    """The path of a shadow, or of something below it."""
    return "/".join(("/v1/shadows", *map(quoted, (shadow, *more))))


def quoted(name: str, safe: str = "") -> str:
    """A name encoded for a path. Raises CommandError for a name that cannot be in a request."""
    if not name:
        raise CommandError("a name is empty here: every topic, shadow, group and producer has one", Exit.USAGE)
    try:
        return quote(name, safe=safe)
    except UnicodeEncodeError:
        raise CommandError(f"{name} is not UTF-8: nothing has such a name", Exit.USAGE) from None
