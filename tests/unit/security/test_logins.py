"""Names in first messages of logins that brokers check, and logins that a node checks by itself."""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from sidecar.security.credentials import MECHANISMS
from sidecar.security.errors import LoginError
from sidecar.security.files import FileError
from sidecar.security.logins import claimed_name, own_logins
from sidecar.security.users import user_line

if TYPE_CHECKING:
    from pathlib import Path


def bearer(payload: str) -> bytes:
    part = base64.urlsafe_b64encode(payload.encode()).decode().rstrip("=")
    return f"n,,\x01auth=Bearer e30.{part}.\x01\x01".encode()


RIGHT = [
    ("PLAIN", b"\0alice\0secret", "alice"),
    ("PLAIN", "alice\0alice\0sécret".encode(), "alice"),
    ("SCRAM-SHA-256", b"n,,n=us=2Cer=3D,r=abc", "us,er="),
    ("OAUTHBEARER", bearer(json.dumps({"sub": "alice", "exp": 1})), "alice"),
]
WRONG = [
    ("PLAIN", b"\0alice"),
    ("PLAIN", b"\0\0secret"),
    ("PLAIN", b"\0al\xffice\0secret"),
    ("PLAIN", b"\0alice \0secret"),
    ("PLAIN", b"\0al\nice\0secret"),
    ("PLAIN", b"\0" + b"a" * 256 + b"\0secret"),
    ("SCRAM-SHA-256", b"n,,r=abc"),
    ("SCRAM-SHA-512", b"n,,n=token,r=abc,tokenauth=TRUE"),
    ("SCRAM-SHA-512", b"n,,n=alice,r=abc,tokenauth=false"),
    ("SCRAM-SHA-512", b"n,,n=alice,r=abc,tokenauth=true,tokenauth=false"),
    ("OAUTHBEARER", bearer('{"sub": "alice", "sub": "bob"}')),
    ("OAUTHBEARER", bearer('{"sub": 1}')),
    ("OAUTHBEARER", bearer('{"name": "alice"}')),
    ("OAUTHBEARER", bearer("[")),
    ("OAUTHBEARER", bearer("[" * 40_000)),
    ("OAUTHBEARER", bearer("3")),
    ("OAUTHBEARER", b"n,,\x01auth=Bearer token\x01\x01"),
]


@pytest.mark.parametrize(("mechanism", "message", "name"), RIGHT)
def test_the_name_that_a_broker_would_let_in_is_found(mechanism: str, message: bytes, name: str) -> None:
    assert claimed_name(mechanism, message) == (name, False)


def test_a_token_is_told_from_a_user() -> None:
    assert claimed_name("SCRAM-SHA-512", b"n,,n=token,r=abc,tokenauth=true") == ("token", True)


@pytest.mark.parametrize(("mechanism", "message"), WRONG)
def test_a_message_without_one_clear_name_is_refused(mechanism: str, message: bytes) -> None:
    with pytest.raises(LoginError) as refused:
        claimed_name(mechanism, message)
    assert refused.value.code == 58
    assert "secret" not in str(refused.value) + refused.value.reason


def test_another_claim_names_the_principal() -> None:
    assert claimed_name("OAUTHBEARER", bearer('{"sub": "a", "email": "b"}'), "email").name == "b"


@dataclass
class Given:
    """Settings of a listener."""

    security_protocol: str = "SASL_PLAINTEXT"
    ssl_certificate: str | None = None
    ssl_key: str | None = None
    ssl_key_password: str | None = None
    ssl_ca: str | None = None
    ssl_client_auth: str = "none"
    ssl_principal_mapping_rules: str = "DEFAULT"
    sasl_mechanisms: str | None = None
    sasl_authentication: str = "file"
    sasl_users_file: str | None = None
    sasl_jwks_url: str | None = None
    sasl_audience: str | None = None
    sasl_issuer: str | None = None
    sasl_principal_claim: str = "sub"


async def test_a_file_of_users_offers_passwords_and_lets_its_users_in(tmp_path: Path) -> None:
    path = tmp_path / "users.toml"
    path.write_text(f"[users]\n{user_line('alice', 'secret', 4096)}\n")
    found = own_logins(Given(sasl_users_file=str(path)), lambda problem: None)
    assert found is not None
    offer = await found.begin("PLAIN", "10.0.0.1")
    assert set(offer.mechanisms) == set(MECHANISMS) - {"OAUTHBEARER"}
    assert offer.exchange is not None
    await offer.exchange.receive(b"\0alice\0secret")
    assert offer.exchange.accepted is not None
    assert offer.exchange.accepted.principal == "User:alice"
    assert (await found.begin("OAUTHBEARER", "10.0.0.1")).exchange is None


async def test_a_set_of_keys_offers_tokens_and_settings_choose_among_mechanisms(tmp_path: Path) -> None:
    found = own_logins(Given(sasl_authentication="jwks", sasl_jwks_url="http://127.0.0.1:1/"), lambda problem: None)
    assert found is not None
    assert (await found.begin("PLAIN", "10.0.0.1"))[:2] == (("OAUTHBEARER",), None)
    await found.close()
    path = tmp_path / "users.toml"
    path.write_text(f"[users]\n{user_line('alice', 'secret', 4096)}\n")
    chosen = own_logins(Given(sasl_users_file=str(path), sasl_mechanisms="SCRAM-SHA-512, PLAIN"), lambda problem: None)
    assert chosen is not None
    assert set((await chosen.begin("x", "10.0.0.1")).mechanisms) == {"SCRAM-SHA-512", "PLAIN"}


def test_a_file_that_is_missing_is_an_error_and_brokers_check_nothing_here(tmp_path: Path) -> None:
    with pytest.raises(FileError, match=r"missing\.toml cannot be read"):
        own_logins(Given(sasl_users_file=str(tmp_path / "missing.toml")), lambda problem: None)
    assert own_logins(Given(sasl_authentication="relay"), lambda problem: None) is None
    assert own_logins(Given(security_protocol="SSL"), lambda problem: None) is None
