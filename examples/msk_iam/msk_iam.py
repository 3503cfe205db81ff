"""Tokens for Amazon MSK with IAM: for OAUTHBEARER, a URL that is signed for the action kafka-cluster:Connect.

The signature is AWS's version 4, in the query of the URL, over an empty body and only the host. IAM checks the URL for
the brokers; no program requests it. It is valid for 15 minutes, and no longer than the credentials that signed it.

Credentials are those that AWS gives a process: the variables AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY and
AWS_SESSION_TOKEN, or else the endpoint of a container (ECS, EKS Pod Identity). They are read for every token, so new
ones are used at once. AWS's own libraries are not needed.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import os
import re
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

from sidecar.security.errors import TokenError
from sidecar.security.tokens import Token
from sidecar.security.web import WebClient, WebError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sidecar.security.web import Fetch

LIFE_S: Final = 900
"""Of a URL; IAM accepts no longer life for this action."""
_SERVICE: Final = "kafka-cluster"
_ACTION: Final = "kafka-cluster:Connect"
_ALGORITHM: Final = "AWS4-HMAC-SHA256"
_REGION: Final = re.compile(r"[a-z]{2}(-[a-z]+)+-\d")
_AGENTS: Final = "http://169.254.170.2"
"""The address that AWS_CONTAINER_CREDENTIALS_RELATIVE_URI is relative to."""
_PLAIN: Final = frozenset({"169.254.170.2", "169.254.170.23", "fd00:ec2::23", "127.0.0.1", "::1", "localhost"})
"""Hosts that credentials are fetched from without TLS: the agents of ECS and EKS, and this machine."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """What AWS signs with; the secret parts are never shown. `ends_at`: Unix seconds, None for never."""

    key_id: str
    secret: str = field(repr=False)
    session: str | None = field(default=None, repr=False)
    ends_at: float | None = None


def provider(options: Mapping[str, str]) -> MskTokens:
    """The entry point. The region is SIDECAR_KAFKA_SASL_SCOPE, or else AWS_REGION. Raises ValueError."""
    region = options.get("scope") or os.environ.get("AWS_REGION") or os.environ.get("AWS_DEFAULT_REGION", "")
    return MskTokens(region, os.environ, WebClient())


class MskTokens:
    """A `TokenProvider`. Raises ValueError for a name that is no region of AWS."""

    def __init__(
        self, region: str, environment: Mapping[str, str], fetch: Fetch, clock: Callable[[], float] = time.time
    ) -> None:
        if not _REGION.fullmatch(region):
            raise ValueError(f"{region!r} is no region of AWS: set AWS_REGION or SIDECAR_KAFKA_SASL_SCOPE")
        self._region = region
        self._environment = environment
        self._fetch = fetch
        self._clock = clock

    async def token(self) -> Token:
        """See `TokenProvider`. Raises TokenError."""
        credentials = await self._credentials()
        now = self._clock()
        left = LIFE_S if credentials.ends_at is None else min(LIFE_S, int(credentials.ends_at - now))
        if left <= 0:
            raise TokenError("the credentials of AWS have ended")
        url = signed_url(credentials, self._region, now, left)
        return Token(base64.urlsafe_b64encode(url.encode()).decode().rstrip("="), float(left))

    async def close(self) -> None:
        """See `TokenProvider`."""
        await self._fetch.close()

    async def _credentials(self) -> Credentials:
        found = self._environment
        key_id, secret = found.get("AWS_ACCESS_KEY_ID"), found.get("AWS_SECRET_ACCESS_KEY")
        if key_id and secret:
            return Credentials(key_id, secret, found.get("AWS_SESSION_TOKEN") or None)
        url = found.get("AWS_CONTAINER_CREDENTIALS_FULL_URI", "")
        if relative := found.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI"):
            url = _AGENTS + relative
        if not url:
            raise TokenError("there are no credentials of AWS: neither variables nor the endpoint of a container")
        return await self._ask(url)

    async def _ask(self, url: str) -> Credentials:
        parts = urlsplit(url)
        if parts.scheme != "https" and not (parts.scheme == "http" and parts.hostname in _PLAIN):
            raise TokenError(f"credentials are not asked of {parts.hostname} without TLS")
        try:
            answer = await self._fetch(url, headers=self._authorization())
        except WebError as error:
            raise TokenError(str(error)) from None
        if answer.status != 200:
            raise TokenError(f"{url} answers {answer.status}")
        try:
            found = json.loads(answer.body)
            end = found.get("Expiration")
            return Credentials(
                str(found["AccessKeyId"]),
                str(found["SecretAccessKey"]),
                found.get("Token"),
                None if end is None else datetime.fromisoformat(end).timestamp(),
            )
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise TokenError(f"{url} answers without credentials") from None

    def _authorization(self) -> dict[str, str]:
        token = self._environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN")
        if path := self._environment.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"):
            try:
                token = Path(path).read_text(encoding="utf-8").strip()
            except OSError as error:
                raise TokenError(f"{path} cannot be read: {error.strerror}") from None
        return {"Authorization": token} if token else {}


def signed_url(credentials: Credentials, region: str, now: float, life_s: int) -> str:
    """The URL that is a token. `now` is Unix time; `life_s`: how long it is good, in seconds."""
    host, moment = f"kafka.{region}.amazonaws.com", datetime.fromtimestamp(now, UTC).strftime("%Y%m%dT%H%M%SZ")
    scope = f"{moment[:8]}/{region}/{_SERVICE}/aws4_request"
    query = {
        "Action": _ACTION,
        "X-Amz-Algorithm": _ALGORITHM,
        "X-Amz-Credential": f"{credentials.key_id}/{scope}",
        "X-Amz-Date": moment,
        "X-Amz-Expires": str(life_s),
        "X-Amz-SignedHeaders": "host",
    }
    if credentials.session:
        query["X-Amz-Security-Token"] = credentials.session
    asked = "&".join(f"{_quoted(name)}={_quoted(query[name])}" for name in sorted(query))
    canonical = f"GET\n/\n{asked}\nhost:{host}\n\nhost\n{hashlib.sha256(b'').hexdigest()}"
    text = f"{_ALGORITHM}\n{moment}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    signature = _mac(signing_key(credentials.secret, moment[:8], region, _SERVICE), text).hex()
    return f"https://{host}/?{asked}&X-Amz-Signature={signature}&User-Agent=kafka-sidecar"


def signing_key(secret: str, day: str, region: str, service: str) -> bytes:
    """The key of one day (YYYYMMDD), region and service."""
    key = f"AWS4{secret}".encode()
    for part in (day, region, service, "aws4_request"):
        key = _mac(key, part)
    return key


def _mac(key: bytes, text: str) -> bytes:
    return hmac.new(key, text.encode(), hashlib.sha256).digest()


def _quoted(text: str) -> str:
    return quote(text, safe="-_.~")
