"""What one client reads as a member of a share group, spread over brokers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from sidecar.cluster.resolver import ANONYMOUS
from sidecar.gateway import share_sessions
from sidecar.gateway.share_sessions import FINAL, BrokerSession, Gathered, Key, ShareSession, ShareSessions
from sidecar.protocol.errors import KafkaError

TOPIC, OTHER = b"t" * 16, b"o" * 16
ACK = [{"first_offset": 0, "last_offset": 4, "acknowledge_types": [1]}]


def asked(epoch: int, *parts: int, forgotten: tuple[int, ...] = (), acks: tuple[int, ...] = ()) -> dict[str, Any]:
    partitions = [
        {"partition_index": index, "acknowledgement_batches": ACK if index in acks else []} for index in (*parts, *acks)
    ]
    return {
        "group_id": "g",
        "member_id": "m",
        "share_session_epoch": epoch,
        "topics": [{"topic_id": TOPIC, "partitions": partitions}],
        "forgotten_topics_data": [{"topic_id": TOPIC, "partitions": [*forgotten]}],
    }


def indexes(topics: list[dict[str, Any]]) -> list[Any]:
    return [each["partition_index"] if isinstance(each, dict) else each for one in topics for each in one["partitions"]]


class Connection:
    """A member's connection, as sessions know it: by number, closed or not."""

    def __init__(self, number: int = 1, principal: str = ANONYMOUS) -> None:
        self.connection = SimpleNamespace(id=number, closed=False)
        self.principal = principal


ONE: Any = Connection()


@pytest.fixture
def sessions() -> ShareSessions:
    return ShareSessions(3)


def test_a_session_counts_its_requests(sessions: ShareSessions) -> None:
    session, _ = sessions.open(ONE, asked(0, 0, 1))
    assert sessions.known(ONE, asked(1)).epoch == 2
    with pytest.raises(KafkaError, match="INVALID_SHARE_SESSION_EPOCH"):
        sessions.known(ONE, asked(1))
    assert sessions.known(ONE, asked(2)).epoch == 3
    assert sessions.known(ONE, asked(FINAL)).epoch == 3
    session.epoch = 2**31 - 1
    assert sessions.known(ONE, asked(2**31 - 1)).epoch == 1


def test_a_request_at_epoch_0_takes_the_place_of_a_session(sessions: ShareSessions) -> None:
    first, none = sessions.open(ONE, asked(0, 0))
    second, former = sessions.open(ONE, asked(0, 1))
    assert (none, former, first.is_over) == (None, first, True)
    assert [*second.parts] == [(TOPIC, 1)]
    with pytest.raises(KafkaError, match="INVALID_REQUEST"):
        sessions.open(ONE, asked(0, acks=(0,)))
    assert sessions.known(ONE, asked(1)) is second


def test_a_session_is_found_on_any_connection_and_ends_with_the_one_that_opened_it(sessions: ShareSessions) -> None:
    other: Any = Connection(2)
    session, _ = sessions.open(ONE, asked(0, 0))
    assert sessions.known(other, asked(1)) is session
    sessions.connection_closed(2)
    assert sessions.known(other, asked(2)) is session
    sessions.connection_closed(1)
    assert session.is_over
    with pytest.raises(KafkaError, match="SHARE_SESSION_NOT_FOUND"):
        sessions.known(other, asked(3))


def test_a_session_that_another_connection_opened_anew_does_not_end_with_the_first(sessions: ShareSessions) -> None:
    other: Any = Connection(2)
    sessions.open(ONE, asked(0, 0))
    session, _ = sessions.open(other, asked(0, 0))
    sessions.connection_closed(1)
    assert sessions.known(ONE, asked(1)) is session


def test_a_principal_that_names_anothers_member_has_a_session_of_its_own(sessions: ShareSessions) -> None:
    alice, mallory = (Connection(number, f"User:{name}") for number, name in enumerate(("alice", "mallory")))
    owned, _ = sessions.open(cast(Any, alice), asked(0, 0))
    with pytest.raises(KafkaError, match="SHARE_SESSION_NOT_FOUND"):
        sessions.known(cast(Any, mallory), asked(FINAL))
    another, former = sessions.open(cast(Any, mallory), asked(0, 1))
    assert (former, owned.is_over) == (None, False)
    assert owned.member != another.member, "brokers know them apart"
    assert sessions.known(cast(Any, alice), asked(1)) is owned


def test_a_connection_that_has_closed_opens_no_session(sessions: ShareSessions) -> None:
    gone: Any = Connection()
    gone.connection.closed = True
    with pytest.raises(KafkaError, match="SHARE_SESSION_NOT_FOUND"):
        sessions.open(gone, asked(0, 0))
    assert len(sessions) == 0


@pytest.mark.parametrize("member", ["", None, "m" * 37])
def test_a_member_id_has_a_length(sessions: ShareSessions, member: str | None) -> None:
    with pytest.raises(KafkaError, match="INVALID_REQUEST"):
        sessions.open(ONE, asked(0, 0) | {"member_id": member})
    with pytest.raises(KafkaError, match="SHARE_SESSION_NOT_FOUND"):
        sessions.known(ONE, asked(1))


def opened(sessions: ShareSessions, number: int, *, each: int, principal: str = ANONYMOUS) -> None:
    """Open so many sessions, of which a connection has `each`."""
    for index in range(number):
        connection: Any = Connection(1 + index // each, principal)
        sessions.open(connection, asked(0, 0) | {"member_id": f"{principal[-1]}{index}"})


@pytest.mark.parametrize(
    ("number", "each", "principal", "connection"),
    [(100, 100, "User:a", 1), (1_000, 10, "User:a", 999), (2_000, 10, ANONYMOUS, 999)],
)
def test_sessions_have_a_bound(
    sessions: ShareSessions, number: int, each: int, principal: str, connection: int
) -> None:
    opened(sessions, number, each=each, principal=principal)
    one_more: Any = Connection(connection, principal)
    with pytest.raises(KafkaError, match="SHARE_SESSION_LIMIT_REACHED"):
        sessions.open(one_more, asked(0, 0) | {"member_id": "one more"})
    sessions.open(cast(Any, Connection(1, principal)), asked(0, 0) | {"member_id": f"{principal[-1]}7"})
    sessions.connection_closed(1)
    sessions.open(one_more, asked(0, 0) | {"member_id": "one more"})
    assert len(sessions) == number - each + 1


def test_what_one_principal_opens_leaves_room_for_another(sessions: ShareSessions) -> None:
    opened(sessions, 1_000, each=10, principal="User:a")
    opened(sessions, 1_000, each=10, principal="User:b")
    with pytest.raises(KafkaError, match="SHARE_SESSION_LIMIT_REACHED"):
        opened(sessions, 1, each=1, principal="User:c")


def test_partitions_of_a_session_and_of_a_principal_have_a_bound(sessions: ShareSessions) -> None:
    session, _ = sessions.open(ONE, asked(0, 0))
    with pytest.raises(KafkaError, match="SHARE_SESSION_LIMIT_REACHED"):
        sessions.update(session, asked(1, *range(10_001)))
    assert [*session.parts] == [(TOPIC, 0)], "nothing of it is remembered"
    sessions.update(session, asked(1, *range(10_000)))
    for number in range(19):
        sessions.open(ONE, asked(0, *range(10_000)) | {"member_id": str(number)})
    with pytest.raises(KafkaError, match="SHARE_SESSION_LIMIT_REACHED"):
        sessions.open(ONE, asked(0, 0) | {"member_id": "one more"})
    assert len(sessions) == 20
    sessions.update(session, asked(2, forgotten=(0,)))
    sessions.open(ONE, asked(0, 0) | {"member_id": "one more"})


def test_sessions_that_are_over_leave_nothing(sessions: ShareSessions) -> None:
    opened(sessions, 30, each=10, principal="User:a")
    session = sessions.known(cast(Any, Connection(1, "User:a")), asked(1) | {"member_id": "a0"})
    for _ in range(2):
        sessions.close(session)
    for number in range(1, 4):
        sessions.connection_closed(number)
    assert [len(each) for each in vars(sessions).values() if isinstance(each, dict)] == [0, 0, 0, 0]


def test_no_two_nodes_have_one_session_with_a_broker() -> None:
    made = {share_sessions.member_of(node, "User:a", member) for node in range(9) for member in ("a", "b")}
    assert len(made) == 18
    assert all(len(member) == 22 for member in made), "as Kafka writes UUIDs"
    assert share_sessions.member_of(3, "User:a", "a") == share_sessions.member_of(3, "User:a", "a")


def test_a_broker_is_told_what_is_new_to_it() -> None:
    session = BrokerSession()
    topics, forgotten = session.ask([(TOPIC, 0), (OTHER, 0)], {})
    assert (indexes(topics), forgotten, session.epoch) == ([0, 0], [], 1)
    topics, forgotten = session.ask([(TOPIC, 0), (OTHER, 0)], {(TOPIC, 0): ACK})
    assert topics == [{"topic_id": TOPIC, "partitions": [{"partition_index": 0, "acknowledgement_batches": ACK}]}]
    topics, forgotten = session.ask([(TOPIC, 1)], {(TOPIC, 0): ACK})
    assert sorted(indexes(topics)) == [0, 1]
    assert sorted(indexes(forgotten)) == [0, 0]
    assert session.parts == {(TOPIC, 1)}
    assert session.ask([(TOPIC, 1)], {}) == ([], [])
    assert session.epoch == 4


def test_records_are_acknowledged_where_they_came_from() -> None:
    brokers = {1: BrokerSession(parts={(TOPIC, 0)}), 2: BrokerSession(parts={(TOPIC, 1)})}
    session = ShareSession(Key(ANONYMOUS, "g", "m"), "", ONE, brokers=brokers)
    acks = {(TOPIC, 0): ACK, (TOPIC, 1): ACK, (TOPIC, 2): ACK}
    theirs, nowhere = session.acks_by_broker(acks, lambda _: 3)
    assert theirs == {1: {(TOPIC, 0): ACK}, 2: {(TOPIC, 1): ACK}}
    assert nowhere == [(TOPIC, 2)]
    theirs, nowhere = session.acks_by_broker(acks, lambda _: 2)
    assert theirs == {1: {(TOPIC, 0): ACK}, 2: {(TOPIC, 1): ACK, (TOPIC, 2): ACK}}
    assert nowhere == []
    topics, forgotten = session.brokers[2].ask([(TOPIC, 1)], theirs[2])
    assert (sorted(indexes(topics)), forgotten) == ([1, 2], []), "what was forgotten before is acknowledged too"


@pytest.mark.parametrize(("count", "among"), [(500, 3), (1, 3), (0, 2), (7, 7), (2, 5)])
def test_no_more_records_come_than_a_client_wants_and_every_broker_has_its_turn(count: int, among: int) -> None:
    turns = [share_sessions.split(count, among, turn) for turn in range(among)]
    assert all(sum(turn) == count for turn in turns)
    assert {sum(each) for each in zip(*turns, strict=True)} == {count}, "over a round each gets the same"


def part(index: int, records: bytes = b"", **more: Any) -> dict[str, Any]:
    found = {"partition_index": index, "error_code": 0, "records": records, "acquired_records": []}
    return found | {"acknowledge_error_code": 0, "acknowledge_error_message": None} | more


def answer(*parts: dict[str, Any], lock: int = 30_000) -> dict[str, Any]:
    leader = {"current_leader": {"leader_id": 1, "leader_epoch": 5}}
    responses = [{"topic_id": TOPIC, "partitions": [each | leader for each in parts]}]
    return {"throttle_time_ms": 3, "error_code": 0, "acquisition_lock_timeout_ms": lock, "responses": responses}


def test_answers_of_several_brokers_become_one_that_names_none() -> None:
    gathered = Gathered()
    gathered.take(answer(part(0, b"records")))
    gathered.take(answer(part(1), part(2, error_code=6), lock=20_000))
    gathered.take(answer(part(0)))
    gathered.not_acknowledged([(TOPIC, 1)], 6)
    values = gathered.fetched()
    (topic,) = values["responses"]
    found = {each["partition_index"]: each for each in topic["partitions"]}
    assert [found[index].get("records") for index in range(3)] == [b"records", b"", b""]
    assert [found[index]["error_code"] for index in range(3)] == [0, 0, 6]
    assert [found[index]["acknowledge_error_code"] for index in range(3)] == [0, 6, 0]
    assert all(each["current_leader"] == {"leader_id": -1, "leader_epoch": -1} for each in found.values())
    assert values["node_endpoints"] == []
    assert (values["throttle_time_ms"], values["acquisition_lock_timeout_ms"]) == (3, 20_000)


def test_what_was_not_acknowledged_stays_so_whatever_comes_later() -> None:
    gathered = Gathered()
    gathered.not_acknowledged([(TOPIC, 0)], 6)
    gathered.take(answer(part(0, b"records")))
    ((found,),) = (topic["partitions"] for topic in gathered.fetched()["responses"])
    assert (found["acknowledge_error_code"], found["records"]) == (6, b"records")


def test_an_acknowledgement_that_failed_at_one_broker_has_failed() -> None:
    gathered = Gathered()
    for code in (0, 6, 0):
        gathered.take(answer(part(0, acknowledge_error_code=code)))
    ((found,),) = (topic["partitions"] for topic in gathered.fetched()["responses"])
    assert found["acknowledge_error_code"] == 6


@pytest.mark.parametrize(("first", "second", "expected"), [(b"", b"", False), (b"r", b"", True), (b"", b"r", True)])
def test_an_answer_with_records_of_any_broker_has_some(first: bytes, second: bytes, expected: bool) -> None:
    gathered = Gathered()
    gathered.take(answer(part(0, first)))
    gathered.take(answer(part(1, second)))
    assert gathered.has_records is expected


def test_an_answer_with_an_error_is_worth_as_much_as_one_with_records() -> None:
    gathered = Gathered()
    gathered.take(answer(part(0, error_code=6)))
    assert gathered.has_records


def test_a_partition_of_which_only_acknowledgements_were_asked_has_all_that_others_have() -> None:
    gathered = Gathered()
    gathered.not_acknowledged([(TOPIC, 0)], 6)
    ((found,),) = (topic["partitions"] for topic in gathered.fetched()["responses"])
    assert (found["error_code"], found["acknowledge_error_code"]) == (0, 6)


def test_the_share_of_one_record_more_moves_on_with_each_turn() -> None:
    assert [share_sessions.split(5, 3, turn) for turn in range(4)] == [[2, 2, 1], [1, 2, 2], [2, 1, 2], [2, 2, 1]]


def test_acknowledgements_of_several_brokers_are_answered_by_partition() -> None:
    gathered = Gathered()
    gathered.take_acknowledged(answer(part(1, error_message=None), lock=0))
    gathered.take_acknowledged(answer(part(2, error_code=6, error_message="moved")))
    (topic,) = gathered.acknowledged()["responses"]
    found = [(each["partition_index"], each["error_code"], each["error_message"]) for each in topic["partitions"]]
    assert found == [(1, 0, None), (2, 6, "moved")]


def test_a_partition_that_is_refused_is_answered_with_its_error() -> None:
    gathered = Gathered()
    gathered.refuse([(TOPIC, 0), (OTHER, 1)], 29)
    found = {
        (topic["topic_id"], each["partition_index"]): each["error_code"]
        for topic in gathered.fetched()["responses"]
        for each in topic["partitions"]
    }
    assert found == {(TOPIC, 0): 29, (OTHER, 1): 29}
