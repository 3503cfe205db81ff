"""Settings of connections in the words of others: a node's settings, a file, Kafka's Java client."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from sidecar.pipeline.errors import PipelineError, UsageError
from sidecar.pipeline.security import OPTIONS, Security, for_java, of_file, of_settings
from sidecar.settings import load
from tests.certificates import Authority

SCRAM = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "SCRAM-SHA-512"}
LOGIN = {**SCRAM, "sasl.username": "sidecar", "sasl.password": 'a "b\\c'}


def test_a_node_without_security_needs_none():
    assert of_settings(load()) == {}
    assert for_java({}) == {}


def test_what_a_node_is_told_is_what_jobs_connect_with(tmp_path: Path):
    authority = Authority(tmp_path)
    certificate, key = authority.issue("node")
    password = tmp_path / "password"
    password.write_text("hush\n")
    settings = replace(
        load(),
        kafka_security_protocol="SASL_SSL",
        kafka_ssl_ca=str(authority.ca),
        kafka_ssl_certificate=str(certificate),
        kafka_ssl_key=str(key),
        kafka_ssl_check_hostname=False,
        kafka_sasl_mechanism="SCRAM-SHA-512",
        kafka_sasl_username="sidecar",
        kafka_sasl_password_file=str(password),
    )
    found = of_settings(settings)
    assert found == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "sidecar",
        "sasl.password": "hush",
        "ssl.ca.location": str(authority.ca),
        "ssl.certificate.location": str(certificate),
        "ssl.key.location": str(key),
        "ssl.endpoint.identification.algorithm": "none",
    }
    assert found.keys() <= set(OPTIONS)
    Security.of(found)


def test_a_password_file_that_is_not_there_is_named():
    settings = replace(
        load(),
        kafka_security_protocol="SASL_PLAINTEXT",
        kafka_sasl_mechanism="PLAIN",
        kafka_sasl_username="sidecar",
        kafka_sasl_password_file="missing",
    )
    with pytest.raises(UsageError, match=r"SIDECAR_KAFKA_SASL_PASSWORD_FILE.*missing"):
        of_settings(settings)


def test_java_is_told_the_login_in_quotes():
    assert for_java(LOGIN) == {
        "kafka.security.protocol": "SASL_PLAINTEXT",
        "kafka.sasl.mechanism": "SCRAM-SHA-512",
        "kafka.sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required"
        ' username="sidecar" password="a \\"b\\\\c";',
    }


def test_java_is_told_certificates_and_keys_themselves(tmp_path: Path):
    authority = Authority(tmp_path)
    certificate, key = authority.issue("job")
    both = tmp_path / "both.pem"
    both.write_text(key.read_text() + certificate.read_text())
    for where in (
        {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key)},
        {"ssl.certificate.location": str(both)},
    ):
        found = for_java({"security.protocol": "SSL", "ssl.ca.location": str(authority.ca), **where})
        assert found == {
            "kafka.security.protocol": "SSL",
            "kafka.ssl.truststore.type": "PEM",
            "kafka.ssl.truststore.certificates": authority.ca.read_text(),
            "kafka.ssl.keystore.type": "PEM",
            "kafka.ssl.keystore.certificate.chain": certificate.read_text(),
            "kafka.ssl.keystore.key": key.read_text(),
        }


def test_a_key_that_java_cannot_read_is_said_so_beforehand(tmp_path: Path):
    from cryptography.hazmat.primitives import serialization as form  # noqa: PLC0415

    certificate, key = Authority(tmp_path).issue("job")
    loaded = form.load_pem_private_key(key.read_bytes(), None)
    key.write_bytes(loaded.private_bytes(form.Encoding.PEM, form.PrivateFormat.TraditionalOpenSSL, form.NoEncryption()))
    wanted = {"ssl.certificate.location": str(certificate), "ssl.key.location": str(key)}
    with pytest.raises(UsageError, match="PKCS#8"):
        for_java({"security.protocol": "SSL", **wanted})


def test_java_takes_no_tokens_of_a_provider_of_ours():
    wanted = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "OAUTHBEARER"}
    with pytest.raises(PipelineError, match="token provider"):
        for_java({**wanted, "sasl.oauthbearer.token.provider": "nowhere"})


def test_a_file_has_a_setting_in_each_line(tmp_path: Path):
    path = tmp_path / "client.properties"
    path.write_text("# a comment\n\n security.protocol = SASL_PLAINTEXT\nsasl.username=a=b\nsasl.password= x y \n")
    assert of_file(path) == {"security.protocol": "SASL_PLAINTEXT", "sasl.username": "a=b", "sasl.password": "x y"}


def test_a_file_that_librdkafka_takes_is_taken(tmp_path: Path):
    path = tmp_path / "app.conf"
    path.write_text("bootstrap.servers=a:9092\nsecurity.protocol=SASL_SSL\nsasl.mechanisms=PLAIN\n")
    assert of_file(path) == {"security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN"}


@pytest.mark.parametrize("line", ["hunter2", "sasl.passwort=hunter2", "=hunter2"])
def test_a_line_that_is_no_setting_is_named_by_its_number_alone(tmp_path: Path, line: str):
    path = tmp_path / "client.properties"
    path.write_text(f"security.protocol=SSL\n{line}\n")
    with pytest.raises(UsageError, match="line 2") as error:
        of_file(path)
    assert "hunter2" not in str(error.value)
