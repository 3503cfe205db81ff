"""The ACLs that docs/operate/deploy.md lists let a node do everything: each rule of its table is set, and no other."""

# pyright: reportPrivateImportUsage=false

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AclBinding, AclOperation, AclPermissionType, ResourcePatternType, ResourceType

from tests.conftest import StartNode
from tests.kafka.security.secured import HOST, PASSWORD, Secured
from tests.kafka.security.test_limits import metric
from tests.rest import Rest, govern
from tests.services import Services
from tests.wait import wait_for

PAGE = Path(__file__).parents[3] / "docs" / "operate" / "deploy.md"
USER = "permitted"
KINDS = {
    "--topic": ResourceType.TOPIC,
    "--group": ResourceType.GROUP,
    "--transactional-id": ResourceType.TRANSACTIONAL_ID,
    "--cluster": ResourceType.BROKER,
}
OPERATIONS = {
    "Alter": AclOperation.ALTER,
    "AlterConfigs": AclOperation.ALTER_CONFIGS,
    "ClusterAction": AclOperation.CLUSTER_ACTION,
    "Create": AclOperation.CREATE,
    "Delete": AclOperation.DELETE,
    "Describe": AclOperation.DESCRIBE,
    "DescribeConfigs": AclOperation.DESCRIBE_CONFIGS,
    "Read": AclOperation.READ,
    "Write": AclOperation.WRITE,
}


def rules(options: str) -> list[AclBinding]:
    """What `kafka-acls.sh --add` makes of such options."""
    [(kind, name)] = re.findall(r"(--topic|--group|--transactional-id|--cluster)(?: '?([^' ]+)'?)?", options)
    prefixed = "--resource-pattern-type prefixed" in options
    pattern = ResourcePatternType.PREFIXED if prefixed else ResourcePatternType.LITERAL
    return [
        AclBinding(
            KINDS[kind],
            name or "kafka-cluster",
            pattern,
            f"User:{USER}",
            "*",
            OPERATIONS[operation],
            AclPermissionType.ALLOW,
        )
        for operation in re.findall(r"--operation (\w+)", options)
    ]


def permit(secured: Secured) -> None:
    rows = re.findall(r"^\|.*\| `(--operation .*)` \|$", PAGE.read_text(), re.MULTILINE)
    assert len(rows) == 10
    for made in secured.admin.create_acls([rule for row in rows for rule in rules(row)]).values():
        made.result(30)


def produce(bootstrap: str, topic: str, count: int, **settings: str) -> list[str]:
    """Errors of records that were not delivered."""
    errors: list[str] = []
    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "log_level": 0, **settings})
    if "transactional.id" in settings:
        producer.init_transactions(30)
        producer.begin_transaction()
    for number in range(count):
        producer.produce(
            topic,
            str(number),
            headers=[("sidecar-sequence-id", str(number).encode()), ("sidecar-producer-name", b"writer")],
            on_delivery=lambda error, _: errors.append(str(error)) if error is not None else None,
        )
    assert producer.flush(60) == 0
    if "transactional.id" in settings:
        producer.commit_transaction(30)
    return errors


def read(bootstrap: str, topic: str, count: int, group: str) -> list[bytes | None]:
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "log_level": 0}
    )
    consumer.subscribe([topic])
    found: list[bytes | None] = []

    def all_there() -> bool:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            found.append(message.value())
        return len(found) == count

    try:
        wait_for(all_there, "the records", 60)
        consumer.commit(asynchronous=False)
        return found
    finally:
        consumer.close()


def test_the_permissions_of_the_page_are_enough_for_everything_that_a_node_does(
    secured: Secured, services: Services, node_process: StartNode, unique: Callable[[str], str]
) -> None:
    governed, plain, shadow = unique("governed"), unique("plain"), unique("shadow")
    secured.topics(governed, plain)
    secured.scram_user(USER, "SCRAM-SHA-256")
    permit(secured)
    node = node_process(
        kafka=f"{HOST}:{secured.ports['SASL_SSL']}",
        redis=services.redis_url,
        KAFKA_SECURITY_PROTOCOL="SASL_SSL",
        KAFKA_SSL_CA=str(secured.authority.ca),
        KAFKA_SASL_MECHANISM="SCRAM-SHA-256",
        KAFKA_SASL_USERNAME=USER,
        KAFKA_SASL_PASSWORD=PASSWORD,
    )
    rest = Rest(node.admin_url)
    try:
        wait_for(lambda: rest.call("GET", f"/v1/topics/{governed}")[0] == 200, "the topic to be known", 30)
        govern(rest, governed)
        status, answer = rest.call("PUT", f"/v1/topics/{governed}/policy", {"deduplication": True})
        assert status == 200, answer
        assert produce(node.bootstrap, governed, 3) == []
        assert produce(node.bootstrap, governed, 3, **{"client.id": "second"}) == []  # a takeover
        assert produce(node.bootstrap, plain, 2, **{"transactional.id": unique("clients")}) == []
        status, answer = rest.call("POST", f"/v1/topics/{plain}/shadows", {"name": shadow})
        assert status == 201, answer
        assert read(node.bootstrap, shadow, 2, unique("group")) == [b"0", b"1"]
        assert rest.call("DELETE", f"/v1/topics/{plain}/shadows/{shadow}")[0] == 204
        assert metric(node, "sidecar_client_quotas_readable") == 1
    finally:
        secured.forget_acls()
