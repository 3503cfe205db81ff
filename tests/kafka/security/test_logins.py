"""Every mechanism, TLS and certificates, at a broker of Kafka."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import base64
import json
import ssl
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType
from cryptography import x509
from cryptography.x509.oid import NameOID

from sidecar.protocol.calls.security import DescribeAcls
from sidecar.protocol.messages.cluster import METADATA
from sidecar.security.credentials import Credentials, PasswordCredentials, TokenCredentials
from sidecar.security.distinguished_names import subject_of
from sidecar.security.errors import LoginError
from sidecar.security.exchange import Session
from sidecar.security.principal_mapping import PrincipalMapping
from sidecar.security.saslprep import saslprep
from sidecar.security.tls import TlsFiles, client_context
from sidecar.security.tokens import Token, Tokens
from tests.kafka.security.secured import PASSWORD, REAUTHENTICATION_MS, SCRAM, Secured, Wire
from tests.wait import wait_for_async

Unique = Callable[[str], str]
ANY_TOPIC = {"topics": None, "allow_auto_topic_creation": False}


class Unsigned:
    """Tokens without a signature, which Kafka takes where nothing else is configured."""

    def __init__(self, lifetime_s: float) -> None:
        self._lifetime_s = lifetime_s

    async def token(self) -> Token:
        claims = {"sub": "alice", "iat": time.time(), "exp": time.time() + self._lifetime_s}
        parts = [base64.urlsafe_b64encode(json.dumps(part).encode()) for part in ({"alg": "none"}, claims)]
        return Token(".".join(part.decode().rstrip("=") for part in parts) + ".", self._lifetime_s)

    async def close(self) -> None:
        pass


def tokens(lifetime_s: float = 300.0) -> Credentials:
    return TokenCredentials(Tokens(Unsigned(lifetime_s)))


async def let_in(secured: Secured, credentials: Credentials, listener: str = "SASL_PLAINTEXT") -> None:
    """SCRAM users are known a moment after they were made."""

    async def succeeds() -> bool:
        async with secured.wire(listener, trust(secured) if "SSL" in listener else None) as wire:
            try:
                await wire.login(credentials)
            except LoginError:
                return False
            return bool((await wire.ask_table(METADATA, 5, ANY_TOPIC))["brokers"])

    await wait_for_async(succeeds, "a login", 10)


def trust(secured: Secured) -> ssl.SSLContext:
    return client_context(TlsFiles(ca=secured.authority.ca))


async def refused(secured: Secured, credentials: Credentials, listener: str = "SASL_PLAINTEXT") -> LoginError:
    async with secured.wire(listener, trust(secured) if "SSL" in listener else None) as wire:
        with pytest.raises(LoginError) as error:
            await wire.login(credentials)
        return error.value


async def test_plain(secured: Secured) -> None:
    await let_in(secured, PasswordCredentials("PLAIN", "alice", PASSWORD))
    for name, password in (("alice", "wrong"), ("nobody", PASSWORD)):
        error = await refused(secured, PasswordCredentials("PLAIN", name, password))
        assert error.code == 58
        assert password not in str(error)


@pytest.mark.parametrize("mechanism", SCRAM)
async def test_scram(secured: Secured, unique: Unique, mechanism: str) -> None:
    name = unique("us,er=")
    secured.scram_user(name, mechanism)
    await let_in(secured, PasswordCredentials(mechanism, name, PASSWORD))
    for wrong in (name, unique("nobody")):
        assert (await refused(secured, PasswordCredentials(mechanism, wrong, "wrong"))).code == 58


async def test_a_password_that_saslprep_would_change_is_hashed_as_it_is(secured: Secured, unique: Unique) -> None:
    name, password = unique("user"), "Ⅸ"
    secured.scram_user(name, "SCRAM-SHA-256", password)
    await let_in(secured, PasswordCredentials("SCRAM-SHA-256", name, password))
    assert (await refused(secured, PasswordCredentials("SCRAM-SHA-256", name, saslprep(password)))).code == 58


async def test_oauthbearer(secured: Secured) -> None:
    await let_in(secured, tokens())
    error = await refused(secured, tokens(-300.0))
    assert error.code == 58


async def test_a_mechanism_that_the_listener_does_not_have(secured: Secured) -> None:
    error = await refused(secured, PasswordCredentials("PLAIN", "alice", PASSWORD), "SASL_SSL")
    assert error.code == 33
    assert "SCRAM-SHA-256" in str(error)


async def test_scram_over_tls(secured: Secured, unique: Unique) -> None:
    name = unique("user")
    secured.scram_user(name, "SCRAM-SHA-256")
    await let_in(secured, PasswordCredentials("SCRAM-SHA-256", name, PASSWORD), "SASL_SSL")


async def renewed(wire: Wire, credentials: Credentials) -> Session:
    """The session after the next login on a connection: brokers refuse it within a second of the last one."""

    async def renews() -> Session | None:
        try:
            return await wire.login(credentials)
        except LoginError as error:
            if error.code != 34:
                raise
            return None

    session = await wait_for_async(renews, "a new login")
    assert session is not None
    return session


async def test_a_session_is_renewed_on_its_connection(secured: Secured) -> None:
    credentials = PasswordCredentials("PLAIN", "alice", PASSWORD)
    async with secured.wire("SASL_PLAINTEXT") as wire:
        for _ in range(2):
            session = await renewed(wire, credentials)
            lifetime = REAUTHENTICATION_MS / 1_000
            assert session.lifetime_s == lifetime
            assert session.renew_after_s is not None
            assert 0.85 * lifetime <= session.renew_after_s <= 0.95 * lifetime
            assert (await wire.ask_table(METADATA, 5, ANY_TOPIC))["brokers"]


async def test_a_token_that_ends_before_the_session_ends_it(secured: Secured) -> None:
    async with secured.wire("SASL_PLAINTEXT") as wire:
        session = await wire.login(tokens(20.0))
    assert session.lifetime_s is not None
    assert session.lifetime_s <= 20.0


async def test_a_session_cannot_become_somebody_elses(secured: Secured) -> None:
    async with secured.wire("SASL_PLAINTEXT") as wire:
        await wire.login(PasswordCredentials("PLAIN", "alice", PASSWORD))
        with pytest.raises(LoginError, match="Cannot change principals"):
            await renewed(wire, PasswordCredentials("PLAIN", "bob", PASSWORD))


async def test_the_broker_must_show_a_certificate_that_is_trusted(secured: Secured, tmp_path: Path) -> None:
    with pytest.raises(ssl.SSLCertVerificationError):
        async with secured.wire("SASL_SSL", client_context(TlsFiles())):
            pass


SUBJECTS = {
    "plain": [(NameOID.COMMON_NAME, "billing"), (NameOID.ORGANIZATION_NAME, "Acme")],
    "escaped": [(NameOID.COMMON_NAME, ' #Bücher, "a+b"=<c>;\\ '), (NameOID.COUNTRY_NAME, "DE")],
    "without keywords": [(NameOID.EMAIL_ADDRESS, "a@b.c"), (NameOID.SERIAL_NUMBER, "7"), (NameOID.COMMON_NAME, "x")],
}


@pytest.mark.parametrize("subject", SUBJECTS.values(), ids=SUBJECTS)
async def test_a_certificates_holder_is_who_kafka_takes_him_for(
    secured: Secured, unique: Unique, subject: list[tuple[x509.ObjectIdentifier, str]]
) -> None:
    """The only rule about a new topic names the principal that is calculated here; whom it is for may see the topic."""
    own = unique("holder")
    name = x509.Name([x509.NameAttribute(oid, value) for oid, value in [*subject, (NameOID.USER_ID, own)]])
    certificate, key = secured.authority.issue(name, file=own)
    principal = PrincipalMapping().principal(subject_of(ssl.PEM_cert_to_DER_cert(certificate.read_text())))
    topic = unique("topic")
    secured.topics(topic)
    literal, allow = ResourcePatternType.LITERAL, AclPermissionType.ALLOW
    rule = AclBinding(ResourceType.TOPIC, topic, literal, principal, "*", AclOperation.DESCRIBE, allow)
    for made in secured.admin.create_acls([rule]).values():
        made.result(30)
    async with secured.wire("PLAINTEXT") as super_user:

        async def is_known() -> bool:
            return any(each.resource_name == topic for each in (await super_user.ask(DescribeAcls())).bindings)

        await wait_for_async(is_known, "the rule")
    asked = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    context = client_context(TlsFiles(certificate, key, secured.authority.ca))
    async with secured.wire("SSL", context) as wire:
        answer = await wire.ask_table(METADATA, 5, asked)
    assert [each["error_code"] for each in answer["topics"]] == [0]
