"""`sidecar up --secure`: a node's settings, its file, users as Kafka takes them, what is printed."""

from __future__ import annotations

import hashlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import click
import pytest
from click.testing import CliRunner

from sidecar.cli.output import CommandError, Exit
from sidecar.cli.secured import (
    _SetPasswords,
    examples,
    facts,
    may_everything,
    may_use,
    node_settings,
    write_for_people,
    write_settings,
)
from sidecar.cli.up import up
from sidecar.local.secured import Secrets
from sidecar.protocol.errors import KafkaError
from sidecar.security.acls import Operation, PatternType, ResourceType
from sidecar.security.scram import Hash, stored_keys
from sidecar.settings import load

NAMES = ("sidecar.password", "admin.password", "app.password", "redis.password", "admin.token", "read.token")


@pytest.fixture(autouse=True)
def nowhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)  # a sidecar.toml where the tests run must not count


@pytest.fixture
def secrets(tmp_path: Path) -> Secrets:
    return Secrets(tmp_path / "state" / "secured")


def written(secrets: Secrets, config: Path | None = None, **said: str) -> Path:
    stack: Any = SimpleNamespace(secrets=secrets)
    endpoints: Any = SimpleNamespace(kafka="127.0.0.1:29092", redis="redis://127.0.0.1:26379/0")
    return write_settings(stack, endpoints, config, {**node_settings(secrets.directory.parent), **said})


def test_the_file_is_one_that_a_node_takes(secrets: Secrets) -> None:
    told = load({}, written(secrets, listen="127.0.0.1:19099"))
    assert (str(told.listen), told.security_protocol) == ("127.0.0.1:19099", "SASL_SSL")
    assert (told.kafka_security_protocol, told.kafka_sasl_username) == ("SASL_SSL", "sidecar")
    assert told.redis_url == f"redis://sidecar:{secrets.text('redis.password')}@127.0.0.1:26379/0"
    assert (told.admin_token, told.admin_read_token) == (secrets.text("admin.token"), secrets.text("read.token"))
    assert told.admin_ssl_certificate == told.ssl_certificate == str(secrets.certificate("sidecar"))
    assert told.kafka_ssl_ca == told.admin_client_ssl_ca == str(secrets.ca)
    assert told.kafka_sasl_password_file == str(secrets.file("sidecar.password"))


def test_what_the_persons_own_file_says_stays_but_for_what_secures_the_node(secrets: Secrets, tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('queue_limit = 7\ncluster = "mine"\nsecurity_protocol = "PLAINTEXT"\ngovern_by_client_id = false\n')
    told = load({}, written(secrets, own))
    assert (told.queue_limit, told.cluster, told.govern_by_client_id) == (7, "mine", False)
    assert told.security_protocol == "SASL_SSL"


def test_settings_that_do_not_fit_are_told_before_anything_starts(tmp_path: Path) -> None:
    own = tmp_path / "own.toml"
    own.write_text('listeners = "OUTSIDE://127.0.0.1:19192"\nlistener_security_protocol_map = "OUTSIDE:PLAINTEXT"\n')
    arguments = ["--secure", "--config", str(own), "--state-dir", str(tmp_path / "state")]
    error = CliRunner().invoke(up, arguments, standalone_mode=False).exception
    assert isinstance(error, CommandError)
    assert error.exit_code == Exit.USAGE
    assert "SIDECAR_LISTENERS says it for each listener" in error.message
    assert "--secure sets TLS and logins itself" in (error.remedy or "")
    assert not (tmp_path / "state").exists()


def test_what_is_printed_names_files_that_are_there_and_no_secret(secrets: Secrets) -> None:
    written(secrets)
    write_for_people(secrets, "127.0.0.1:19092")
    shown = examples(secrets, "127.0.0.1:19092", "https://127.0.0.1:18080", "sidecar")
    told = facts(secrets)
    text = click.unstyle("\n".join([*shown, *told.values()]))
    assert [name for name in NAMES if secrets.text(name) in text] == []
    named = {word.strip('"()') for line in shown for word in line.split() if str(secrets.directory) in word}
    files = [word[word.index(str(secrets.directory)) :].rstrip('")') for word in named]
    assert len(files) >= 4
    assert [file for file in files if not Path(file).is_file()] == []
    for name in ("ca.pem", "admin.token", "read.token", "app.properties", "admin.conf"):
        assert name in text
        assert (secrets.directory / name).is_file()


def test_kafka_gets_what_scram_keeps_of_a_password() -> None:
    request = _SetPasswords({"app": "secret"})
    assert "secret" not in repr(request)
    (upsertion,) = request.asked()["upsertions"]
    assert (upsertion["name"], upsertion["mechanism"], upsertion["iterations"]) == ("app", 2, 4096)
    kept = stored_keys(Hash.SCRAM_SHA_512, "secret", upsertion["salt"], upsertion["iterations"])
    client_key = Hash.SCRAM_SHA_512.hmac(upsertion["salted_password"], b"Client Key")
    assert hashlib.sha512(client_key).digest() == kept.stored_key
    with pytest.raises(KafkaError, match="the password of app"):
        request.answered({"results": [{"user": "app", "error_code": 31, "error_message": "no"}]})


def test_an_application_may_use_what_begins_with_its_prefix_and_change_no_cluster() -> None:
    granted = {
        (each.resource_type, each.resource_name, each.pattern_type, each.operation) for each in may_use("app", "app-")
    }
    assert {each[1:3] for each in granted} == {("app-", PatternType.PREFIXED)}
    assert {each[0] for each in granted} == {ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID}
    assert (ResourceType.TOPIC, "app-", PatternType.PREFIXED, Operation.WRITE) in granted
    assert {each[3] for each in granted}.isdisjoint({Operation.ALL, Operation.ALTER, Operation.DELETE})
    assert {each.principal for each in may_everything("admin")} == {"User:admin"}
