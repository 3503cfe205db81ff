"""Committed offsets and one simple consumer."""

from typing import Any

import pytest

from tests.sim.kafka.harness import Simulated
from tests.sim.kafka.settings import ClusterSettings


def _with_a_topic(version: tuple[int, int] = (4, 1)) -> Simulated:
    s = Simulated(settings=ClusterSettings(version))
    s.cluster.create_topic("t")
    s.pause(1)
    return s


def _coordinator(s: Simulated, group: str) -> int:
    return s.ask(None, 10, 1, {"key": group, "key_type": 0})["node_id"]


def _commit_fields(group: str, topic: str, offset: int, member: str = "", generation: int = -1) -> dict[str, Any]:
    part = {"partition_index": 0, "committed_offset": offset, "committed_leader_epoch": -1, "committed_metadata": ""}
    return {
        "group_id": group, "generation_id_or_member_epoch": generation, "member_id": member, "group_instance_id": None,
        "topics": [{"name": topic, "partitions": [part]}],
    }  # fmt: skip


def _commit(s: Simulated, group: str, topic: str, offset: int, member: str = "", generation: int = -1) -> int:
    answer = s.ask(_coordinator(s, group), 8, 7, _commit_fields(group, topic, offset, member, generation))
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


@pytest.mark.parametrize(("version", "kept"), [((3, 9), -1), ((4, 1), 5)])
def test_with_too_few_in_sync_replicas_a_commit_is_answered_with_15(version: tuple[int, int], kept: int):
    """Never 19, as a Produce is. Since 4.0 it is in the log all the same, and counts when the followers are back."""
    s = _with_a_topic(version)
    others = [each for each in s.cluster.brokers if each != _coordinator(s, "g")]
    for each in others:
        s.cluster.brokers[each].kill()
    s.pause(15)
    assert _commit(s, "g", "t", 5) == 15
    for each in others:
        s.cluster.brokers[each].start()
    s.pause(5)
    assert _committed(s, "g", "t") == kept


@pytest.mark.parametrize(("version", "code"), [((3, 9), 7), ((4, 1), 15)])
def test_a_commit_that_is_not_replicated_in_time_is_answered_without_that(version: tuple[int, int], code: int):
    s = _with_a_topic(version)
    at = _coordinator(s, "g")
    other = next(each for each in s.cluster.brokers if each != at)
    s.cluster.cut(at, other)
    before = s.heap.now()
    assert _commit(s, "g", "t", 5) == code
    assert 5 <= s.heap.now() - before < 6
    assert _committed(s, "g", "t") == -1


@pytest.mark.parametrize("version", [(3, 9), (4, 1)])
def test_a_coordinator_that_loses_its_partition_answers_a_commit_with_16(version: tuple[int, int]):
    s = _with_a_topic(version)
    at = _coordinator(s, "g")
    one, other = (each for each in s.cluster.brokers if each != at)
    s.cluster.cut(at, one)
    waiting = s.begin(at, 8, 7, _commit_fields("g", "t", 5))
    s.pause(1)
    assert s.cluster.elect("__consumer_offsets", s.cluster.group_partition("g"), other)
    assert s.finish(waiting)["topics"][0]["partitions"][0]["error_code"] == 16
