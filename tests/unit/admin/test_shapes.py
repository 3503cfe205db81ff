import pytest

from sidecar.admin.faults import ShapeError, is_internal, is_prefix, is_topic, quoted
from sidecar.admin.fields import time_to_json
from sidecar.admin.shapes import PRODUCER_IDS, STATUS, TOPIC, new_topic_from_json, policy_from_json
from sidecar.cluster.nodes import NodeAddress
from sidecar.gateway.owners import OwnerAnswer, Waiter
from sidecar.gateway.sequence_ids import State
from sidecar.node.port import (
    AccessMode,
    Check,
    Deduplicated,
    NewTopic,
    NodeState,
    Policy,
    Producer,
    ProducerIds,
    Scope,
    Status,
    Topic,
)

OWNER = OwnerAnswer("billing", "pid:7", AccessMode.EXCLUSIVE, 1_700_000_000_123, "10.0.0.1:5", 4)


def test_a_topic_has_exactly_the_fields_of_the_contract():
    topic = Topic(
        "orders",
        2,
        Policy(AccessMode.EXCLUSIVE, False, None, Scope.TOPIC),
        4,
        OWNER,
        waiting=[Waiter(None, "next", "conn:1", 0)],
        producers=[Producer("billing", 8, {1: 8, 0: 9})],
        shadows=["orders-audit"],
        serving_node=1,
        deduplication=State.READING,
        deduplication_detail="half of it",
    )
    assert TOPIC.to_json(topic) == {
        "topic": "orders",
        "policy": {"access_mode": "exclusive", "deduplication": False, "scope": "topic"},
        "generation": 4,
        "owner": {
            "name": "billing",
            "session": "pid:7",
            "mode": "exclusive",
            "since": "2023-11-14T22:13:20.123Z",
            "client": "10.0.0.1:5",
        },
        "waiting": [{"name": "next", "session": "conn:1", "since": "1970-01-01T00:00:00.000Z", "partition": None}],
        "producers": [{"name": "billing", "last_sequence_id": 8, "last_sequence_ids": {"0": 9, "1": 8}}],
        "shadows": ["orders-audit"],
        "serving_node": 1,
        "partitions": 2,
        "deduplication_state": "reading",
        "deduplication_detail": "half of it",
    }


def test_an_ungoverned_topic_says_null_and_nothing():
    assert TOPIC.to_json(Topic("plain", 1)) == {
        "topic": "plain",
        "policy": None,
        "generation": 0,
        "owner": None,
        "waiting": [],
        "producers": [],
        "shadows": [],
        "serving_node": None,
        "partitions": 1,
        "deduplication_state": None,
        "deduplication_detail": None,
    }


def test_a_producer_name_is_shown_by_partition_with_null_where_an_offset_is_not_known():
    found = ProducerIds("billing", -1, {10: 9, 2: 0}, {10: 70, 2: None}, {10: 1_700_000_000_000, 2: 0}, True)
    assert PRODUCER_IDS.to_json(found) == {
        "name": "billing",
        "last_sequence_id": -1,
        "last_sequence_ids": {"2": 0, "10": 9},
        "offsets": {"2": None, "10": 70},
        "last_seen": {"2": "1970-01-01T00:00:00.000Z", "10": "2023-11-14T22:13:20.000Z"},
        "in_use": True,
    }


def test_a_status_counts_topics_by_what_is_known_of_their_sequence_ids():
    counted = Deduplicated(ready=3, reading=2, lost=1)
    status = Status(1, "c", NodeState.SERVING, 0, ("h", 1), None, [], [], 0, 6, deduplication=counted)
    states = {"ready": 3, "reading": 2, "lost": 1, "crowded": 0, "unprotected": 0}
    assert STATUS.to_json(status, version="0.1.0")["deduplication"] == states


def test_owners_of_partitions_carry_their_generation():
    found = TOPIC.to_json(Topic("orders", 11, owners={10: OWNER, 2: OWNER}))
    assert list(found["owners"]) == ["2", "10"]
    assert found["owners"]["2"]["generation"] == 4
    assert found["owner"] is None


def test_a_status_is_ready_if_nothing_required_fails():
    def ready(*checks: Check) -> bool:
        status = Status(1, "default", NodeState.SERVING, 0, ("h", 1), None, [NodeAddress(1, "h", 1)], [], 0, 0, checks)
        return STATUS.to_json(status, version="0.1.0")["ready"]

    assert ready(Check("kafka", True), Check("redis", False, "away", required=False))
    assert not ready(Check("kafka", True), Check("redis", False, "away"))


def test_times_are_rfc_3339_in_utc():
    assert time_to_json(1_700_000_000_000) == "2023-11-14T22:13:20.000Z"


def test_a_change_of_policy_holds_only_what_was_said():
    assert policy_from_json({}) == Policy()
    assert policy_from_json(
        {"access_mode": "wait_for_exclusive", "deduplication": True, "scope": "partition"}
    ) == Policy(access_mode=AccessMode.WAIT_FOR_EXCLUSIVE, deduplication=True, scope=Scope.PARTITION)
    assert policy_from_json({"log_append_time": False, "exclusive_reader": True}) == Policy(
        log_append_time=False, exclusive_reader=True
    )


def test_every_unknown_field_and_value_is_named():
    with pytest.raises(ShapeError) as caught:
        policy_from_json(
            {"access_mode": "private", "deduplication": "yes", "scope": None, "acess": 1, "exclusive_reader": 1}
        )
    message = str(caught.value)
    for part in ("'private'", "'yes'", "None", "'acess'", "exclusive_reader", "wait_for_exclusive"):
        assert part in message


def test_of_many_unknown_fields_the_first_are_named_and_the_others_counted():
    with pytest.raises(ShapeError) as caught:
        policy_from_json({**{f"f{number}": 1 for number in range(100_000)}, "deduplication": "yes"})
    told = "unknown fields: 'f0', 'f1', 'f2', 'f3', 'f4' and 99995 more (known: "
    assert (str(caught.value).startswith(told), "'yes'" in str(caught.value)) == (True, True)


DEEP: list[object] = []
for _ in range(900):
    DEEP = [DEEP]


@pytest.mark.parametrize(
    "value",
    [
        "x" * 1000,
        "\0" * 1000,
        "\ud800" * 1000,
        [1] * 1000,
        ["x" * 1000] * 1000,
        dict.fromkeys(map(str, range(1000))),
        DEEP,
    ],
)
def test_of_a_long_value_the_beginning_is_told(value: object):
    told = quoted(value)
    assert len(told) <= 101
    assert told[:10] == repr(value)[:10] or value is DEEP
    told.encode()


@pytest.mark.parametrize("value", ["it's", 10**30, 1.5, None, True, [0, 3, "x"], {"offset": {"a": [1]}}])
def test_a_short_value_is_told_as_it_is(value: object):
    assert quoted(value) == repr(value)


def test_a_new_topic_has_what_was_said():
    assert new_topic_from_json({"topic": "orders"}) == (NewTopic("orders"), None)
    body = {"topic": "orders", "partitions": 6.0, "replication_factor": 3, "configs": {"a": "b"}, "policy": {}}
    assert new_topic_from_json(body) == (NewTopic("orders", 6, 3, {"a": "b"}), Policy())


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ([], "JSON object"),
        ({"name": "orders"}, "JSON object"),
        ({"topic": "orders", "partition": 1}, "unknown fields: 'partition'"),
        ({"topic": "a b"}, "'a b' is no name for a topic"),
        ({"topic": "__sidecar_default"}, "internal"),
        *(
            ({"topic": "orders", "partitions": each}, "partitions has to be")
            for each in (0, -1, 2**31, "6", True, None)
        ),
        (
            {"topic": "orders", "replication_factor": 2**15},
            "replication_factor has to be a whole number from 1 to 32767",
        ),
        *(({"topic": "orders", "configs": each}, "configs has to be") for each in ([], {"a": 1}, {"a": None})),
        *(({"topic": "orders", "configs": {"a": each}}, "configs has to be") for each in ("\ud800", "x" * 2**15)),
        ({"topic": "orders", "policy": {"access_mode": "private"}}, "'private'"),
        ({"topic": "orders", "policy": None}, "JSON object"),
    ],
)
def test_a_new_topic_that_cannot_be_is_named(body: object, said: str):
    with pytest.raises(ShapeError, match=said):
        new_topic_from_json(body)


@pytest.mark.parametrize("body", [None, [], "exclusive", 1, [{"access_mode": "shared"}]])
def test_a_policy_is_an_object(body: object):
    with pytest.raises(ShapeError, match="JSON object"):
        policy_from_json(body)


@pytest.mark.parametrize("value", [[], {}, ["exclusive"], 1, True])
def test_a_mode_is_a_text(value: object):
    with pytest.raises(ShapeError, match="access_mode has to be one of"):
        policy_from_json({"access_mode": value})


@pytest.mark.parametrize("name", ["orders", "a.b_c-D9", "x" * 249, "_private"])
def test_names_kafka_allows_are_topics(name: str):
    assert is_topic(name)
    assert not is_internal(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "a/b", "ä", "x" * 250, "payments.*", "a\n"])
def test_other_names_are_not(name: str):
    assert not is_topic(name)


@pytest.mark.parametrize("name", ["payments.*", "p*", "*"])
def test_a_prefix_ends_in_an_asterisk(name: str):
    assert is_prefix(name)


@pytest.mark.parametrize("name", ["pay*ments", "**", "payments", "a b*", ""])
def test_other_names_are_no_prefix(name: str):
    assert not is_prefix(name)


@pytest.mark.parametrize("name", ["__consumer_offsets", "__sidecar_default", "__*", "__x*"])
def test_internal_names_begin_with_two_underscores(name: str):
    assert is_internal(name)
