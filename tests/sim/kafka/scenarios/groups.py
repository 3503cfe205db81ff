"""FindCoordinator (10) and what a group coordinator answers: OffsetCommit (8), OffsetFetch (9), JoinGroup (11),
Heartbeat (12), LeaveGroup (13), SyncGroup (14), DescribeGroups (15), ListGroups (16).
"""

from __future__ import annotations

from typing import Any

from tests.sim.kafka.scenarios.common import commit_fields, committed, group_at, scenario, versions
from tests.sim.kafka.talk import Talk


def _commit(
    talk: Talk, group: str, topic: str, offset: int, *, version: int = 7, partition: int = 0, **more: Any
) -> int:
    fields = commit_fields(group, topic, offset, partition) | more
    row = talk.ask(group_at(talk, group), 8, version, fields)["topics"][0]["partitions"][0]
    return row["error_code"]


def _subscription(data: bytes) -> bytes:
    """`ConsumerProtocolSubscription` version 0: to no topics, with data of the consumer's own."""
    return bytes(6) + len(data).to_bytes(4, "big") + data


def _join_fields(group: str, member: str = "", *protocols: str, kind: str = "consumer", **more: Any) -> dict[str, Any]:
    listed = [{"name": name, "metadata": _subscription(name.encode())} for name in protocols or ("range",)]
    return {
        "group_id": group, "session_timeout_ms": 10_000, "rebalance_timeout_ms": 10_000, "member_id": member,
        "group_instance_id": None, "protocol_type": kind, "protocols": listed, "reason": None,
    } | more  # fmt: skip


def _join(talk: Talk, group: str, member: str = "", *protocols: str, version: int = 5, **more: Any) -> dict[str, Any]:
    return talk.ask(group_at(talk, group), 11, version, _join_fields(group, member, *protocols, **more))


def _sync_fields(group: str, generation: int, member: str, assigned: dict[str, bytes]) -> dict[str, Any]:
    return {
        "group_id": group, "generation_id": generation, "member_id": member, "group_instance_id": None,
        "protocol_type": None, "protocol_name": None,
        "assignments": [{"member_id": each, "assignment": given} for each, given in assigned.items()],
    }  # fmt: skip


def _sync(talk: Talk, group: str, generation: int, member: str, assigned: dict[str, bytes] | None = None) -> Any:
    answer = talk.ask(group_at(talk, group), 14, 3, _sync_fields(group, generation, member, assigned or {}))
    return answer["error_code"], answer["assignment"]


def _beat(talk: Talk, group: str, generation: int, member: str) -> int:
    fields = {"group_id": group, "generation_id": generation, "member_id": member, "group_instance_id": None}
    return talk.ask(group_at(talk, group), 12, 3, fields)["error_code"]


def _leave(talk: Talk, group: str, member: str) -> int:
    return talk.ask(group_at(talk, group), 13, 2, {"group_id": group, "member_id": member})["error_code"]


def _state(talk: Talk, group: str, version: int = 5) -> Any:
    fields = {"groups": [group], "include_authorized_operations": False}
    row = talk.ask(group_at(talk, group), 15, version, fields)["groups"][0]
    return row["error_code"], row["group_state"], row["protocol_type"], row["protocol_data"], len(row["members"])


def _member(talk: Talk, group: str, *protocols: str) -> tuple[str, int]:
    """Of a new group: its one member, stable, and the generation."""
    member = _join(talk, group, "", *protocols)["member_id"]
    answer = _join(talk, group, member, *protocols)
    assert not answer["error_code"], answer
    _sync(talk, group, answer["generation_id"], member, {member: b"all"})
    return member, answer["generation_id"]


# Coordinators ---------------------------------------------------------------------------------------------------------


@scenario
def coordinators_by_kind(talk: Talk) -> list[Any]:
    found = [talk.ask(None, 10, version, {"key": talk.unique("any"), "key_type": kind})["error_code"]
             for version, kind in ((0, 0), (1, 0), (1, 1), (3, 0), (3, 1))]  # fmt: skip
    return [error in (0, 15) for error in found]


@scenario
def a_kind_of_coordinator_that_nobody_knows(talk: Talk) -> list[Any]:
    return [talk.ask(None, 10, 3, {"key": "any", "key_type": kind})["error_code"] for kind in (7, -1)]


@scenario
def the_coordinator_of_no_name(talk: Talk) -> list[Any]:
    group_at(talk, talk.unique("any"))
    return [talk.ask(None, 10, 3, {"key": "", "key_type": kind})["error_code"] for kind in (0, 1)]


# Offsets --------------------------------------------------------------------------------------------------------------


@scenario
def offsets_come_back(talk: Talk) -> list[Any]:
    topic, group = talk.topic(2), talk.unique("group")
    found: list[Any] = [committed(talk, group, topic), _commit(talk, group, topic, 7), committed(talk, group, topic)]
    found += [_commit(talk, group, topic, 3, partition=1), _commit(talk, group, topic, 2)]
    return [*found, *(committed(talk, group, topic, partition=each) for each in (0, 1, 9))]


@scenario
def offsets_of_partitions_that_are_not_there(talk: Talk) -> list[Any]:
    topic, group = talk.topic(), talk.unique("group")
    return [_commit(talk, group, topic, 7, partition=5), _commit(talk, group, topic + "-none", 7),
            committed(talk, group, topic, partition=5), committed(talk, group, topic + "-none")]  # fmt: skip


def _id_of(talk: Talk, topic: str) -> bytes:
    fields = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
    return talk.ask(None, 3, 12, fields)["topics"][0]["topic_id"]


def _fetched(talk: Talk, version: int, groups: dict[str, list[Any] | None]) -> list[Any]:
    """OffsetFetch of groups of one coordinator; a topic is a name or an id. Per group its error and offsets."""
    named = [
        {
            "group_id": group, "member_id": None, "member_epoch": -1,
            "topics": places and [{"topic_id" if isinstance(topic, bytes) else "name": topic,
                                   "partition_indexes": [index]} for topic, index in places],
        }
        for group, places in groups.items()
    ]  # fmt: skip
    answer = talk.ask(group_at(talk, next(iter(groups))), 9, version, {"groups": named, "require_stable": False})
    return [
        (row["error_code"], [(part["partition_index"], part["error_code"], part["committed_offset"], part["metadata"])
                             for topic in row["topics"] for part in topic["partitions"]])
        for row in answer["groups"]
    ]  # fmt: skip


@scenario
def offsets_of_groups_in_one_request(talk: Talk) -> list[Any]:
    topic, group = talk.topic(2), talk.unique("group")
    _commit(talk, group, topic, 7)
    found: list[Any] = []
    for version in (8, 9):
        found.append(_fetched(talk, version, {group: [(topic, 0), (topic, 1), (topic + "-none", 0)]}))
        found += [_fetched(talk, version, {group: places}) for places in (None, [], [(topic, 77)])]
    return found


@scenario
def offsets_by_the_ids_of_topics(talk: Talk) -> list[Any]:
    """From Kafka 4.3 on (KIP-848): what was committed by id is there by name, and the other way round."""
    _, offered, _ = versions(talk, 3)
    found: list[Any] = [offered[8][1], offered[9][1]]
    if min(found) < 10:
        return found
    topic, other, group = talk.topic(2), talk.topic(), talk.unique("group")
    mine, its, nobodys = _id_of(talk, topic), _id_of(talk, other), b"nobody's id 1234"
    for places in ([(mine, 0)], [(nobodys, 0)], [(mine, 1), (nobodys, 3), (its, 0), (mine, 99)], [(bytes(16), 0)]):
        fields = commit_fields(group, topic, 0) | {
            "topics": [
                {"topic_id": topic_id, "partitions": [
                    {"partition_index": index, "committed_offset": 5, "committed_leader_epoch": -1,
                     "committed_metadata": "note"}]}
                for topic_id, index in places
            ]
        }  # fmt: skip
        rows = talk.ask(group_at(talk, group), 8, 10, fields)["topics"]
        found.append(sorted(([mine, its, nobodys, bytes(16)].index(row["topic_id"]), part["partition_index"],
                             part["error_code"]) for row in rows for part in row["partitions"]))  # fmt: skip
    found += [committed(talk, group, topic, partition=index) for index in (0, 1)]
    _commit(talk, group, other, 9)
    (listed,) = _fetched(talk, 10, {group: None})
    return [*found, listed[0], sorted(listed[1]),
            *(_fetched(talk, 10, {group: [place]}) for place in ((mine, 0), (mine, 7), (its, 0), (nobodys, 0)))
            ]  # fmt: skip


@scenario
def metadata_of_an_offset(talk: Talk) -> list[Any]:
    topic, group = talk.topic(), talk.unique("group")
    found: list[Any] = []
    for text in ("note", None, "x" * 4096, "x" * 4097):
        fields = commit_fields(group, topic, 1, metadata=text)
        row = talk.ask(group_at(talk, group), 8, 7, fields)["topics"][0]["partitions"][0]
        found.append((row["error_code"], len(committed(talk, group, topic)[1][2])))
    return found


@scenario
def offsets_with_odd_values(talk: Talk) -> list[Any]:
    topic, group = talk.topic(), talk.unique("group")
    return [(_commit(talk, group, topic, each), committed(talk, group, topic)) for each in (0, 10**12, -1, -5)]


@scenario
def offsets_of_no_group(talk: Talk) -> list[Any]:
    topic = talk.topic()
    broker = group_at(talk, talk.unique("any"))
    fields = commit_fields("", topic, 1)
    row = talk.ask(broker, 8, 7, fields)["topics"][0]["partitions"][0]
    answer = talk.ask(broker, 9, 5, {"group_id": "", "topics": [{"name": topic, "partition_indexes": [0]}]})
    return [row["error_code"], answer["error_code"],
            [part["error_code"] for each in answer["topics"] for part in each["partitions"]]]  # fmt: skip


@scenario
def all_offsets_of_a_group(talk: Talk) -> list[Any]:
    topic, group = talk.topic(2), talk.unique("group")
    for partition in (0, 1):
        _commit(talk, group, topic, 5 + partition, partition=partition)
    found: list[Any] = []
    for version in (2, 5, 7):
        fields = {"group_id": group, "topics": None, "require_stable": False}
        answer = talk.ask(group_at(talk, group), 9, version, fields)
        rows = sorted((part["partition_index"], part["committed_offset"]) for each in answer["topics"]
                      for part in each["partitions"])  # fmt: skip
        found.append((answer["error_code"], rows))
    return found


@scenario
def offsets_of_several_groups(talk: Talk) -> list[Any]:
    topic, group = talk.topic(), talk.unique("group")
    _commit(talk, group, topic, 5)
    topics = [{"name": topic, "partition_indexes": [0, 3]}]
    groups = [{"group_id": group, "topics": topics}, {"group_id": group, "topics": None}]
    found: list[Any] = []
    for each in groups:
        answer = talk.ask(group_at(talk, group), 9, 8, {"groups": [each], "require_stable": False})["groups"][0]
        rows = [(part["partition_index"], part["committed_offset"], part["error_code"]) for one in answer["topics"]
                for part in one["partitions"]]  # fmt: skip
        found.append((answer["error_code"], rows))
    return found


@scenario
def answers_of_each_commit_version(talk: Talk) -> list[Any]:
    topic, group = talk.topic(), talk.unique("group")
    return [
        (_commit(talk, group, topic, version, version=version), committed(talk, group, topic))
        for version in range(2, 9)
    ]


@scenario
def commits_of_nobody(talk: Talk) -> list[Any]:
    topic, group = talk.topic(), talk.unique("group")
    found: list[Any] = []
    for generation, member in ((3, ""), (3, "nobody"), (-1, "nobody"), (0, "")):
        found.append(_commit(talk, group, topic, 1, generation_id_or_member_epoch=generation, member_id=member))
    return [*found, committed(talk, group, topic)]


@scenario
def commits_of_a_member(talk: Talk) -> list[Any]:
    topic, group = talk.topic(), talk.unique("group")
    member, generation = _member(talk, group)
    found: list[Any] = []
    for named, number in (
        (member, generation),
        (member, generation + 1),
        (member, generation - 1),
        ("x", generation),
        ("", -1),
    ):
        found.append(_commit(talk, group, topic, 1, generation_id_or_member_epoch=number, member_id=named))
    return [*found, committed(talk, group, topic)]


# Membership -----------------------------------------------------------------------------------------------------------


@scenario
def a_group_of_one(talk: Talk) -> list[Any]:
    group = talk.unique("group")
    first = _join(talk, group)
    member = first["member_id"]
    second = _join(talk, group, member)
    found: list[Any] = [first["error_code"], first["generation_id"], second["error_code"], second["generation_id"],
                        second["protocol_name"], second["leader"] == member, second["member_id"] == member,
                        [each["metadata"] for each in second["members"]]]  # fmt: skip
    found += [_beat(talk, group, 1, member), _sync(talk, group, 1, member, {member: b"all"})]
    found += [_state(talk, group), _beat(talk, group, 1, member), _sync(talk, group, 1, member)]
    return [*found, _leave(talk, group, member), _state(talk, group), _beat(talk, group, 1, member)]


@scenario
def strangers_in_a_group(talk: Talk) -> list[Any]:
    group = talk.unique("group")
    found: list[Any] = [_join(talk, group, "nobody")["error_code"], _beat(talk, group, 1, "nobody")]
    found += [_sync(talk, group, 1, "nobody"), _leave(talk, group, "nobody")]
    member, generation = _member(talk, group)
    found += [_join(talk, group, "nobody")["error_code"], _beat(talk, group, generation, "nobody")]
    return [
        *found,
        _sync(talk, group, generation, "nobody"),
        _leave(talk, group, "nobody"),
        _beat(talk, group, generation, member),
    ]


@scenario
def other_generations(talk: Talk) -> list[Any]:
    group = talk.unique("group")
    member, generation = _member(talk, group)
    numbers = (generation - 1, generation + 1, -1, generation)
    return [
        [_beat(talk, group, each, member) for each in numbers],
        [_sync(talk, group, each, member) for each in numbers],
    ]


@scenario
def groups_without_a_name(talk: Talk) -> list[Any]:
    broker = group_at(talk, talk.unique("any"))
    beat = {"group_id": "", "generation_id": 1, "member_id": "x", "group_instance_id": None}
    return [talk.ask(broker, 11, 5, _join_fields(""))["error_code"], talk.ask(broker, 12, 3, beat)["error_code"],
            talk.ask(broker, 14, 3, _sync_fields("", 1, "x", {}))["error_code"],
            talk.ask(broker, 13, 2, {"group_id": "", "member_id": "x"})["error_code"]]  # fmt: skip


@scenario
def session_timeouts(talk: Talk) -> list[Any]:
    return [
        _join(talk, talk.unique("group"), session_timeout_ms=each)["error_code"]
        for each in (1, 5_999, 6_000, 1_800_001)
    ]


@scenario
def protocols_that_do_not_fit(talk: Talk) -> list[Any]:
    group = talk.unique("group")
    member, _ = _member(talk, group, "range")
    return [_join(talk, group, "", "other")["error_code"], _join(talk, group, "", kind="connect")["error_code"],
            _join(talk, talk.unique("group"), kind="")["error_code"],
            _join(talk, talk.unique("group"), protocols=[])["error_code"], _beat(talk, group, 1, member)]  # fmt: skip


@scenario
def the_leader_joins_again(talk: Talk) -> list[Any]:
    group = talk.unique("group")
    member, generation = _member(talk, group)
    again = _join(talk, group, member)
    found: list[Any] = [again["error_code"], again["generation_id"] - generation, _state(talk, group)]
    return [*found, _beat(talk, group, generation, member), _beat(talk, group, generation + 1, member)]


@scenario
def a_second_member_makes_the_first_join_again(talk: Talk) -> list[Any]:
    group = talk.unique("group")
    first, generation = _member(talk, group, "range", "sticky")
    broker = group_at(talk, group)
    second = _join(talk, group, "", "sticky")["member_id"]
    waiting = talk.begin(broker, 11, 5, _join_fields(group, second, "sticky"))
    found: list[Any] = [talk.outcome(waiting, 0.1), _state(talk, group)[1], _beat(talk, group, generation, first)]
    mine = _join(talk, group, first, "range", "sticky")
    its: Any = talk.outcome(waiting)
    for answer in (mine, its):
        found += [answer["error_code"], answer["generation_id"] - generation, answer["protocol_name"],
                  answer["leader"] == first, len(answer["members"])]  # fmt: skip
    syncing = talk.begin(broker, 14, 3, _sync_fields(group, generation + 1, second, {}))
    found += [talk.outcome(syncing, 0.1), _state(talk, group)[1]]
    found.append(_sync(talk, group, generation + 1, first, {first: b"one", second: b"two"}))
    synced: Any = talk.outcome(syncing)
    found += [synced["error_code"], synced["assignment"], _state(talk, group)]
    found += [_leave(talk, group, second), _beat(talk, group, generation + 1, first), _state(talk, group)[1]]
    return found


@scenario
def commits_during_a_rebalance(talk: Talk) -> list[Any]:
    topic, group = talk.topic(), talk.unique("group")
    first, generation = _member(talk, group)
    second = _join(talk, group)["member_id"]
    waiting = talk.begin(group_at(talk, group), 11, 5, _join_fields(group, second))
    found: list[Any] = [talk.outcome(waiting, 0.1)]
    found.append(_commit(talk, group, topic, 4, generation_id_or_member_epoch=generation, member_id=first))
    mine = _join(talk, group, first)
    talk.outcome(waiting)
    found += [
        _commit(talk, group, topic, 5, generation_id_or_member_epoch=number, member_id=first)
        for number in (generation, mine["generation_id"])
    ]
    return [*found, committed(talk, group, topic)]


@scenario
def members_leave_together(talk: Talk) -> list[Any]:
    group = talk.unique("group")
    member, _ = _member(talk, group)
    members = [{"member_id": each, "group_instance_id": None, "reason": None} for each in (member, "nobody")]
    answer = talk.ask(group_at(talk, group), 13, 4, {"group_id": group, "members": members})
    return [answer["error_code"], sorted((row["member_id"] == member, row["error_code"]) for row in answer["members"]),
            _state(talk, group)]  # fmt: skip


# Descriptions of groups -----------------------------------------------------------------------------------------------


@scenario
def a_group_of_offsets_alone(talk: Talk) -> list[Any]:
    topic, group = talk.topic(), talk.unique("group")
    _commit(talk, group, topic, 5)
    fields = {"states_filter": [], "types_filter": []}
    rows = talk.ask(group_at(talk, group), 16, 4, fields)["groups"]
    return [
        _state(talk, group),
        [(row["protocol_type"], row["group_state"]) for row in rows if row["group_id"] == group],
    ]


@scenario
def groups_by_state(talk: Talk) -> list[Any]:
    group = talk.unique("group")
    _member(talk, group)

    def rows(*states: str, version: int = 4) -> Any:
        fields = {"states_filter": list(states), "types_filter": []}
        found = talk.ask(group_at(talk, group), 16, version, fields)["groups"]
        return [(row["protocol_type"], row.get("group_state")) for row in found if row["group_id"] == group]

    return [rows(), rows("Stable"), rows("Empty"), rows("stable"), rows("Asleep", "Stable"), rows(version=3)]
