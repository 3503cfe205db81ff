"""Where settings come from and what is said about wrong ones."""

import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from sidecar.settings import Address, Settings, SettingsError, load, resolve
from sidecar.settings.loaded import LoadedSettings
from sidecar.settings.schema import Schema
from tests.unit.settings.conftest import Environment


def problems(flags: dict[str, Any] | None = None, config: Path | None = None) -> dict[str, str]:
    with pytest.raises(SettingsError) as caught:
        resolve(flags, config)
    return {problem.setting: str(problem) for problem in caught.value.problems}


def test_without_any_word_the_defaults_of_the_contract_hold():
    found = load()
    assert (found.listen, found.advertise) == (Address("127.0.0.1", 19092), Address("127.0.0.1", 19092))
    assert found.admin_listen == Address("127.0.0.1", 18080)
    assert found.admin_url == "http://127.0.0.1:18080"
    assert (found.node_id, found.cluster) == (1, "default")
    assert (found.lease_ms, found.reconnect_grace_ms, found.disconnect_grace_ms) == (3000, 5000, 0)
    assert (found.deduplication, found.linger_ms, found.admin_token) == (False, 0, None)
    assert (found.kafka_connect_timeout_ms, found.kafka_request_timeout_ms, found.redis_timeout_ms) == (
        3000,
        30000,
        1000,
    )
    assert found.max_request_bytes == 104_857_600


def test_a_shared_fetch_ends_by_default_before_the_shortest_session_of_a_group():
    """KafkaJS sends none of its heartbeats during one; brokers allow sessions of 6 s (group.min.session.timeout.ms)."""
    assert load().shared_fetch_max_wait_ms <= 6000 - 1000


def test_a_flag_beats_the_environment_beats_the_file_beats_the_default(environment: Environment):
    Path("sidecar.toml").write_text('node_id = 2\ncluster = "from-file"\nlinger_ms = 4\n')
    environment(NODE_ID="3", CLUSTER="from-environment")
    found = resolve({"node_id": "5", "cluster": None})
    assert (found.settings.node_id, found.settings.cluster, found.settings.linger_ms) == (5, "from-environment", 4)
    origins = {each.setting: each.origin for each in found.shown}
    assert origins["SIDECAR_NODE_ID"] == "flag"
    assert origins["SIDECAR_CLUSTER"] == "environment"
    assert origins["SIDECAR_LINGER_MS"] == "sidecar.toml"
    assert origins["SIDECAR_LEASE_MS"] == "default"


def test_one_file_is_read_the_one_asked_for_or_the_first_there_is(tmp_path: Path):
    etc = tmp_path / "etc" / "sidecar.toml"
    etc.parent.mkdir()
    etc.write_text("node_id = 7\nlinger_ms = 7\n")
    assert load().node_id == 7
    Path("sidecar.toml").write_text("node_id = 8\n")
    assert (load().node_id, load().linger_ms) == (8, 0)
    asked_for = tmp_path / "other.toml"
    asked_for.write_text("node_id = 9\n")
    assert load(config=asked_for).node_id == 9


def test_an_empty_variable_is_one_that_is_not_set(environment: Environment):
    environment(ADMIN_TOKEN="", NODE_ID="")
    assert (load().admin_token, load().node_id) == (None, 1)


@pytest.mark.parametrize("written", ['"kafka-1:9092, kafka-2:9093"', '["kafka-1:9092", "kafka-2:9093"]'])
def test_servers_are_a_list_or_a_text_with_commas(written: str):
    Path("sidecar.toml").write_text(f"bootstrap_servers = {written}\n")
    assert load().bootstrap_servers == (Address("kafka-1", 9092), Address("kafka-2", 9093))


def test_all_problems_are_told_at_once_with_name_origin_value_and_advice(environment: Environment):
    Path("sidecar.toml").write_text('lease_ms = 1\nlinger_ms = true\nqueue_limt = 3\n[tls]\ncert = "x"\n')
    environment(
        BOOTSTRAP_SERVERS="kafka-1:9092,kafka-2",
        REDIS_URL="http://redis",
        NODE_ID="one",
        CLUSTER="a.b",
        DEDUPLICATION="maybe",
        LOG_FORMAT="xml",
    )
    found = problems({"listen": "0.0.0.0:19092", "max_request_bytes": "12"})
    assert found.keys() == {
        "SIDECAR_LEASE_MS", "SIDECAR_LINGER_MS", "queue_limt", "tls", "SIDECAR_BOOTSTRAP_SERVERS",
        "SIDECAR_REDIS_URL", "SIDECAR_NODE_ID", "SIDECAR_CLUSTER", "SIDECAR_DEDUPLICATION", "SIDECAR_LOG_FORMAT",
        "SIDECAR_ADVERTISE", "SIDECAR_MAX_REQUEST_BYTES",
    }  # fmt: skip
    assert found["SIDECAR_NODE_ID"] == "SIDECAR_NODE_ID = one (environment): needs a whole number from 0 to 2147483647."
    assert "= 1 (sidecar.toml): needs a whole number of milliseconds from 100" in found["SIDECAR_LEASE_MS"]
    assert "= 12 (flag)" in found["SIDECAR_MAX_REQUEST_BYTES"]
    assert "did you mean queue_limit?" in found["queue_limt"]
    assert "is required, as SIDECAR_LISTEN is 0.0.0.0:19092" in found["SIDECAR_ADVERTISE"]
    assert "= kafka-2 (environment)" in found["SIDECAR_BOOTSTRAP_SERVERS"]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("advertise", "0.0.0.0:19092"),
        ("advertise", "127.0.0.1:0"),
        ("bootstrap_servers", ","),
        ("bootstrap_servers", "0.0.0.0:9092"),
        ("bootstrap_servers", "kafka:0"),
        ("redis_url", "redis://host/zero"),
        ("redis_url", "redis://:6379"),
        ("redis_url", "redis://host:99999"),
        ("redis_url", "localhost:6379"),
        ("admin_url", "127.0.0.1:18080"),
        ("schema_registry_url", "ftp://host"),
        ("schema_registry_url", "http://host?a=b"),
        ("schema_registry_url", "http://host/#a"),
        ("admin_listen", "127.0.0.1:19092"),
        ("admin_advertise", "0.0.0.0:18080"),
        ("admin_advertise", "127.0.0.1:0"),
        ("cluster", ""),
        ("cluster", "x_snapshots"),
        ("cluster", "x_events"),
        ("cluster", "a" * 65),
        ("node_id", "-1"),
        ("node_id", "2147483648"),
        ("log_level", "loud"),
    ],
)
def test_a_value_that_cannot_work_is_refused(name: str, value: str):
    assert problems({name: value}).keys() == {f"SIDECAR_{name.upper()}"}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("redis_url", "redis://host"),
        ("redis_url", "rediss://user:secret@host:6380/3"),
        ("redis_url", "unix:///run/redis.sock"),
        ("cluster", "with_under-score9"),
        ("node_id", "0"),
        ("listen", "127.0.0.1:0"),
        ("admin_listen", "[::1]:18080"),
        ("schema_registry_url", "https://registry:8081"),
        ("schema_registry_url", "http://user:secret@registry:8081/apis/ccompat/v7"),
    ],
)
def test_a_value_that_can_work_is_taken(name: str, value: str):
    assert str(getattr(load({name: value}), name)) == value


def test_a_wildcard_needs_an_address_to_advertise():
    assert problems({"listen": "[::]:19092"}).keys() == {"SIDECAR_ADVERTISE"}
    found = load({"listen": "[::]:19092", "advertise": "kafka.example:443"})
    assert found.advertise == Address("kafka.example", 443)


def test_any_free_port_is_advertised_as_such():
    found = load({"listen": "127.0.0.1:0", "admin_listen": "127.0.0.1:0"})
    assert found.advertise == Address("127.0.0.1", 0)


def test_other_nodes_are_told_an_admin_address_that_they_can_reach():
    assert load({"admin_listen": "10.0.0.1:1"}).admin_advertise == Address("10.0.0.1", 1)
    found = load({"listen": "0.0.0.0:19092", "advertise": "kafka.example:443", "admin_listen": "0.0.0.0:18080"})
    assert found.admin_advertise == Address("kafka.example", 18080)
    assert load({"admin_advertise": "sidecar-1:18080"}).admin_advertise == Address("sidecar-1", 18080)


@pytest.mark.parametrize("content", ["node_id = ", "\xff\xfe"])
def test_a_file_that_is_no_toml_is_told_beside_other_problems(environment: Environment, content: str):
    Path("sidecar.toml").write_bytes(content.encode("latin-1"))
    environment(NODE_ID="x")
    found = problems()
    assert "sidecar.toml): is not valid TOML" in found["file"]
    assert "SIDECAR_NODE_ID" in found


def test_a_file_that_was_asked_for_has_to_be_there(tmp_path: Path):
    assert "cannot be read" in problems(config=tmp_path / "missing.toml")["file"]


@pytest.mark.parametrize(
    "name", ["TLS_CERT", "KAFKA_SASL_KERBEROS", "KAFKA_SASL_PASSWORD", "KAFKA_SSL_CA", "KAFKA_SSL_CAFILE", "TLS"]
)
def test_who_asks_for_security_that_is_not_there_gets_no_node_without(environment: Environment, name: str):
    environment(**{name: "secret"})
    with pytest.raises(SettingsError) as refused:
        resolve()
    [problem] = refused.value.problems
    assert problem.setting == f"SIDECAR_{name}"
    assert "no such setting" in str(problem) or "is of no use" in str(problem)
    assert "secret" not in str(problem)


LOGIN = {"KAFKA_SECURITY_PROTOCOL": "SASL_SSL", "KAFKA_SASL_MECHANISM": "PLAIN"}


@pytest.mark.parametrize(
    ("given", "missing"),
    [
        ({"KAFKA_SECURITY_PROTOCOL": "SASL_PLAINTEXT"}, {"KAFKA_SASL_MECHANISM"}),
        (LOGIN, {"KAFKA_SASL_USERNAME", "KAFKA_SASL_PASSWORD"}),
        (
            {**LOGIN, "KAFKA_SASL_USERNAME": "a", "KAFKA_SASL_PASSWORD": "b", "KAFKA_SASL_PASSWORD_FILE": "c"},
            {"KAFKA_SASL_PASSWORD_FILE"},
        ),
        (
            {**LOGIN, "KAFKA_SASL_MECHANISM": "OAUTHBEARER", "KAFKA_SASL_CLIENT_ID": "a"},
            {"KAFKA_SASL_TOKEN_URL", "KAFKA_SASL_CLIENT_SECRET"},
        ),
        ({"KAFKA_SECURITY_PROTOCOL": "SSL", "KAFKA_SSL_KEY": "k"}, {"KAFKA_SSL_CERTIFICATE"}),
    ],
)
def test_what_a_login_at_brokers_misses_is_named(environment: Environment, given: dict[str, str], missing: set[str]):
    environment(**given)
    assert problems().keys() == {f"SIDECAR_{name}" for name in missing}


@pytest.mark.parametrize(
    ("given", "wrong"),
    [
        ({"SECURITY_PROTOCOL": "SSL"}, {"SSL_CERTIFICATE"}),
        ({"SSL_CERTIFICATE": "c", "SSL_KEY": "k"}, {"SSL_CERTIFICATE", "SSL_KEY"}),
        ({"SSL_CLIENT_AUTH": "required"}, {"SSL_CLIENT_AUTH"}),
        ({"SECURITY_PROTOCOL": "SSL", "SSL_CERTIFICATE": "c", "SSL_CLIENT_AUTH": "required"}, {"SSL_CA"}),
        ({"SECURITY_PROTOCOL": "SSL", "SSL_CERTIFICATE": "c", "SSL_CA": "a"}, {"SSL_CA"}),
        ({"SSL_PRINCIPAL_MAPPING_RULES": "RULE:("}, {"SSL_PRINCIPAL_MAPPING_RULES"}),
        ({"SECURITY_PROTOCOL": "TLS"}, {"SECURITY_PROTOCOL"}),
        ({"SECURITY_PROTOCOL": "SASL_PLAINTEXT"}, {"SASL_AUTHENTICATION"}),
        ({"SECURITY_PROTOCOL": "SASL_PLAINTEXT", "SASL_AUTHENTICATION": "file"}, {"SASL_USERS_FILE"}),
        ({"SECURITY_PROTOCOL": "SASL_PLAINTEXT", "SASL_AUTHENTICATION": "jwks"}, {"SASL_JWKS_URL"}),
        ({"SASL_AUTHENTICATION": "file", "SASL_USERS_FILE": "u"}, {"SASL_AUTHENTICATION", "SASL_USERS_FILE"}),
        ({"SASL_MECHANISMS": "GSSAPI"}, {"SASL_MECHANISMS"}),
    ],
)
def test_what_the_listeners_security_misses_is_named(environment: Environment, given: dict[str, str], wrong: set[str]):
    environment(**given)
    assert problems().keys() == {f"SIDECAR_{name}" for name in wrong}


def test_a_listener_with_tls_is_taken_and_its_password_is_not_shown(environment: Environment):
    environment(SECURITY_PROTOCOL="SSL", SSL_CERTIFICATE="c", SSL_KEY_PASSWORD="s3cret", SSL_CLIENT_AUTH="none")
    found = resolve()
    assert (found.settings.ssl_certificate, found.settings.ssl_key_password) == ("c", "s3cret")
    assert "s3cret" not in repr(found.settings) + repr(found.shown)


def test_a_login_at_brokers_is_taken_and_no_secret_of_it_is_shown(environment: Environment):
    environment(**LOGIN, KAFKA_SASL_USERNAME="node", KAFKA_SASL_PASSWORD="s3cret")
    found = resolve()
    assert found.settings.kafka_sasl_password == "s3cret"
    assert "s3cret" not in repr(found.settings) + repr(found.shown)


TOKENS = {
    "KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
    "KAFKA_SASL_MECHANISM": "OAUTHBEARER",
    "KAFKA_SASL_CLIENT_ID": "a",
    "KAFKA_SASL_CLIENT_SECRET": "b",
}


def test_the_url_of_a_token_endpoint_is_taken_as_it_is(environment: Environment):
    environment(**TOKENS, KAFKA_SASL_TOKEN_URL="https://login.example/token/")
    assert resolve().settings.kafka_sasl_token_url == "https://login.example/token/"


def test_the_url_of_a_token_endpoint_is_logged_and_must_hold_no_password(environment: Environment):
    environment(**TOKENS, KAFKA_SASL_TOKEN_URL="https://me:s3cret@login.example/token")
    found = problems()
    assert found.keys() == {"SIDECAR_KAFKA_SASL_TOKEN_URL"}
    assert "s3cret" not in str(found)


def test_a_variable_for_security_that_is_empty_asks_for_none(environment: Environment):
    environment(KAFKA_SASL_PASSWORD="")
    assert not resolve().warnings


def test_a_service_of_kubernetes_that_is_called_tls_asks_for_none(environment: Environment):
    environment(TLS_SERVICE_HOST="10.0.0.1", TLS_SERVICE_PORT="1", TLS_PORT="tcp://10.0.0.1:1", TLS_PORT_1_TCP="x")
    assert len(resolve().warnings) == 4


def test_unknown_variables_are_warnings_as_orchestrators_inject_some(environment: Environment):
    environment(SERVICE_HOST="10.0.0.1", QUEUE_LIMT="3", LOCAL_KAFKA_PORT="1", STATE_DIR="x")
    warnings = {warning.setting: warning.advice for warning in resolve().warnings}
    assert warnings.keys() == {"SIDECAR_SERVICE_HOST", "SIDECAR_QUEUE_LIMT"}
    assert "did you mean SIDECAR_QUEUE_LIMIT?" in warnings["SIDECAR_QUEUE_LIMT"]


def test_a_slow_redis_that_would_cost_the_lease_is_a_warning():
    warnings = resolve({"lease_ms": 1000, "redis_timeout_ms": 1000}).warnings
    assert [warning.setting for warning in warnings] == ["SIDECAR_REDIS_TIMEOUT_MS"]


def test_secrets_are_never_shown(environment: Environment):
    registry = "http://user:hush-hush@host:8081"
    environment(ADMIN_TOKEN="hush-hush", REDIS_URL="redis://user:hush-hush@host:6379/0", SCHEMA_REGISTRY_URL=registry)
    found = resolve()
    assert found.settings.admin_token == "hush-hush"
    assert "hush-hush" not in repr(found) + str(found.settings)
    assert {each.setting: each.value for each in found.shown}["SIDECAR_REDIS_URL"] == "redis://user:***@host:6379/0"
    environment(ADMIN_TOKEN="hush hush", REDIS_URL="http://user:hush-hush@host")
    assert not any("hush" in text.lower() for text in problems().values())


@pytest.mark.parametrize(
    ("url", "shown"),
    [
        ("unix:///run/redis.sock?db=1&password=hush", "unix:///run/redis.sock?db=1&password=***"),
        ("rediss://host:1/0?ssl_password=hush&db=1", "rediss://host:1/0?ssl_password=***&db=1"),
        ("redis://:hush@host:6379/0", "redis://:***@host:6379/0"),
        ("redis://user:hu@sh@host", "redis://user:***@host"),
        ("redis://user@host", "redis://user@host"),
        ("redis://host:6379/0", "redis://host:6379/0"),
    ],
)
def test_passwords_are_masked_wherever_they_stand_in_a_url(environment: Environment, url: str, shown: str):
    environment(REDIS_URL=url)
    assert {each.setting: each.value for each in resolve().shown}["SIDECAR_REDIS_URL"] == shown


@pytest.mark.parametrize("url", ["redis://:hush@[bad", "redis://:hu/sh@host:1", "hush:hush@host"])
def test_what_is_no_url_is_told_without_its_password(environment: Environment, url: str):
    environment(REDIS_URL=url)
    assert "sh" not in problems()["SIDECAR_REDIS_URL"].partition("(")[0]


@pytest.mark.parametrize(
    ("name", "url"),
    [
        ("REDIS_URL", "redis://me/x:hush@host/0"),
        *(("REDIS_URL", f"redis://me:hush{mark}x@host:6379/0") for mark in "/#?"),
        *(("SCHEMA_REGISTRY_URL", f"http://me:hush{mark}x@host:8081") for mark in "/#?"),
    ],
)
def test_no_piece_of_a_password_that_is_not_escaped_is_told(environment: Environment, name: str, url: str):
    environment(**{name: url})
    assert "hush" not in problems()[f"SIDECAR_{name}"]


def test_settings_survive_the_way_into_another_process():
    found = resolve({"bootstrap_servers": "a:1,b:2", "admin_token": "t", "listen": "[::1]:5"})
    assert LoadedSettings.from_json(found.to_json()) == found


def test_each_worker_has_a_node_id_and_ports_of_its_own():
    found = load({"advertise": "example:9000", "admin_advertise": "example:80"}).for_worker(2)
    assert (found.node_id, found.listen.port, found.advertise, found.admin_listen.port, found.admin_advertise) == (
        3, 19094, Address("example", 9002), 18082, Address("example", 82),
    )  # fmt: skip


def test_the_schema_and_the_settings_have_the_same_fields():
    assert {*Schema.model_fields} == {each.name for each in fields(Settings)} - {"listener_settings"}


def test_a_node_needs_no_pydantic_for_its_settings():
    code = (
        "import sys; from sidecar.settings.loaded import LoadedSettings; LoadedSettings.from_json(sys.stdin.read());"
        "print([m for m in sys.modules if m.startswith('pydantic')])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], input=resolve().to_json(), capture_output=True, text=True, check=True,
        cwd=Path(__file__).parents[3],
    )  # fmt: skip
    assert done.stdout.strip() == "[]"


def test_the_schema_for_editors_accepts_a_right_file_and_refuses_a_wrong_one():
    import jsonschema_rs  # noqa: PLC0415

    from sidecar.settings.schema import json_schema  # noqa: PLC0415

    schema = json_schema()
    jsonschema_rs.meta.validate(schema)
    validator = jsonschema_rs.Draft202012Validator(schema)
    right = {"bootstrap_servers": ["a:1"], "listen": "127.0.0.1:1", "deduplication": True, "lease_ms": 500}
    assert validator.is_valid(right)
    defaults = {name: each["default"] for name, each in schema["properties"].items() if "default" in each}
    assert validator.is_valid(defaults)
    assert None not in defaults.values()
    assert not validator.is_valid({"lease_ms": 1})
    assert not validator.is_valid({"lese_ms": 500})
    assert all(each.get("description") for each in schema["properties"].values())
