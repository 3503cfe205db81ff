"""kafka-python: KafkaAdminClient, for what operators do: records, replicas, rules, credentials, transactions."""

from __future__ import annotations

from kafka import TopicPartition
from kafka.admin import (
    ACL,
    ACLFilter,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    OffsetSpec,
    ResourcePattern,
    ResourcePatternFilter,
    ResourceType,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from kafka.errors import NoError, SecurityDisabledError

from .. import records
from ..runtime import Cell, check, same, until
from .kit import admin, create_topic, producer, read_to_end, scenarios, send, write
from .transactions import transactional


@scenarios("list-offsets")
def list_offsets(cell: Cell) -> None:
    topic = create_topic(cell)
    place, days = TopicPartition(topic, 0), records.dated()
    write(cell, topic, days)
    with admin(cell) as client:
        for spec, expected in (
            (OffsetSpec.EARLIEST, 0),
            (OffsetSpec.LATEST, 5),
            (days[3].timestamp or 0, 3),
            (OffsetSpec.MAX_TIMESTAMP, 4),
        ):
            same(client.list_partition_offsets({place: spec})[place].offset, expected, f"offset for {spec}")


@scenarios("delete-records")
def delete_records(cell: Cell) -> None:
    topic = create_topic(cell, partitions=2)
    write(cell, topic, [*records.numbered(5, partition=0), *records.numbered(5, partition=1)])
    with admin(cell) as client:
        done = client.delete_records({TopicPartition(topic, 0): 3, TopicPartition(topic, 1): -1})
    same({place.partition: one["low_watermark"] for place, one in done.items()}, {0: 3, 1: 5}, "low watermarks")
    read = read_to_end(cell, topic, partitions=[0, 1])
    same([(one.partition, one.offset) for one in read], [(0, 3), (0, 4)], "records left")


@scenarios("log-dirs")
def log_dirs(cell: Cell) -> str:
    topic = create_topic(cell, partitions=2)
    write(cell, topic, records.numbered(5, partition=0))
    with admin(cell) as client:
        nodes = {broker["broker_id"] for broker in client.describe_cluster()["brokers"]}
        found = client.describe_log_dirs({topic: [0, 1]})
    same({one["broker"] for one in found}, nodes, "nodes that answered")
    same({folder["error_code"] for one in found for folder in one["log_dirs"]}, {0}, "error codes")
    sizes = {
        partition["partition_index"]: partition["partition_size"]
        for one in found
        for folder in one["log_dirs"]
        for entry in folder["topics"]
        for partition in entry["partitions"]
    }
    same(sorted(sizes), [0, 1], "partitions found")
    check(sizes[0] > 0 and sizes[1] == 0, f"sizes {sizes}")
    return f"{len(nodes)} node(s)"


@scenarios("elect-leaders")
def elect_leaders(cell: Cell) -> None:
    topic = create_topic(cell, partitions=2)
    with admin(cell) as client:
        answer = client.elect_leaders(0, {topic: [0, 1]})
    codes = {
        one.partition_id: one.error_code
        for result in answer.replica_election_results
        for one in result.partition_result
    }
    same(codes, {0: 84, 1: 84}, "error codes (84: no election needed)")


@scenarios("reassignments")
def reassignments(cell: Cell) -> None:
    topic = create_topic(cell, partitions=2)
    with admin(cell) as client:
        same(client.list_partition_reassignments({topic: [0, 1]}), {}, "reassignments of the topic")
        check(TopicPartition(topic, 0) not in client.list_partition_reassignments(), "the topic is being reassigned")


@scenarios("acls")
def acls(cell: Cell) -> str:
    def rule(kind: ResourceType, pattern: ACLResourcePatternType) -> ACL:
        resource = ResourcePattern(kind, cell.name(), pattern)
        return ACL("User:alice", "*", ACLOperation.READ, ACLPermissionType.ALLOW, resource)

    rules = {
        rule(ResourceType.TOPIC, ACLResourcePatternType.PREFIXED),
        rule(ResourceType.GROUP, ACLResourcePatternType.LITERAL),
    }
    resources = ResourcePatternFilter(ResourceType.ANY, cell.name(), ACLResourcePatternType.ANY)
    any_rule = ACLFilter("User:alice", None, ACLOperation.ANY, ACLPermissionType.ANY, resources)
    with admin(cell) as client:
        refused = client.create_acls(list(rules))["failed"]
        if not cell.secured:
            same(refused, [SecurityDisabledError, SecurityDisabledError], "errors")
            return "security is disabled"
        same(refused, [], "rules not created")
        until("both are described", lambda: set(client.describe_acls(any_rule)[0]) == rules)
        [(_, deleted, error)] = client.delete_acls([any_rule])
        same((set(deleted), error), (rules, NoError), "rules deleted")
        until("none is left", lambda: not client.describe_acls(any_rule)[0])
    return ""


@scenarios("scram")
def scram(cell: Cell) -> None:
    user, kind = cell.name("user"), ScramMechanism.SCRAM_SHA_512
    with admin(cell) as client:
        upsert = UserScramCredentialUpsertion(user, kind, "secret", iterations=8192)
        same(client.alter_user_scram_credentials([upsert]), {user: None}, "result of adding")
        until("the credential", lambda: client.describe_user_scram_credentials([user])[user]["credential_infos"])
        described = client.describe_user_scram_credentials([user])[user]
        same(described["credential_infos"], [{"mechanism": kind, "iterations": 8192}], "credentials")
        same(
            client.alter_user_scram_credentials([UserScramCredentialDeletion(user, kind)]),
            {user: None},
            "result of deleting",
        )
        until("none is left", lambda: client.describe_user_scram_credentials([user])[user]["error"])


@scenarios("producers")
def producers(cell: Cell) -> None:
    topic = create_topic(cell)
    place = TopicPartition(topic, 0)
    with producer(cell) as writing, admin(cell) as client:
        for _ in range(3):
            send(writing, topic, records.numbered(2, partition=0))
        [state] = client.describe_producers([place])[place].active_producers
    same((state.producer_epoch, state.last_sequence), (0, 5), "epoch and last sequence")
    check(state.producer_id >= 0, "no producer id")


@scenarios("transactions")
def transactions(cell: Cell) -> None:
    topic, name = create_topic(cell), cell.name("txn")
    with transactional(cell) as writing, admin(cell) as client:
        writing.begin_transaction()
        send(writing, topic, records.numbered(2, partition=0))
        listed = [one for found in client.list_transactions().values() for one in found if one.transactional_id == name]
        same([one.state.value for one in listed], ["Ongoing"], "states listed")
        described = client.describe_transactions([name])[name]
        same(described.state.value, "Ongoing", "state described")
        same(described.topic_partitions, {TopicPartition(topic, 0)}, "partitions of the transaction")
        same(described.producer_id, listed[0].producer_id, "producer id of the list and the description")
        writing.abort_transaction()
        until("it is over", lambda: client.describe_transactions([name])[name].state.value == "CompleteAbort")
