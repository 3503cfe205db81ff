"""Topics, configurations and what brokers know of them (KIP-516, KIP-590)."""

from typing import Any

from tests.sim.kafka.harness import Simulated


def _metadata(s: Simulated, broker: int, *names: str, version: int = 10) -> dict[str, Any]:
    fields = {"topics": [{"name": name} for name in names], "allow_auto_topic_creation": False}
    return s.ask(broker, 3, version, fields)


def _create(s: Simulated, name: str, partitions: int = 1, replicas: int = 3, /, **configs: str) -> int:
    topic = {
        "name": name, "num_partitions": partitions, "replication_factor": replicas, "assignments": [],
        "configs": [{"name": key, "value": value} for key, value in configs.items()],
    }  # fmt: skip
    answer = s.ask(1, 19, 4, {"topics": [topic], "timeout_ms": 1000, "validate_only": False})
    return answer["topics"][0]["error_code"]


def test_a_topic_that_was_created_becomes_known_to_each_broker_later():
    s = Simulated()
    for broker in s.cluster.brokers.values():
        broker.metadata_lag(5)
    assert _create(s, "new") == 0
    assert _metadata(s, 1, "new")["topics"][0]["error_code"] == 3
    assert _create(s, "new") == 36
    s.pause(6)
    topic = _metadata(s, 1, "new")["topics"][0]
    assert topic["error_code"] == 0
    assert topic["topic_id"] == s.cluster.controller.topics["new"].id
    assert topic["partitions"][0]["leader_id"] == s.cluster.leader("new", 0)
    assert s.cluster.effects["metadata_lag"]


def test_creation_is_refused_for_a_bad_name_too_many_replicas_and_no_partitions():
    s = Simulated()
    assert _create(s, "a b") == 17
    assert _create(s, "a", 1, 4) == 38
    assert _create(s, "a", 0) == 37
    assert _create(s, "a", 1, 3, **{"retention.ms": "soon"}) == 40


def test_asking_for_a_topic_creates_none():
    s = Simulated()
    assert _metadata(s, 1, "a")["topics"][0]["error_code"] == 3
    assert "a" not in s.cluster.controller.topics


def test_a_topic_that_is_created_again_has_another_id_and_an_empty_log():
    s = Simulated()
    assert _create(s, "a") == 0
    s.pause(1)
    assert s.produce("a", b"x", pid=1, epoch=5, seq=0) == (0, 0)
    old = s.cluster.controller.topics["a"].id
    deleted = {"topics": [{"name": None, "topic_id": old}], "timeout_ms": 1000}
    assert s.ask(2, 20, 6, deleted)["responses"][0]["error_code"] == 0
    assert s.ask(2, 20, 6, deleted)["responses"][0]["error_code"] == 100
    assert _create(s, "a") == 0
    s.pause(1)
    assert s.cluster.controller.topics["a"].id != old
    assert s.produce("a", b"y", pid=1, epoch=0, seq=7) == (0, 0)


def test_a_batch_that_waits_for_a_deleted_topic_is_answered_with_3():
    s = Simulated()
    topic = s.topic()
    leader = s.cluster.leader(topic, 0)
    s.cluster.cut(leader, next(each for each in s.cluster.brokers if each != leader))
    waiting = s.begin(leader, 0, 8, s.produce_fields(topic, [b"a"]))
    s.pause(0.5)
    s.ask(1, 20, 5, {"topic_names": [topic], "timeout_ms": 1000})
    assert s.finish(waiting)["responses"][0]["partition_responses"][0]["error_code"] == 3


def test_more_partitions_are_added_behind_the_old_ones():
    s = Simulated()
    topic = s.topic()
    fields = {"topics": [{"name": topic, "count": 3, "assignments": None}], "timeout_ms": 1000, "validate_only": False}
    assert s.ask(1, 37, 1, fields)["results"][0]["error_code"] == 0
    assert s.ask(1, 37, 1, fields)["results"][0]["error_code"] == 37
    s.pause(1)
    assert len(_metadata(s, 1, topic)["topics"][0]["partitions"]) == 3
    assert s.produce(topic, b"a", partition=2) == (0, 0)


def test_configurations_are_described_and_altered():
    s = Simulated()
    topic = s.topic()

    def described(kind: int, name: str, *keys: str, broker: int = 1) -> tuple[int, dict[str, str]]:
        resource = {"resource_type": kind, "resource_name": name, "configuration_keys": list(keys) or None}
        row = s.ask(broker, 32, 1, {"resources": [resource], "include_synonyms": False})["results"][0]
        return row["error_code"], {each["name"]: each["value"] for each in row["configs"]}

    assert described(2, topic, "retention.ms") == (0, {"retention.ms": "604800000"})
    change = {"name": "retention.ms", "config_operation": 0, "value": "5"}
    fields = {
        "resources": [{"resource_type": 2, "resource_name": topic, "configs": [change]}], "validate_only": False
    }  # fmt: skip
    assert s.ask(1, 44, 0, fields)["responses"][0]["error_code"] == 0
    s.pause(1)
    assert described(2, topic, "retention.ms") == (0, {"retention.ms": "5"})
    assert described(2, "nothing")[0] == 3
    assert described(4, "1", "producer.id.expiration.ms") == (0, {"producer.id.expiration.ms": "86400000"})
    assert described(4, "2", broker=1)[0] == 42


def test_a_partition_whose_leader_is_gone_is_described_with_5_and_no_leader():
    s = Simulated()
    s.cluster.create_topic("alone", 1, assignment={0: [2]})
    s.pause(1)
    s.cluster.brokers[2].kill()
    s.pause(12)
    answer = _metadata(s, 1, "alone")
    row = answer["topics"][0]["partitions"][0]
    assert (row["error_code"], row["leader_id"], row["offline_replicas"]) == (5, -1, [2])
    assert [each["node_id"] for each in answer["brokers"]] == [1, 3]


def test_metadata_of_all_versions_names_the_leader():
    s = Simulated()
    topic = s.topic()
    for version in range(13):
        topics = _metadata(s, 1, topic, version=version)["topics"]
        assert [each["partitions"][0]["leader_id"] for each in topics] == [s.cluster.leader(topic, 0)]
