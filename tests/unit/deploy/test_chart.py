"""deploy/helm without Helm: its values and examples by the schema, and what they say. tests/slow/deploy renders it."""

from __future__ import annotations

import re
from typing import Any

import jsonschema_rs
import pytest
import yaml

from tests.unit.deploy.files import CHART, EXAMPLES, ROOT, load_json, load_yaml

RESOURCES = "strimzi-resources.yaml"
SCHEMA = load_json(CHART / "values.schema.json")
VALUES = sorted(path for path in EXAMPLES.glob("*.yaml") if path.name != RESOURCES)


def merged(base: Any, over: Any) -> Any:
    """As Helm lays one file of values on another: key by key, a list in place of a list."""
    if isinstance(base, dict) and isinstance(over, dict):
        return base | {key: merged(base.get(key), value) for key, value in over.items()}
    return over


@pytest.mark.parametrize("path", [CHART / "values.yaml", *VALUES], ids=lambda path: path.stem)
def test_values_follow_the_schema(path: Any):
    jsonschema_rs.validate(SCHEMA, merged(load_yaml(CHART / "values.yaml"), load_yaml(path)))


@pytest.mark.parametrize(
    "values",
    [
        {"redis": {"url": "redis://user:hush@redis:6379/0"}},
        {"redis": {"url": "redis://redis:6379/0?password=hush"}},
        {"redis": {"url": "rediss://redis:6379/0?ssl_ca_certs=/ca.crt&ssl_password=hush"}},
        {"settings": {"schema_registry_url": "https://user:hush@registry:8081"}},
        {"settings": {"admin_token": "hush"}},
        {"settings": {"kafka_sasl_password": "hush"}},
        {"settings": {"kafka_sasl_client_secret": "hush"}},
    ],
    ids=str,
)
def test_no_value_takes_a_password_that_the_config_map_would_show(values: Any):
    with pytest.raises(jsonschema_rs.ValidationError):
        jsonschema_rs.validate(SCHEMA, merged(load_yaml(CHART / "values.yaml"), values))


def test_urls_without_a_password_are_taken():
    urls = {
        "redis": {"url": "rediss://redis:6380/0?ssl_ca_certs=/etc/sidecar-redis/ca.crt"},
        "settings": {"schema_registry_url": "https://registry:8081/api"},
    }
    jsonschema_rs.validate(SCHEMA, merged(load_yaml(CHART / "values.yaml"), urls))


def test_every_value_has_a_default_that_shows_what_there_is():
    def missing(schema: dict[str, Any], values: dict[str, Any], at: str) -> list[str]:
        found: list[str] = []
        for name, each in schema.get("properties", {}).items():
            if name not in values:
                found.append(f"{at}{name}")
            elif each.get("properties") and isinstance(values[name], dict):
                found += missing(each, values[name], f"{at}{name}.")
        return found

    gone = missing(SCHEMA, load_yaml(CHART / "values.yaml"), "")

    assert [name for name in gone if not name.startswith("settings.")] == ["global"]


def acls() -> set[tuple[str, str, str, str]]:
    """What Strimzi grants the user of the nodes: resource, name, pattern, operation."""
    [user] = yaml.safe_load_all((EXAMPLES / RESOURCES).read_text(encoding="utf-8"))
    return {
        (each["resource"]["type"], each["resource"].get("name", ""), each["resource"].get("patternType", ""), operation)
        for each in user["spec"]["authorization"]["acls"]
        for operation in each["operations"]
    }


def test_strimzi_grants_the_nodes_what_the_page_says_and_no_more():
    page = (ROOT / "docs" / "operate" / "deploy.md").read_text(encoding="utf-8").partition("### ACLs of the node")[2]
    kinds = {"topic": "topic", "transactional-id": "transactionalId", "group": "group", "cluster": "cluster"}
    wanted: set[tuple[str, str, str, str]] = set()
    for options in re.findall(r"\| `(--operation [^`]*)` \|", page):
        [(kind, name)] = re.findall(r"--(topic|transactional-id|group|cluster)\b ?'?([\w.*]*)", options)
        pattern = "" if kind == "cluster" else "prefix" if "prefixed" in options else "literal"
        wanted |= {(kinds[kind], name, pattern, each) for each in re.findall(r"--operation (\w+)", options)}

    assert len(wanted) > 10
    assert acls() == wanted
