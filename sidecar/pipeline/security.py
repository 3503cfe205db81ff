"""TLS and login of a job's connections, with librdkafka's settings; they work like those of nodes to brokers.

`security.protocol` (PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL; default PLAINTEXT), `ssl.ca.location` (a file of PEM
certificates; default: the system's), and the others of `OPTIONS`. Messages never contain secrets.

The parts of a job pass these settings to each other. They come from a node's settings or from a file. For Kafka's Java
client, with which Spark reads topics, they are translated.
"""

from __future__ import annotations

import json
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

from sidecar.pipeline.errors import PipelineError, UnreachableError, UsageError
from sidecar.security.broker_access import PLAIN_TCP, BrokerAccess, BrokerSettings, access_of
from sidecar.security.credentials import MECHANISMS, PasswordFile
from sidecar.security.errors import LoginError, TokenError
from sidecar.security.exchange import log_in
from sidecar.security.mechanisms import OAUTHBEARER, PLAIN
from sidecar.security.words import in_words

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROTOCOL: Final = "security.protocol"
MECHANISM: Final = "sasl.mechanism"
CHECK_HOST: Final = "ssl.endpoint.identification.algorithm"
PROVIDER: Final = "sasl.oauthbearer.token.provider"
"""The name of an installed entry point; librdkafka has no such setting."""
TEXTS: Final = {
    "sasl.username": "kafka_sasl_username",
    "sasl.password": "kafka_sasl_password",
    "sasl.oauthbearer.token.endpoint.url": "kafka_sasl_token_url",
    "sasl.oauthbearer.client.id": "kafka_sasl_client_id",
    "sasl.oauthbearer.client.secret": "kafka_sasl_client_secret",
    "sasl.oauthbearer.scope": "kafka_sasl_scope",
    PROVIDER: "kafka_sasl_token_provider",
    "ssl.ca.location": "kafka_ssl_ca",
    "ssl.certificate.location": "kafka_ssl_certificate",
    "ssl.key.location": "kafka_ssl_key",
    "ssl.key.password": "kafka_ssl_key_password",
}
OPTIONS: Final = (PROTOCOL, MECHANISM, CHECK_HOST, *TEXTS)
_PROTOCOLS: Final = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
_NEEDED: Final = {
    OAUTHBEARER: (
        "sasl.oauthbearer.token.endpoint.url",
        "sasl.oauthbearer.client.id",
        "sasl.oauthbearer.client.secret",
    )
}
_NAME_AND_PASSWORD: Final = ("sasl.username", "sasl.password")


class Security:
    """Checked settings of connections; without any, plain TCP."""

    def __init__(self, access: BrokerAccess = PLAIN_TCP) -> None:
        self._access = access

    @classmethod
    def of(cls, settings: Mapping[str, str]) -> Security:
        """Check the settings. Raises `PipelineError` for a setting that is unknown, missing or unsupported, and for a
        file that cannot be used.
        """
        unknown = sorted(set(settings) - set(OPTIONS))
        if unknown:
            raise PipelineError(f"unknown setting {unknown[0]}: there are {', '.join(OPTIONS)}")
        protocol = settings.get(PROTOCOL, "PLAINTEXT").upper()
        if protocol not in _PROTOCOLS:
            raise PipelineError(f"security.protocol {protocol!r}: it is one of {', '.join(_PROTOCOLS)}")
        tls, sasl = protocol.endswith("SSL"), protocol.startswith("SASL")
        for name in settings:
            if (name.startswith("sasl.") and not sasl) or (name.startswith("ssl.") and not tls):
                raise PipelineError(f"{name} has no meaning with security.protocol {protocol}")
        mechanism = settings.get(MECHANISM, PLAIN).upper()
        if mechanism not in MECHANISMS:
            raise PipelineError(f"sasl.mechanism {mechanism!r}: it is one of {', '.join(MECHANISMS)}")
        needed = () if PROVIDER in settings else _NEEDED.get(mechanism, _NAME_AND_PASSWORD)
        for name in needed if sasl else ():
            if not settings.get(name):
                raise PipelineError(f"security.protocol {protocol} with {mechanism} needs {name}")
        check = settings.get(CHECK_HOST, "https")
        if check not in ("https", "none"):
            raise PipelineError(f"{CHECK_HOST} {check!r}: it is https or none")
        as_settings: Any = SimpleNamespace(
            kafka_security_protocol=protocol,
            kafka_sasl_mechanism=mechanism,
            kafka_sasl_password_file=None,
            kafka_ssl_check_hostname=check == "https",
            **{field: settings.get(name) for name, field in TEXTS.items()},
        )
        try:
            return cls(access_of(as_settings))
        except ValueError as error:
            raise PipelineError(str(error)) from None

    def wrap(self, connected: socket.socket, host: str) -> socket.socket:
        """The socket to use after the TLS handshake, if any. Raises `UnreachableError` if the handshake fails,
        `PipelineError` for a certificate that is not the host's, or not trusted.
        """
        if self._access.tls is None:
            return connected
        try:
            return self._access.tls().wrap_socket(connected, server_hostname=host)
        except ssl.SSLCertVerificationError as error:
            raise PipelineError(f"{host}: {in_words(error)} (ssl.ca.location)") from None
        except OSError as error:
            raise UnreachableError(f"{host} lets nobody in: {in_words(error)}") from None

    def log_in(self, round_trip: Callable[[bytes], bytes], correlation_ids: Iterator[int], client_id: str) -> None:
        """Log in if the protocol requires it. Raises `PipelineError` if the login is refused."""
        if self._access.credentials is None:
            return
        try:
            log_in(round_trip, correlation_ids, client_id, self._access.credentials)
        except (LoginError, TokenError) as error:
            raise PipelineError(f"the login is refused: {error}") from None


_SERVERS: Final = "bootstrap.servers"
_MECHANISMS: Final = "sasl.mechanisms"
"""librdkafka's other name of `sasl.mechanism`, used in its own examples."""
_MODULES: Final = "org.apache.kafka.common.security"
_PKCS8: Final = ("-----BEGIN PRIVATE KEY-----", "-----BEGIN ENCRYPTED PRIVATE KEY-----")


def of_settings(settings: BrokerSettings) -> dict[str, str]:
    """The settings in `SIDECAR_KAFKA_…`. Raises `UsageError`."""
    protocol = settings.kafka_security_protocol
    if protocol == "PLAINTEXT":
        return {}
    found = {PROTOCOL: protocol}
    if protocol.startswith("SASL_"):
        found[MECHANISM] = settings.kafka_sasl_mechanism or PLAIN
    if protocol.endswith("SSL") and not settings.kafka_ssl_check_hostname:
        found[CHECK_HOST] = "none"
    found |= {name: value for name, field in TEXTS.items() if (value := getattr(settings, field)) is not None}
    if settings.kafka_sasl_password_file is not None:
        try:
            found["sasl.password"] = PasswordFile(Path(settings.kafka_sasl_password_file))()
        except TokenError as error:
            raise UsageError(f"SIDECAR_KAFKA_SASL_PASSWORD_FILE: {error}") from None
    return found


def of_file(path: Path) -> dict[str, str]:
    """The settings in a file of `name=value` lines with librdkafka's names, such as `app.conf` of `sidecar up
    --secure`. Raises `UsageError`, whose message contains no value.
    """
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"--client-config {path} cannot be read: {error}") from None
    found: dict[str, str] = {}
    for number, line in enumerate(map(str.strip, lines), start=1):
        if not line or line.startswith(("#", "!")):
            continue
        name, equals, value = (part.strip() for part in line.partition("="))
        name = MECHANISM if name == _MECHANISMS else name
        if name == _SERVERS:
            continue  # the commands have `--bootstrap` for it
        if not equals or name not in OPTIONS:
            known = ", ".join(OPTIONS)
            raise UsageError(f"--client-config {path}, line {number}: no setting=value of one of {known}")
        found[name] = value
    return found


def for_java(security: Mapping[str, str]) -> dict[str, str]:
    """The options of Spark's Kafka source with the same meaning for Kafka's Java client. Certificates and keys are read
    here, so executors need no files but the system's. Raises `PipelineError`.
    """
    Security.of(security)  # checked as for every other connection of the job
    protocol = security.get(PROTOCOL, "PLAINTEXT").upper()
    found: dict[str, str] = {}
    if protocol != "PLAINTEXT":
        found["kafka.security.protocol"] = protocol
    if protocol.endswith("SSL"):
        found |= _tls(security)
    if protocol.startswith("SASL"):
        found |= _login(security)
    return found


def of_spark(
    bootstrap: str, topic: str, spark: SparkSession, options: Mapping[str, str], **offsets: Mapping[int, int]
) -> dict[str, str]:
    """The options with which Spark's Kafka source reads all committed records of a topic, with their headers, and fails
    if some were deleted. `options`: further options; `offsets`: its options with an offset per partition.
    """
    return {
        **options,
        "kafka.bootstrap.servers": bootstrap,
        "subscribe": topic,
        "includeHeaders": "true",
        "failOnDataLoss": "true",
        "kafka.isolation.level": "read_committed",
        "minPartitions": str(spark.sparkContext.defaultParallelism),
        **{name: json.dumps({topic: by_partition(found)}) for name, found in offsets.items()},
    }


def by_partition(offsets: Mapping[int, int]) -> dict[str, int]:
    """Offsets with partitions as text, for JSON."""
    return {str(partition): offset for partition, offset in sorted(offsets.items())}


def _tls(security: Mapping[str, str]) -> dict[str, str]:
    found: dict[str, str] = {}
    if security.get(CHECK_HOST) == "none":
        found["kafka.ssl.endpoint.identification.algorithm"] = ""
    if (ca := security.get("ssl.ca.location")) is not None:
        found |= {"kafka.ssl.truststore.type": "PEM", "kafka.ssl.truststore.certificates": Path(ca).read_text()}
    if (certificate := security.get("ssl.certificate.location")) is not None:
        key = Path(security.get("ssl.key.location", certificate))
        text = key.read_text()
        if not any(mark in text for mark in _PKCS8):
            raise UsageError(
                f"Kafka's Java client, which Spark reads with, takes the key in {key} in PKCS#8 alone: openssl pkcs8"
                " -topk8 -in KEY -out NEW"
            )
        found |= {
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.keystore.certificate.chain": _blocks(Path(certificate).read_text(), "CERTIFICATE"),
            "kafka.ssl.keystore.key": _blocks(text, "PRIVATE KEY"),
        }
        if (password := security.get("ssl.key.password")) is not None:
            found["kafka.ssl.key.password"] = password
    return found


def _blocks(text: str, what: str) -> str:
    """The PEM blocks of one kind: a file may contain both certificate and key."""
    found: list[str] = []
    taken = False
    for line in text.splitlines():
        if line.startswith("-----BEGIN ") and line.rstrip("-").endswith(what):
            taken = True
        if taken:
            found.append(line)
        if line.startswith("-----END "):
            taken = False
    return "\n".join(found) + "\n"


def _login(security: Mapping[str, str]) -> dict[str, str]:
    mechanism = security.get(MECHANISM, PLAIN).upper()
    found = {"kafka.sasl.mechanism": mechanism}
    if mechanism != OAUTHBEARER:
        module = "plain.PlainLoginModule" if mechanism == PLAIN else "scram.ScramLoginModule"
        who = {"username": security["sasl.username"], "password": security["sasl.password"]}
        return found | {"kafka.sasl.jaas.config": _jaas(module, who)}
    if PROVIDER in security:
        raise UsageError(
            "Spark reads this with Kafka's Java client, which takes no tokens from SIDECAR_KAFKA_SASL_TOKEN_PROVIDER:"
            " give it a login of another kind by --client-config"
        )
    who = {
        "clientId": security["sasl.oauthbearer.client.id"],
        "clientSecret": security["sasl.oauthbearer.client.secret"],
    } | ({"scope": security["sasl.oauthbearer.scope"]} if "sasl.oauthbearer.scope" in security else {})
    return found | {
        "kafka.sasl.jaas.config": _jaas("oauthbearer.OAuthBearerLoginModule", who),
        "kafka.sasl.oauthbearer.token.endpoint.url": security["sasl.oauthbearer.token.endpoint.url"],
        "kafka.sasl.login.callback.handler.class": f"{_MODULES}.oauthbearer.OAuthBearerLoginCallbackHandler",
    }


def _jaas(module: str, options: Mapping[str, str]) -> str:
    quoted = " ".join(f'{name}="{_escaped(value)}"' for name, value in options.items())
    return f"{_MODULES}.{module} required {quoted};"


def _escaped(value: str) -> str:
    return value.replace("\\", "\\\\").replace('"', '\\"')
