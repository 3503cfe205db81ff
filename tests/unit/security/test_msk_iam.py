"""The example of a token provider: Amazon MSK by IAM. Its signatures, where credentials come from, and a login."""

from __future__ import annotations

import base64
import importlib.util
import json
import sys
import tomllib
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, urlsplit

import pytest

from sidecar.security.credentials import TokenCredentials
from sidecar.security.errors import LoginError, TokenError
from sidecar.security.servers import Identity, OauthBearerServer, RefusedTokenError
from sidecar.security.tokens import PROVIDERS, Tokens, load_provider
from sidecar.security.web import WebAnswer, WebError

if TYPE_CHECKING:
    from collections.abc import Mapping

EXAMPLE = Path("examples/msk_iam")
SECRET = "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"
KEYS = {"AWS_ACCESS_KEY_ID": "AKIDEXAMPLE", "AWS_SECRET_ACCESS_KEY": SECRET}
AGENT = {"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://169.254.170.23/v1/credentials"}
REGION = "eu-central-1"
NOW = 1_700_000_000.0


def _load() -> Any:
    spec = importlib.util.spec_from_file_location("msk_iam", EXAMPLE / "msk_iam.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["msk_iam"] = module
    spec.loader.exec_module(module)
    return module


msk_iam = _load()


@dataclass
class Agent:
    """The endpoint of a container."""

    answer: WebAnswer | WebError
    asked: list[tuple[str, Mapping[str, str] | None]] = field(default_factory=list)
    closed: bool = False

    async def __call__(
        self, url: str, *, form: Mapping[str, str] | None = None, headers: Mapping[str, str] | None = None
    ) -> WebAnswer:
        assert form is None
        self.asked.append((url, headers))
        if isinstance(self.answer, WebError):
            raise self.answer
        return self.answer

    async def close(self) -> None:
        self.closed = True


def answer(status: int = 200, **values: object) -> WebAnswer:
    return WebAnswer(status, json.dumps(values).encode())


def tokens(environment: Mapping[str, str], agent: Agent | None = None, now: float = NOW) -> Any:
    return msk_iam.MskTokens(REGION, environment, agent or Agent(WebError("no agent")), lambda: now)


def url_of(token: str) -> str:
    return base64.urlsafe_b64decode(token + "=" * (-len(token) % 4)).decode()


class FakeMsk:
    """A broker of MSK: it knows the secret, and takes a URL that was signed with it and is still good."""

    def __init__(self, now: float) -> None:
        self._now = now

    async def check(self, token: str) -> Identity:
        url = url_of(token)
        values = {name: found for name, (found,) in parse_qs(urlsplit(url).query, strict_parsing=True).items()}
        began = 1_700_000_000 if values["X-Amz-Date"] == "20231114T221320Z" else 0
        life = int(values["X-Amz-Expires"])
        keys = msk_iam.Credentials(values["X-Amz-Credential"].split("/")[0], SECRET, values.get("X-Amz-Security-Token"))
        if url != msk_iam.signed_url(keys, REGION, began, life) or not began <= self._now < began + life <= began + 900:
            raise RefusedTokenError("the signature does not match, or is over")
        return Identity("arn:aws:iam::111122223333:role/sidecar", began + life)


# Signatures -----------------------------------------------------------------------------------------------------------


def test_the_key_is_that_of_awss_documentation() -> None:
    found = msk_iam.signing_key(SECRET, "20150830", "us-east-1", "iam")
    assert found.hex() == "c4afb1cc5771d871763a393e44b703571b55cc28424d1a5e86da6ed3c154a4b9"


@pytest.mark.parametrize(
    ("session", "signature"),
    [
        (None, "674a7efeeb19a92e44b849bf3ea778a9c78e68ad0bac99e834ab2ea6139ac226"),
        ("IQoJb3JpZ2luX2VjEXAMPLE//+==", "adb6fa9e32969949b131ec97e33199d0634ebd4b131a5638bc1052307f2676be"),
    ],
)
def test_a_url_is_signed_as_awss_own_library_signs_it(session: str | None, signature: str) -> None:
    """botocore 1.44.8, SigV4QueryAuth, with the same values."""
    url = msk_iam.signed_url(msk_iam.Credentials("AKIDEXAMPLE", SECRET, session), REGION, NOW, 900)
    values = parse_qs(urlsplit(url).query)
    assert urlsplit(url)[:3] == ("https", "kafka.eu-central-1.amazonaws.com", "/")
    assert values["Action"] == ["kafka-cluster:Connect"]
    assert values["X-Amz-Signature"] == [signature]
    assert values.get("X-Amz-Security-Token", [None]) == [session]


# Credentials ----------------------------------------------------------------------------------------------------------


async def test_a_token_of_lasting_credentials_is_good_for_a_quarter_of_an_hour() -> None:
    token = await tokens(KEYS).token()
    assert token.lifetime_s == 900
    assert "X-Amz-Expires=900" in url_of(token.value)


async def test_credentials_of_a_container_are_fetched_for_every_token_and_bound_its_life(tmp_path: Path) -> None:
    (tmp_path / "token").write_text("let me in\n")
    agent = Agent(
        answer(AccessKeyId="AKIDEXAMPLE", SecretAccessKey=SECRET, Token="session", Expiration="2023-11-14T22:18:20Z")
    )
    found = tokens({**AGENT, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(tmp_path / "token")}, agent)
    assert [(await found.token()).lifetime_s for _ in range(2)] == [300, 300]
    assert agent.asked == 2 * [("http://169.254.170.23/v1/credentials", {"Authorization": "let me in"})]
    await found.close()
    assert agent.closed


async def test_a_task_of_ecs_asks_its_agent() -> None:
    agent = Agent(answer(AccessKeyId="AKIDEXAMPLE", SecretAccessKey=SECRET))
    await tokens({"AWS_CONTAINER_CREDENTIALS_RELATIVE_URI": "/v2/credentials/1"}, agent).token()
    assert agent.asked == [("http://169.254.170.2/v2/credentials/1", {})]


@pytest.mark.parametrize(
    ("environment", "said", "why"),
    [
        ({}, answer(), "there are no credentials"),
        (AGENT, WebError("no route"), "no route"),
        (AGENT, answer(403), "answers 403"),
        (AGENT, WebAnswer(200, b"<html>"), "without credentials"),
        (AGENT, WebAnswer(200, b"[" * 100_000), "without credentials"),
        (AGENT, answer(AccessKeyId="AKIDEXAMPLE"), "without credentials"),
        (AGENT, answer(AccessKeyId="A", SecretAccessKey="s", Expiration="soon"), "without credentials"),
        (AGENT, answer(AccessKeyId="A", SecretAccessKey="s", Expiration="2023-11-14T22:13:20Z"), "have ended"),
        ({"AWS_CONTAINER_CREDENTIALS_FULL_URI": "http://evil.example/"}, answer(), "evil.example without TLS"),
        ({**AGENT, "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": "/nowhere"}, answer(), "/nowhere cannot be read"),
    ],
)
async def test_without_credentials_it_says_why(
    environment: dict[str, str], said: WebAnswer | WebError, why: str
) -> None:
    with pytest.raises(TokenError, match=why) as caught:
        await tokens(environment, Agent(said)).token()
    assert SECRET not in str(caught.value)


@pytest.mark.parametrize("region", ["", "eu-central-1.evil.example/", "EU", "eu-central-1\n"])
def test_what_is_no_region_is_refused(region: str) -> None:
    with pytest.raises(ValueError, match="is no region"):
        msk_iam.MskTokens(region, KEYS, Agent(answer()))


def test_credentials_are_never_shown() -> None:
    assert SECRET not in repr(msk_iam.Credentials("AKIDEXAMPLE", SECRET, SECRET))


# The package, and a login ---------------------------------------------------------------------------------------------


async def test_the_package_brings_the_provider_that_its_page_names(monkeypatch: pytest.MonkeyPatch) -> None:
    project = tomllib.loads((EXAMPLE / "pyproject.toml").read_text())["project"]
    points = [metadata.EntryPoint(name, at, PROVIDERS) for name, at in project["entry-points"][PROVIDERS].items()]
    monkeypatch.setattr(metadata, "entry_points", lambda *, group: metadata.EntryPoints(points))
    for name, value in KEYS.items():
        monkeypatch.setenv(name, value)
    assert "SIDECAR_KAFKA_SASL_TOKEN_PROVIDER=msk-iam" in (EXAMPLE / "README.md").read_text()
    found = load_provider("msk-iam", {"scope": REGION})
    assert url_of((await found.token()).value).startswith("https://kafka.eu-central-1.amazonaws.com/?Action=")
    await found.close()


async def test_a_node_logs_in_with_its_tokens() -> None:
    credentials = TokenCredentials(Tokens(tokens({**KEYS, "AWS_SESSION_TOKEN": "session"})))
    mechanism = await credentials.mechanism()
    broker = OauthBearerServer(FakeMsk(NOW + 60).check)
    assert await broker.receive(mechanism.start()) == b""
    assert broker.accepted == Identity("arn:aws:iam::111122223333:role/sidecar", NOW + 900)


@pytest.mark.parametrize(
    ("environment", "later"), [({**KEYS, "AWS_SECRET_ACCESS_KEY": "of another one"}, 0.0), (KEYS, 900.0)]
)
async def test_a_login_with_another_key_or_too_late_is_refused(environment: dict[str, str], later: float) -> None:
    mechanism = await TokenCredentials(Tokens(tokens(environment))).mechanism()
    broker = OauthBearerServer(FakeMsk(NOW + later).check)
    assert b"invalid_token" in await broker.receive(mechanism.start())
    with pytest.raises(LoginError):
        await broker.receive(b"\x01")
