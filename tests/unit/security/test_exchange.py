"""A login, against a broker on paper that reads and writes the frames of the protocol."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import pytest

from sidecar.protocol.caller import BadAnswerError
from sidecar.protocol.messages.security import SASL_AUTHENTICATE, SASL_HANDSHAKE
from sidecar.protocol.primitives import Reader
from sidecar.security.credentials import PasswordCredentials, PasswordFile, TokenCredentials
from sidecar.security.errors import LoginError, TokenError
from sidecar.security.exchange import Connection, Session, login
from sidecar.security.mechanisms import Mechanism
from sidecar.security.tokens import Token, Tokens

Step = Callable[[bytes], tuple[int, str | None, bytes]]


@dataclass
class Broker:
    """Answers SaslHandshake with `mechanisms`, and each SaslAuthenticate with the next of `steps`."""

    steps: list[Step]
    mechanisms: tuple[str, ...] = ("PLAIN", "SCRAM-SHA-256", "OAUTHBEARER")
    lifetime_ms: int = 0
    cut: int = 0
    received: list[bytes] = field(default_factory=list)
    correlation_ids: list[int] = field(default_factory=list)

    async def send(self, frame: bytes) -> bytes:
        reader = Reader(frame, 4)
        key, version, correlation_id = reader.i16(), reader.i16(), reader.i32()
        self.correlation_ids.append(correlation_id)
        assert reader.text() == "node"
        if key == SASL_HANDSHAKE.key:
            asked = SASL_HANDSHAKE.decode_request(frame, reader.position, len(frame), version)["mechanism"]
            values = {"error_code": 0 if asked in self.mechanisms else 33, "mechanisms": list(self.mechanisms)}
            return SASL_HANDSHAKE.encode_answer(version, correlation_id, values)
        assert (key, version) == (SASL_AUTHENTICATE.key, 2)
        data = bytes(SASL_AUTHENTICATE.decode_request(frame, reader.position, len(frame), version)["auth_bytes"])
        self.received.append(data)
        error, message, answer = self.steps.pop(0)(data)
        values = {
            "error_code": error,
            "error_message": message,
            "auth_bytes": answer,
            "session_lifetime_ms": self.lifetime_ms,
        }
        answered = SASL_AUTHENTICATE.encode_answer(version, correlation_id, values)
        return answered[: len(answered) - self.cut]

    @property
    def connection(self) -> Connection:
        return Connection(self.send, itertools.count(7), "node")


def says(answer: bytes = b"", error: int = 0, message: str | None = None) -> Step:
    return lambda _: (error, message, answer)


PASSWORD = PasswordCredentials("PLAIN", "alice", "secret")


class Provider:
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> Token:
        return Token(self._token, 60.0)

    async def close(self) -> None:
        pass


async def test_a_login_with_plain_is_one_message() -> None:
    broker = Broker([says()])
    assert await login(broker.connection, PASSWORD) == Session(None, None)
    assert broker.received == [b"\0alice\0secret"]
    assert broker.correlation_ids == [7, 8]


async def test_a_session_is_renewed_before_its_end() -> None:
    for spread, share in ((0.0, 0.85), (1.0, 0.95)):
        broker = Broker([says()], lifetime_ms=60_000)
        session = await login(broker.connection, PASSWORD, lambda spread=spread: spread)
        assert session.lifetime_s == 60.0
        assert session.renew_after_s == pytest.approx(60.0 * share)


async def test_a_session_is_not_renewed_sooner_than_brokers_allow() -> None:
    session = await login(Broker([says()], lifetime_ms=1_050).connection, PASSWORD, lambda: 0.0)
    assert session.renew_after_s == 1.0


async def test_a_mechanism_that_the_broker_does_not_have_is_named_with_those_that_it_has() -> None:
    broker = Broker([], mechanisms=("GSSAPI",))
    with pytest.raises(LoginError, match="refuses PLAIN; it offers GSSAPI") as refused:
        await login(broker.connection, PASSWORD)
    assert refused.value.code == 33


async def test_credentials_learn_that_a_broker_does_not_have_their_mechanism() -> None:
    class Noting(PasswordCredentials):
        said = ""

        def refused(self, reason: str) -> None:
            self.said = reason

    credentials = Noting("SCRAM-SHA-512", "id", "hmac", token_auth=True)
    with pytest.raises(LoginError):
        await login(Broker([]).connection, credentials)
    assert credentials.said == "the broker refuses SCRAM-SHA-512; it offers PLAIN, SCRAM-SHA-256, OAUTHBEARER"


async def test_a_refusal_says_what_the_broker_says_fit_for_a_log() -> None:
    broker = Broker([says(error=58, message="no\nsuch user")])
    with pytest.raises(LoginError, match="no\\?such user") as refused:
        await login(broker.connection, PASSWORD)
    assert refused.value.code == 58


async def test_a_broker_that_is_content_too_early_is_not_believed() -> None:
    """A server that does not know the password could end SCRAM with an empty answer."""
    credentials = PasswordCredentials("SCRAM-SHA-256", "alice", "secret")

    def first(data: bytes) -> tuple[int, str | None, bytes]:
        return 0, None, b"r=" + data.rpartition(b"r=")[2] + b"x,s=QQ==,i=4096"

    for steps in ([says()], [first, says()], [first, says(b"v=QQ==")]):
        with pytest.raises(LoginError) as refused:
            await login(Broker([*steps]).connection, credentials)
        assert refused.value.code == 58
        assert "secret" not in str(refused.value)


async def test_a_broker_cannot_keep_a_login_going_for_ever() -> None:
    class Endless:
        is_slow: ClassVar[bool] = False

        def __init__(self) -> None:
            self.name = "PLAIN"
            self.complete = False

        def start(self) -> bytes:
            return b"?"

        def receive(self, challenge: bytes) -> bytes | None:
            return b"?"

    class Credentials:
        def refused(self, reason: str) -> None:
            """See `Credentials`: the next login shows what there is then."""

        async def mechanism(self) -> Mechanism:
            return Endless()

        async def close(self) -> None:
            """There is nothing to close."""

    broker = Broker([says(b"?")] * 100)
    with pytest.raises(LoginError) as refused:
        await login(broker.connection, Credentials())
    assert refused.value.code == 34
    assert len(broker.received) < 20


async def test_an_answer_cut_off_is_no_answer() -> None:
    with pytest.raises(BadAnswerError):
        await login(Broker([says()], cut=3).connection, PASSWORD)


async def test_a_refused_token_is_refused_with_the_brokers_reason() -> None:
    broker = Broker([says(b'{"status":"invalid_token"}'), says(error=58, message="invalid_token")])
    with pytest.raises(LoginError, match="invalid_token"):
        await login(broker.connection, TokenCredentials(Tokens(Provider("abc"))))
    assert broker.received[1] == b"\1"


async def test_a_token_that_cannot_be_sent_is_no_token() -> None:
    with pytest.raises(TokenError, match="cannot be sent"):
        await login(Broker([]).connection, TokenCredentials(Tokens(Provider("a b"))))


async def test_a_password_is_read_again_for_each_login(tmp_path: Path) -> None:
    path = tmp_path / "password"
    broker = Broker([says(), says()])
    credentials = PasswordCredentials("PLAIN", "alice", PasswordFile(path))
    for written in ("first\n", "second \r\n"):
        path.write_text(written)
        await login(broker.connection, credentials)
    assert broker.received == [b"\0alice\0first", b"\0alice\0second "]


@pytest.mark.parametrize(
    ("content", "why"), [(None, "cannot be read: No such"), (b"\n", "empty"), (b"\xff", "not UTF-8")]
)
async def test_a_password_file_that_is_none_is_named(tmp_path: Path, content: bytes | None, why: str) -> None:
    path = tmp_path / "password"
    if content is not None:
        path.write_bytes(content)
    credentials = PasswordCredentials("SCRAM-SHA-512", "alice", PasswordFile(path))
    with pytest.raises(TokenError, match=f"{path}.*{why}"):
        await login(Broker([]).connection, credentials)


@pytest.mark.parametrize(
    ("mechanism", "name", "password", "why"),
    [
        ("GSSAPI", "alice", "secret", "no mechanism with a password"),
        ("PLAIN", "", "secret", "name for PLAIN"),
        ("SCRAM-SHA-256", "alice", "", "password for SCRAM"),
    ],
)
def test_what_no_mechanism_can_carry_is_found_out_at_once(mechanism: str, name: str, password: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        PasswordCredentials(mechanism, name, password)


async def test_a_delegation_token_logs_in_with_scram_alone() -> None:
    with pytest.raises(ValueError, match="for SCRAM"):
        PasswordCredentials("PLAIN", "id", "hmac", token_auth=True)
    mechanism = await PasswordCredentials("SCRAM-SHA-256", "id", "hmac", token_auth=True).mechanism()
    assert mechanism.start().endswith(b",tokenauth=true")
