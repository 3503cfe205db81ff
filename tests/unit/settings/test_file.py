"""sidecar.toml as people write it: the example, the JSON schema for editors, and our own loader are of one mind."""

from __future__ import annotations

import json
import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from jsonschema_rs import Draft202012Validator

from sidecar.settings import SettingsError, resolve
from sidecar.settings.schema import Schema, json_schema, needs

DEPLOY = Path(__file__).parents[3] / "deploy"
EXAMPLE = (DEPLOY / "sidecar.toml").read_text(encoding="utf-8")
ALL_OF_IT = re.sub(r"^#(?=\w+ = )", "", EXAMPLE, flags=re.MULTILINE)
WRONG = [
    ("bootstrap_servers", ""),
    ("bootstrap_servers", []),
    ("bootstrap_servers", ["kafka"]),
    ("bootstrap_servers", "kafka:9092 redis:6379"),
    ("redis_url", "http://127.0.0.1:6379"),
    ("listen", "19092"),
    ("advertise", "sidecar"),
    ("listeners", "127.0.0.1:19092"),
    ("advertised_listeners", "INSIDE:19092"),
    ("listener_security_protocol_map", "INSIDE"),
    ("admin_listen", "127.0.0.1:"),
    ("node_id", -1),
    ("node_id", True),
    ("node_id", 2**31),
    ("cluster", "a.b"),
    ("lease_ms", 99),
    ("admin_url", "127.0.0.1:18080"),
    ("admin_token", "two words"),
    ("deduplication", "perhaps"),
    ("sequence_id_header", ""),
    ("schema_registry_url", "registry:8081"),
    ("log_level", "loud"),
    ("log_format", "xml"),
    ("no_such_setting", 1),
]
RIGHT = [
    ("bootstrap_servers", "a:1, b:2,"),
    ("bootstrap_servers", " ,[::1]:9092 ,, b:2"),
    ("bootstrap_servers", ["a:1", " b:2 "]),
    ("redis_url", "unix:///run/redis.sock"),
    ("redis_url", "rediss://user:password@redis:6379/3"),
    ("redis_url", "REDIS://redis:6379"),
    ("listen", "[::1]:0"),
    ("listeners", "plaintext://[::1]:0"),
    ("cluster", "a" * 64),
    ("linger_ms", 60_000),
    ("admin_url", "https://node:443/"),
    ("schema_registry_url", "https://me:secret@registry:8081/apis"),
    ("sequence_id_header", "\u00fc b"),
]


def load(path: Path, content: str) -> None:
    path.write_text(content, encoding="utf-8")
    resolve({}, path)


def written(name: str, value: object) -> str:
    return f"{name} = {json.dumps(value, ensure_ascii=False)}\n"


def is_valid(path: Path) -> bool:
    """What the published schema says of a file, as an editor would ask it."""
    schema = json.loads((DEPLOY / "sidecar.schema.json").read_text(encoding="utf-8"))
    return Draft202012Validator(schema).is_valid(tomllib.loads(path.read_text(encoding="utf-8")))


def test_the_example_has_every_setting_once_with_its_default():
    found = tomllib.loads(ALL_OF_IT)
    assert list(found) == list(Schema.model_fields)
    defaults = {name: each["default"] for name, each in json_schema()["properties"].items() if "default" in each}
    assert {name: found[name] for name in defaults} == defaults
    assert tomllib.loads(EXAMPLE) == {}, "all of it is commented out"
    said = " ".join(line[2:] for line in EXAMPLE.splitlines() if line.startswith("# "))
    assert [name for name, field in Schema.model_fields.items() if f"Takes {needs(field)}." not in said] == []


def test_an_editor_finds_the_schema_beside_the_example():
    first = EXAMPLE.splitlines()[0]
    assert json.loads((DEPLOY / first.removeprefix("#:schema ")).read_text(encoding="utf-8")) == json_schema()


def test_the_example_is_taken_with_everything_in_it_in_force_that_goes_together(tmp_path: Path):
    path = tmp_path / "sidecar.toml"
    secured = ALL_OF_IT.replace('kafka_security_protocol = "PLAINTEXT"', 'kafka_security_protocol = "SASL_SSL"')
    secured = secured.replace('\nsecurity_protocol = "PLAINTEXT"', '\nsecurity_protocol = "SSL"')
    for name in ("mechanisms", "users_file", "jwks_url", "audience", "issuer"):
        secured = secured.replace(f"\nsasl_{name}", f"\n# sasl_{name}")
    secured = secured.replace('ssl_client_auth = "none"', 'ssl_client_auth = "required"')
    secured = secured.replace("kafka_sasl_password_file", "# kafka_sasl_password_file")
    load(path, re.sub(r"^(listener|advertised_listeners)", r"# \1", secured, flags=re.MULTILINE))
    assert is_valid(path)
    secured = secured.replace("OUTSIDE:SASL_SSL", "OUTSIDE:SSL")
    load(path, re.sub(r"^(listen|advertise|security_protocol) ", r"# \1 ", secured, flags=re.MULTILINE))
    assert is_valid(path)
    assert is_valid(DEPLOY / "sidecar.toml")
    path.write_text(ALL_OF_IT.replace("lease_ms", "lese_ms", 1), encoding="utf-8")
    assert not is_valid(path)
    path.write_text(ALL_OF_IT.replace('log_level = "info"', 'log_level = "loud"'), encoding="utf-8")
    assert not is_valid(path)


@pytest.mark.parametrize(("name", "value"), WRONG)
def test_a_wrong_key_or_value_is_refused_by_the_loader_and_by_the_schema(tmp_path: Path, name: str, value: Any):
    assert not Draft202012Validator(json_schema()).is_valid({name: value})
    with pytest.raises(SettingsError, match=name.upper() if name in Schema.model_fields else name):
        load(tmp_path / "sidecar.toml", written(name, value))


@pytest.mark.parametrize(("name", "value"), RIGHT)
def test_a_right_value_is_taken_by_the_loader_and_by_the_schema(tmp_path: Path, name: str, value: Any):
    Draft202012Validator(json_schema()).validate({name: value})
    load(tmp_path / "sidecar.toml", written(name, value))


def test_a_setting_of_one_listener_is_checked_by_the_schema_as_that_of_all():
    schema = Draft202012Validator(json_schema())
    schema.validate({"listener_outside_ssl_client_auth": "required", "listener_in_side_sasl_mechanisms": "PLAIN"})
    assert not schema.is_valid({"listener_outside_ssl_client_auth": "always"})
    assert not schema.is_valid({"listener_outside_security_protocol": "SSL"})


@pytest.mark.parametrize(("wrong", "near"), [("lese_ms", "lease_ms"), ("Listen", "listen"), ("redis-url", "redis_url")])
def test_a_misspelt_key_is_told_with_the_nearest_one(tmp_path: Path, wrong: str, near: str):
    with pytest.raises(SettingsError, match=rf"{wrong} .*did you mean {near}\?"):
        load(tmp_path / "sidecar.toml", f"{wrong} = 1\n")


def test_the_schema_tells_of_every_setting_its_variable_its_meaning_and_its_bounds():
    for name, found in json_schema()["properties"].items():
        assert found["title"] == f"SIDECAR_{name.upper()}"
        assert str(Schema.model_fields[name].description) in found["description"]
        assert ("default" in found) != ("examples" in found), name
        kinds = [found, *found.get("anyOf", ())]
        bounds = {"pattern", "enum", "minimum", "items"}
        assert found.get("type") == "boolean" or any(bounds & each.keys() for each in kinds), name
