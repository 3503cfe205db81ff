"""What a reader asks, and what it is given of what was found."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from sidecar.fanout.question import Asked, Question, asked_by, fitting, questions_of
from sidecar.protocol.calls.tails import Fetched, Position, by_name, element_of, error_of
from sidecar.protocol.errors import ErrorCode


def asked(partition: int, most_bytes: int = 100) -> Asked:
    return Asked(Question(Position(b"orders", partition, -1, 7), 0), most_bytes)


def found(*sizes: int) -> dict[Question, Fetched]:
    return {asked(index).question: Fetched(0, size, b"") for index, size in enumerate(sizes) if size}


def test_a_partition_of_a_request_is_a_question_about_the_log_behind_its_name() -> None:
    position = Position(b"orders", 3, 5, 7)
    assert asked_by(element_of(position, 1000), b"orders", 1, 11) == Asked(Question(position, 1), 1000)


def test_a_request_is_a_question_for_each_partition_or_none_if_one_cannot_be_shared() -> None:
    positions = [Position(b"orders", index, 5, 7 + index) for index in (3, 4)]
    elements = [element_of(position, 1000) for position in positions]
    buffer = b"".join(elements)
    parts: list[Any] = []
    for index, element in enumerate(elements):
        part = SimpleNamespace(start=index * len(element), end=(index + 1) * len(element))
        parts.append((part, (b"source", positions[index].partition)))

    def ids(log: bytes) -> bytes:
        assert log == b"source"
        return b""

    of_source = [position._replace(log=b"source") for position in positions]
    assert questions_of(buffer, parts, 1, 11, ids) == [Asked(Question(position, 1), 1000) for position in of_source]
    assert questions_of(buffer, [], 1, 11, ids) == []


def taken(asked: list[Asked], found: dict[Question, Fetched], most_bytes: int = 100) -> tuple[list[int | None], Any]:
    """Bytes of records by question, and what is too large."""
    fits, too_large = fitting(asked, found, most_bytes)
    return [each and each.record_bytes for each in fits], too_large


def test_all_that_fits_is_taken() -> None:
    assert taken([asked(0), asked(1)], found(60, 40)) == ([60, 40], None)


def test_what_a_reader_does_not_take_of_one_partition_leaves_room_for_the_next() -> None:
    assert taken([asked(0, 50), asked(1)], found(60, 100)) == ([None, 100], asked(0, 50))


def test_partitions_that_come_first_leave_less_for_the_others() -> None:
    assert taken([asked(0), asked(1), asked(2)], found(60, 50, 40)) == ([60, None, 40], asked(1))


def test_what_was_not_found_is_neither_taken_nor_too_large() -> None:
    assert taken([asked(0)], {}) == ([None], None)


def test_an_error_about_a_topics_id_is_one_about_its_name_to_a_reader_by_name() -> None:
    unknown = error_of(3, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    for code in (ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INCONSISTENT_TOPIC_ID):
        assert by_name(error_of(3, code)) == unknown
    moved = error_of(3, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert by_name(moved) is moved
