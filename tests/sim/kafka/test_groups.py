"""Committed offsets and one simple consumer."""

from typing import Any

from tests.sim.kafka.harness import Simulated


def _with_a_topic() -> Simulated:
    s = Simulated()
    s.cluster.create_topic("t")
    s.pause(1)
    return s


def _coordinator(s: Simulated, group: str) -> int:
    return s.ask(None, 10, 1, {"key": group, "key_type": 0})["node_id"]


def _commit(s: Simulated, group: str, topic: str, offset: int, member: str = "", generation: int = -1) -> int:
    part = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": ""}
    fields = {
        "group_id": group, "generation_id_or_member_epoch": generation, "member_id": member, "group_instance_id": None,
        "topics": [{"name": topic, "partitions": [part]}],
    }  # fmt: skip
    answer = s.ask(_coordinator(s, group), 8, 7, fields)
    return answer["topics"][0]["partitions"][0]["error_code"]


def _committed(s: Simulated, group: str, topic: str) -> int:
    fields = {
        "groups": [{"group_id": group, "topics": [{"name": topic, "partition_indexes": [0]}]}], "require_stable": False
    }  # fmt: skip
    answer = s.ask(_coordinator(s, group), 9, 8, fields)["groups"][0]
    return answer["topics"][0]["partitions"][0]["committed_offset"]


def test_a_committed_offset_is_there_after_the_coordinator_has_moved():
    s = _with_a_topic()
    assert _committed(s, "g", "t") == -1
    assert _commit(s, "g", "t", 5) == 0
    assert _committed(s, "g", "t") == 5
    assert s.cluster.move_coordinator("g", group=True)
    s.pause(2)
    assert _committed(s, "g", "t") == 5


def test_one_consumer_joins_gets_its_assignment_and_leaves():
    s = _with_a_topic()
    at = _coordinator(s, "g")
    join: dict[str, Any] = {
        "group_id": "g", "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "member_id": "",
        "protocol_type": "consumer", "protocols": [{"name": "range", "metadata": b"m"}],
    }  # fmt: skip
    first = s.ask(at, 11, 5, join)
    assert first["error_code"] == 79
    joined = s.ask(at, 11, 5, join | {"member_id": first["member_id"]})
    member, generation = joined["member_id"], joined["generation_id"]
    assert (joined["leader"], generation, joined["protocol_name"]) == (member, 1, "range")
    assert joined["members"][0]["metadata"] == b"m"
    sync = {
        "group_id": "g", "generation_id": 1, "member_id": member,
        "assignments": [{"member_id": member, "assignment": b"x"}]
    }  # fmt: skip
    assert s.ask(at, 14, 3, sync)["assignment"] == b"x"
    beat = {"group_id": "g", "generation_id": 1, "member_id": member}
    assert s.ask(at, 12, 3, beat)["error_code"] == 0
    assert s.ask(at, 12, 3, beat | {"generation_id": 0})["error_code"] == 22
    assert _commit(s, "g", "t", 3) == 25
    assert _commit(s, "g", "t", 3, member, 1) == 0
    leave = {"group_id": "g", "members": [{"member_id": member, "group_instance_id": None}]}
    assert s.ask(at, 13, 3, leave)["members"][0]["error_code"] == 0
    assert s.ask(at, 12, 3, beat)["error_code"] == 25
    assert _commit(s, "g", "t", 4) == 0


def test_groups_are_listed_and_described():
    s = _with_a_topic()
    assert _commit(s, "g", "t", 5) == 0
    at = _coordinator(s, "g")
    assert [each["group_id"] for each in s.ask(at, 16, 4, {"states_filter": []})["groups"]] == ["g"]
    described = s.ask(at, 15, 5, {"groups": ["g"], "include_authorized_operations": False})["groups"][0]
    assert (described["error_code"], described["group_state"]) == (0, "Empty")
