"""Schemas of shadows, through a node, with Confluent's own client and serializers as applications use them."""

from __future__ import annotations

import json
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic  # pyright: ignore[reportPrivateImportUsage]
from confluent_kafka.schema_registry import Schema, SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from tests.certificates import certificate
from tests.conftest import StartNode, Unique
from tests.nodes import NodeProcess, running_node
from tests.registry import any_registry, running_registry
from tests.rest import Rest
from tests.services import Services
from tests.topics import create_topic
from tests.wait import wait_for

ORDER = json.dumps({"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]})
OTHER = json.dumps({"type": "record", "name": "Other", "fields": [{"name": "id", "type": "string"}]})


@pytest.fixture(scope="module")
def registry() -> Iterator[str]:
    with any_registry() as url:
        yield url


@pytest.fixture(scope="module")
def schema_node(services: Services, registry: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    directory: Path = tmp_path_factory.mktemp("schemas")
    settings = {"SCHEMA_REGISTRY_URL": registry}
    with running_node(directory, services.kafka_bootstrap, services.redis_url, **settings) as process:
        yield process


@pytest.fixture
def orders(services: Services) -> str:
    return create_topic(services.kafka_bootstrap, 1)


@pytest.fixture
def audit(schema_node: NodeProcess, orders: str, unique: Unique) -> str:
    """A shadow whose name begins with its source's."""
    name = f"{orders}-audit"
    status, answer = Rest(schema_node.admin_url).call("POST", f"/v1/topics/{orders}/shadows", {"name": name})
    assert status == 201, answer
    return name


@pytest.fixture
def client(schema_node: NodeProcess) -> Iterator[SchemaRegistryClient]:
    with SchemaRegistryClient({"url": f"{schema_node.admin_url}/schemas"}) as found:
        yield found


def told(error: pytest.ExceptionInfo[SchemaRegistryError]) -> tuple[int, int]:
    return error.value.http_status_code, error.value.error_code


def test_records_written_to_the_source_are_read_from_the_shadow_with_its_schema(
    schema_node: NodeProcess, client: SchemaRegistryClient, orders: str, audit: str, unique: Unique
) -> None:
    serializer: Any = AvroSerializer(client, ORDER)  # pyright: ignore[reportCallIssue]
    producer = Producer({"bootstrap.servers": schema_node.bootstrap, "log_level": 0})
    for number in range(3):
        producer.produce(orders, serializer({"id": number}, SerializationContext(orders, MessageField.VALUE)))
    assert producer.flush(30) == 0
    with SchemaRegistryClient({"url": f"{schema_node.admin_url}/schemas"}) as readers:
        deserializer: Any = AvroDeserializer(readers)  # pyright: ignore[reportCallIssue]
        reader = Consumer(
            {"bootstrap.servers": schema_node.bootstrap, "group.id": unique("g"), "auto.offset.reset": "earliest"}
        )
        reader.subscribe([audit])
        found: list[Any] = []
        while len(found) < 3:
            message = reader.poll(20)
            assert message is not None
            assert not message.error()
            found.append(deserializer(message.value(), SerializationContext(audit, MessageField.VALUE)))
        reader.close()
    assert found == [{"id": 0}, {"id": 1}, {"id": 2}]


def test_a_shadow_has_its_sources_schemas_under_its_own_name(
    client: SchemaRegistryClient, orders: str, audit: str
) -> None:
    number = client.register_schema(f"{orders}-value", Schema(ORDER, "AVRO"))
    for schema_of in (client.get_latest_version(f"{audit}-value"), client.get_version(f"{audit}-value", 1)):
        assert (schema_of.subject, schema_of.schema_id, schema_of.version) == (f"{audit}-value", number, 1)
        assert schema_of.schema is not None
        assert json.loads(schema_of.schema.schema_str or "") == json.loads(ORDER)
    assert client.get_versions(f"{audit}-value") == [1]
    looked_up = client.lookup_schema(f"{audit}-value", Schema(ORDER, "AVRO"))
    assert (looked_up.subject, looked_up.schema_id) == (f"{audit}-value", number)
    assert client.test_compatibility(f"{audit}-value", Schema(ORDER, "AVRO"))
    assert not client.test_compatibility(f"{audit}-value", Schema(OTHER, "AVRO"))
    subjects = client.get_subjects()
    assert {f"{orders}-value", f"{audit}-value"} <= set(subjects)
    assert len(subjects) == len(set(subjects))


def test_nobody_writes_to_the_subjects_of_a_shadow(
    client: SchemaRegistryClient, registry: str, orders: str, audit: str
) -> None:
    client.register_schema(f"{orders}-value", Schema(ORDER, "AVRO"))
    for write in (
        lambda: client.register_schema(f"{audit}-value", Schema(OTHER, "AVRO")),
        lambda: client.delete_subject(f"{audit}-value"),
        lambda: client.delete_version(f"{audit}-value", 1),
        lambda: client.set_compatibility(f"{audit}-value", "NONE"),
    ):
        with pytest.raises(SchemaRegistryError, match=f"is a shadow of {orders}.*write to {orders}-value") as refused:
            write()
        assert told(refused) == (403, 40301)
    with SchemaRegistryClient({"url": registry}) as direct:
        assert direct.get_versions(f"{orders}-value") == [1]
        assert f"{audit}-value" not in direct.get_subjects()
    client.set_compatibility(f"{orders}-value", "NONE")
    assert client.get_compatibility(f"{audit}-value") == "NONE"


def test_a_topic_with_a_longer_name_keeps_its_own_schemas(
    client: SchemaRegistryClient, services: Services, orders: str, audit: str
) -> None:
    """`orders-audit-value` is a topic of its own here, besides the shadow `orders-audit`."""
    client.register_schema(f"{orders}-value", Schema(ORDER, "AVRO"))
    longer = f"{audit}-values"
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema(f"{longer}-value", Schema(OTHER, "AVRO"))
    assert told(refused) == (403, 40301)
    admin = AdminClient({"bootstrap.servers": services.kafka_bootstrap, "log_level": 0})
    admin.create_topics([NewTopic(longer, 1, 1)])[longer].result(20)
    wait_for(lambda: longer in admin.list_topics(timeout=20).topics, "the topic", 20)
    number = client.register_schema(f"{longer}-value", Schema(OTHER, "AVRO"))
    assert client.get_latest_version(f"{longer}-value").schema_id == number
    assert client.get_latest_version(f"{audit}-value").schema_id != number


def test_a_closed_shadow_has_no_schemas(
    client: SchemaRegistryClient, services: Services, orders: str, audit: str
) -> None:
    client.register_schema(f"{orders}-value", Schema(ORDER, "AVRO"))
    admin = AdminClient({"bootstrap.servers": services.kafka_bootstrap, "log_level": 0})
    admin.delete_topics([orders])[orders].result(20)
    wait_for(lambda: orders not in admin.list_topics(timeout=20).topics, "the source to go", 20)
    with pytest.raises(SchemaRegistryError, match=f"{audit} is closed: {orders} was deleted") as gone:
        client.get_latest_version(f"{audit}-value")
    assert told(gone) == (404, 40401)
    admin.create_topics([NewTopic(orders, 1, 1)])[orders].result(20)
    wait_for(lambda: orders in admin.list_topics(timeout=20).topics, "another topic of its name", 20)
    with pytest.raises(SchemaRegistryError, match=f"{audit} is closed") as anew:
        client.get_latest_version(f"{audit}-value")
    assert told(anew) == (404, 40401)
    assert f"{audit}-value" not in client.get_subjects()
    assert f"{orders}-value" in client.get_subjects()


def test_a_registry_that_speaks_tls_is_asked_where_the_certificates_of_the_system_vouch_for_it(
    node_process: StartNode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    chain, key = certificate(tmp_path)
    (tmp_path / "server.pem").write_text(chain + key)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(tmp_path / "server.pem")
    with running_registry(context) as registry:
        stranger = node_process(SCHEMA_REGISTRY_URL=registry.url)
        with pytest.raises(urllib.error.HTTPError) as refused:
            urllib.request.urlopen(f"{stranger.admin_url}/schemas/subjects", timeout=30)
        assert refused.value.code == 502
        assert "certificate verify failed" in json.load(refused.value)["message"]
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        node = node_process(SCHEMA_REGISTRY_URL=registry.url)
        with urllib.request.urlopen(f"{node.admin_url}/schemas/subjects", timeout=30) as answer:
            assert json.load(answer) == []
