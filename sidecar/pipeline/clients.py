"""The settings of a job's connections in the words of others: of a node's settings, of a file, for Spark's own client.

`sidecar.pipeline.security` has librdkafka's words, which are the ones between the parts of a job. Spark reads topics
with Kafka's Java client, which has its own.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from sidecar.pipeline.errors import UsageError
from sidecar.pipeline.security import CHECK_HOST, MECHANISM, OPTIONS, PROTOCOL, PROVIDER, TEXTS, Security
from sidecar.security.credentials import PasswordFile
from sidecar.security.errors import TokenError
from sidecar.security.mechanisms import OAUTHBEARER, PLAIN

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyspark.sql import SparkSession

    from sidecar.security.broker_access import BrokerSettings

_SERVERS: Final = "bootstrap.servers"
_MECHANISMS: Final = "sasl.mechanisms"
"""librdkafka's other name of `sasl.mechanism`, which its own examples have."""
_MODULES: Final = "org.apache.kafka.common.security"
_PKCS8: Final = ("-----BEGIN PRIVATE KEY-----", "-----BEGIN ENCRYPTED PRIVATE KEY-----")


def of_settings(settings: BrokerSettings) -> dict[str, str]:
    """What `SIDECAR_KAFKA_…` says. Raises `UsageError`."""
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
    """What a file of `name=value` lines says, in librdkafka's names, as `sidecar up --secure` writes them (`app.conf`).
    Raises `UsageError`, without a value in it.
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
            continue  # the commands have `--bootstrap`
        if not equals or name not in OPTIONS:
            known = ", ".join(OPTIONS)
            raise UsageError(f"--client-config {path}, line {number}: no setting=value of one of {known}")
        found[name] = value
    return found


def for_java(security: Mapping[str, str]) -> dict[str, str]:
    """Options of Spark's Kafka source that say the same to Kafka's Java client. Certificates and keys are read here, so
    executors need no files but the system's. Raises `PipelineError`.
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
    """What Spark's Kafka source takes to read all committed records of a topic, with their headers, and to fail where
    some are gone. `options`: others of its own; `offsets`: its options of this kind, each by partition.
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
    """Offsets as JSON has them."""
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
    """The PEM blocks of one kind: certificate and key may stand in one file."""
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
