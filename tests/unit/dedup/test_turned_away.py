"""What one connection was not let in with: what comes behind it, when it comes again, and when it is too late."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

import pytest

from sidecar.dedup import turned_away
from sidecar.dedup.content import Content, TooLargeAtOnceError
from sidecar.dedup.marks import Pushed
from sidecar.dedup.turned_away import PATIENCE_S, Kept, KeptBytes, KeptRoom, Turn, TurnedAway
from sidecar.protocol import limits
from sidecar.protocol.errors import KafkaError
from sidecar.protocol.limits import BATCH_AT_ONCE_BYTES
from tests.unit.dedup.paper import HEADERS, batch, recs

if TYPE_CHECKING:
    from collections.abc import Callable

NAME, OTHER = b"billing", b"shipping"


def ids(first: int, last: int | None = None, name: bytes = NAME) -> Content:
    """A batch with these ids of one name."""
    return both({name: (first, first if last is None else last)})


def both(each: dict[bytes, tuple[int, int]]) -> Content:
    """A batch with ids of several names."""
    marks = tuple(Pushed(name, last, 0) for name, (_, last) in each.items())
    lowest = {name: first for name, (first, _) in each.items()}
    return cast(Content, SimpleNamespace(marks=marks, lowest=lowest))


class Log:
    """One connection whose batches are written as soon as they may go."""

    def __init__(self) -> None:
        self.away = TurnedAway()

    def asks(self, batch: Content, now: float = 0.0) -> Turn:
        turn = self.away.turn_of(batch, now)
        if turn is Turn.GO:
            self.away.written(batch)
        return turn


@pytest.fixture
def log() -> Log:
    return Log()


def test_where_nothing_was_turned_away_all_go(log: Log) -> None:
    assert not log.away
    assert [log.asks(ids(number)) for number in (1, 2, 1)] == [Turn.GO] * 3


def test_what_comes_behind_comes_again_until_the_first_one_came(log: Log) -> None:
    log.away.add(ids(1), 0.0)
    assert [log.asks(ids(number)) for number in (2, 3)] == [Turn.AGAIN] * 2
    assert [log.asks(ids(number)) for number in (1, 2, 3)] == [Turn.GO] * 3
    assert not log.away


def test_those_that_were_turned_away_go_in_the_order_of_their_ids(log: Log) -> None:
    for number in (3, 1, 2):
        log.away.add(ids(number), 0.0)
    assert [log.asks(ids(number)) for number in (3, 2, 1, 3, 2, 3)] == [
        Turn.AGAIN, Turn.AGAIN, Turn.GO, Turn.AGAIN, Turn.GO, Turn.GO
    ]  # fmt: skip
    assert not log.away


def test_a_batch_that_has_all_of_them_counts_for_each(log: Log) -> None:
    for number in (1, 2, 3):
        log.away.add(ids(number), 0.0)
    assert log.asks(ids(1, 2)) is Turn.GO
    assert log.asks(ids(4)) is Turn.AGAIN
    assert log.asks(ids(3)) is Turn.GO
    assert not log.away


def test_what_is_in_front_goes_and_leaves_the_others_awaited(log: Log) -> None:
    log.away.add(ids(5), 0.0)
    assert log.asks(ids(3, 4)) is Turn.GO
    assert log.asks(ids(6)) is Turn.AGAIN


def test_names_do_not_wait_for_each_other(log: Log) -> None:
    log.away.add(ids(1), 0.0)
    assert log.asks(ids(2, name=OTHER)) is Turn.GO
    assert log.asks(ids(2)) is Turn.AGAIN


def test_a_batch_of_two_names_waits_for_either(log: Log) -> None:
    log.away.add(ids(1), 0.0)
    assert log.asks(both({OTHER: (7, 7), NAME: (2, 2)})) is Turn.AGAIN
    assert log.asks(both({OTHER: (7, 7), NAME: (1, 1)})) is Turn.GO
    assert not log.away


def test_one_that_does_not_come_for_so_long_was_given_up(log: Log) -> None:
    log.away.add(ids(1), 10.0)
    assert log.asks(ids(2), 10.0 + PATIENCE_S) is Turn.AGAIN
    assert log.asks(ids(2), 10.1 + PATIENCE_S) is Turn.GO


def test_what_was_given_up_is_late_once_higher_ids_are_written(log: Log) -> None:
    log.away.add(ids(1), 0.0)
    assert log.asks(ids(2), PATIENCE_S + 1) is Turn.GO
    assert log.asks(ids(1), PATIENCE_S + 2) is Turn.LATE
    assert log.asks(ids(3), PATIENCE_S + 2) is Turn.GO


def test_what_was_given_up_goes_while_nothing_higher_is_written(log: Log) -> None:
    log.away.add(ids(1), 0.0)
    assert log.asks(ids(1), PATIENCE_S + 1) is Turn.GO


def test_one_that_is_turned_away_again_is_waited_for_anew(log: Log) -> None:
    log.away.add(ids(1), 0.0)
    log.away.add(ids(1), PATIENCE_S)
    assert log.asks(ids(2), PATIENCE_S + 1) is Turn.AGAIN


def test_those_behind_it_that_are_turned_away_do_not_make_it_waited_for_longer(log: Log) -> None:
    log.away.add(ids(1), 0.0)
    log.away.add(ids(2), PATIENCE_S)
    assert log.asks(ids(2), PATIENCE_S + 1) is Turn.GO


def test_one_that_comes_is_a_sign_that_the_next_ones_come(log: Log) -> None:
    for number in (1, 2):
        log.away.add(ids(number), 0.0)
    assert log.asks(ids(1), PATIENCE_S) is Turn.GO
    assert log.asks(ids(3), PATIENCE_S + 1) is Turn.AGAIN


def test_what_was_refused_holds_nothing_up_and_is_late_behind_higher_ids(log: Log) -> None:
    log.away.refuse(ids(1))
    assert log.away
    assert log.asks(ids(2)) is Turn.GO
    assert log.asks(ids(1)) is Turn.LATE


def test_what_was_refused_may_come_as_long_as_nothing_higher_is_written(log: Log) -> None:
    log.away.refuse(ids(1))
    assert [log.asks(ids(number)) for number in (1, 2)] == [Turn.GO] * 2


def test_what_another_session_wrote_meanwhile_is_a_duplicate(log: Log) -> None:
    """A standby was refused; the one before it wrote the same ids and more, and left."""
    log.away.refuse(ids(2))
    assert [log.asks(ids(number)) for number in (2, 3)] == [Turn.GO] * 2


def test_what_was_refused_is_late_however_it_is_cut(log: Log) -> None:
    log.away.refuse(ids(2, 5))
    log.away.written(ids(6))
    assert [log.asks(batch) for batch in (ids(1), ids(1, 2), ids(3), ids(5, 9), ids(6))] == [
        Turn.GO, Turn.LATE, Turn.LATE, Turn.LATE, Turn.GO
    ]  # fmt: skip


def test_what_came_after_all_is_not_late_any_more(log: Log) -> None:
    for found in (ids(1, 3), ids(5), ids(7, 9)):
        log.away.refuse(found)
    assert [log.asks(found) for found in (ids(1), ids(2, 5), ids(7, 7), ids(8, 8), ids(9))] == [Turn.GO] * 5
    assert not log.away
    assert [log.asks(ids(number)) for number in (1, 5, 9)] == [Turn.GO] * 3


def test_late_is_told_by_name(log: Log) -> None:
    log.away.refuse(ids(1))
    log.away.written(ids(9, name=OTHER))
    assert log.asks(ids(1, name=OTHER)) is Turn.GO
    assert log.asks(ids(1)) is Turn.GO


def test_only_so_many_are_remembered_as_late(log: Log) -> None:
    for number in range(turned_away._LATE_KEPT + 1):
        log.away.refuse(ids(number))
    log.away.written(ids(10_000))
    assert [log.asks(ids(number)) for number in (0, 1)] == [Turn.GO, Turn.LATE]


# What is kept as it came ----------------------------------------------------------------------------------------------


class Bytes(KeptRoom):
    """Room for so many bytes."""

    def __init__(self, left: int) -> None:
        super().__init__(KeptBytes())
        self.left = left

    def take(self, size: int) -> bool:
        if size > self.left:
            return False
        self.left -= size
        return True

    def give_back(self, size: int) -> None:
        self.left += size


def kept(away: TurnedAway, number: int, room: Bytes, *, comes_again: bool = True) -> None:
    away.keep(batch(recs(number)), Kept(1, comes_again, 0.0), room)


def look(away: TurnedAway, room: Bytes) -> None:
    away.open(lambda found, records: Content(found, records, HEADERS, NAME, at_once=True), room)


def test_what_was_kept_counts_once_it_is_opened(log: Log) -> None:
    room = Bytes(10_000)
    for number in (1, 1, 3):
        kept(log.away, number, room)
    kept(log.away, 7, room, comes_again=False)
    assert room.left == 10_000 - 3 * len(batch(recs(1)))
    look(log.away, room)
    assert room.left == 10_000
    assert [log.asks(ids(number)) for number in (2, 1, 3, 8, 7)] == [
        Turn.AGAIN, Turn.GO, Turn.GO, Turn.GO, Turn.LATE
    ]  # fmt: skip


def test_what_was_refused_for_good_makes_room_for_what_comes_again(log: Log) -> None:
    room = Bytes(2 * len(batch(recs(1))))
    for number in (1, 2):
        kept(log.away, number, room, comes_again=False)
    kept(log.away, 3, room)
    assert not log.away.is_lost
    kept(log.away, 4, room)
    kept(log.away, 5, room, comes_again=False)
    assert not log.away.is_lost
    kept(log.away, 6, room)
    assert log.away.is_lost, "there was no room for one that comes again"


def test_what_is_too_large_to_be_looked_at_at_once_is_lost_track_of(log: Log, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sidecar.protocol.limits.BATCH_AT_ONCE_BYTES", 10)
    room = Bytes(10_000)
    kept(log.away, 1, room, comes_again=False)
    look(log.away, room)
    assert not log.away.is_lost
    kept(log.away, 1, room)
    look(log.away, room)
    assert log.away.is_lost


@pytest.mark.parametrize("failure", [TooLargeAtOnceError, lambda: KafkaError(2, "damaged")], ids=["large", "damaged"])
def test_batches_that_cannot_be_opened_cost_as_much_as_others(log: Log, failure: Callable[[], Exception]) -> None:
    """512 of 1 KB of gzip, each of a megabyte, held the event loop for two seconds."""
    tried: list[int] = []

    def opened(found: memoryview, records: int) -> Content:
        tried.append(len(found))
        raise failure()

    room = Bytes(1_000_000)
    for number in range(500):
        kept(log.away, number, room)
    log.away.open(opened, room)
    assert len(tried) <= 8
    assert log.away.is_lost


def test_what_was_opened_counts_against_what_may_be(log: Log) -> None:
    opened: list[int] = []

    def large(found: memoryview, records: int) -> Content:
        opened.append(len(found))
        content = Content(found, records, HEADERS, NAME, at_once=True)
        content.size = BATCH_AT_ONCE_BYTES
        return content

    room = Bytes(1_000_000)
    for number in range(100):
        kept(log.away, number, room)
    log.away.open(large, room)
    assert len(opened) == 8


def test_small_batches_are_all_opened(log: Log) -> None:
    room = Bytes(1_000_000)
    for number in range(1, 101):
        kept(log.away, number, room)
    look(log.away, room)
    assert not log.away.is_lost
    assert log.asks(ids(1, 100)) is Turn.GO
    assert not log.away


def test_a_batch_that_cannot_be_read_is_left_to_the_gate(log: Log) -> None:
    """Those behind it are opened, and it is lost track of by nobody: the gate refuses it for good."""
    room, tried = Bytes(10_000), list[int]()

    def opened(found: memoryview, records: int) -> Content:
        tried.append(records)
        if len(tried) == 1:
            raise KafkaError(2, "damaged")
        return Content(found, records, HEADERS, NAME, at_once=True)

    kept(log.away, 1, room)
    kept(log.away, 3, room)
    log.away.open(opened, room)
    assert not log.away.is_lost
    assert [log.asks(ids(number)) for number in (1, 4, 3)] == [Turn.GO, Turn.AGAIN, Turn.GO]


@pytest.mark.parametrize("again", [(True, False), (False, True)])
def test_a_batch_that_was_kept_twice_comes_again_if_it_once_did(log: Log, again: tuple[bool, bool]) -> None:
    room = Bytes(10_000)
    for comes_again in again:
        kept(log.away, 3, room, comes_again=comes_again)
    look(log.away, room)
    assert [log.asks(ids(number)) for number in (4, 3, 4)] == [Turn.AGAIN, Turn.GO, Turn.GO]
    assert not log.away


def test_retries_under_another_stamp_are_one_batch(log: Log) -> None:
    room = Bytes(10_000)
    kept(log.away, 3, room)
    left = room.left
    stamped = batch(recs(3))
    stamped[:12] = b"\x01" * 12
    stamped[43:57] = b"\x01" * 14
    log.away.keep(stamped, Kept(1, True, 0.0), room)
    assert room.left == left
    stamped[57:61] = b"\x00\x00\x00\x02"
    log.away.keep(stamped, Kept(2, True, 0.0), room)
    assert room.left < left


def test_a_batch_without_ids_is_forgotten_once_it_is_opened(log: Log) -> None:
    room = Bytes(10_000)
    for comes_again in (True, False):
        log.away.keep(batch(recs(None, None)), Kept(2, comes_again, 0.0), room)
        look(log.away, room)
        assert not log.away


def test_ids_that_were_refused_are_forgotten_piece_by_piece(log: Log) -> None:
    """What is left of them is late: the ids before, behind, and on both sides of those that came after all."""
    log.away.refuse(ids(2, 9))
    assert log.asks(ids(1, 3)) is Turn.GO
    log.away.refuse(ids(12, 19))
    assert log.asks(ids(18, 30)) is Turn.GO
    assert [log.asks(ids(number)) for number in (3, 4, 9, 10, 11, 12, 17, 18)] == [
        Turn.GO, Turn.LATE, Turn.LATE, Turn.GO, Turn.GO, Turn.LATE, Turn.LATE, Turn.GO,
    ]  # fmt: skip
    log.away.refuse(ids(40, 50))
    assert log.asks(ids(44, 45)) is Turn.GO
    assert [log.asks(ids(number)) for number in (40, 45, 50)] == [Turn.LATE] * 2 + [Turn.GO]


def test_what_is_waited_for_is_forgotten_by_the_ids_that_came(log: Log) -> None:
    for number in (3, 5, 7, 9):
        log.away.add(ids(number), 0.0)
    assert log.asks(ids(2)) is Turn.GO
    assert log.asks(ids(3, 7)) is Turn.GO
    assert log.asks(ids(10)) is Turn.AGAIN
    assert log.asks(ids(9)) is Turn.GO
    assert not log.away


def test_patience_is_counted_from_the_last_sign_of_the_first_one(log: Log) -> None:
    log.away.add(ids(3), 0.0)
    assert log.asks(ids(4), PATIENCE_S) is Turn.AGAIN
    log.away.add(ids(3), PATIENCE_S)
    assert log.asks(ids(4), 2 * PATIENCE_S) is Turn.AGAIN
    assert log.asks(ids(4), 2 * PATIENCE_S + 0.1) is Turn.GO
    assert log.asks(ids(3), 2 * PATIENCE_S + 0.1) is Turn.LATE


# Room -----------------------------------------------------------------------------------------------------------------


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> KeptBytes:
    """Room for 100 bytes and 3 batches of a connection, 250 bytes in all."""
    for name, most in (("KEPT_BYTES", 100), ("KEPT_BATCHES", 3), ("KEPT_IN_ALL_BYTES", 250)):
        monkeypatch.setattr(limits, name, most)
    return KeptBytes()


def test_a_connection_has_room_for_so_many_bytes_and_batches(few: KeptBytes) -> None:
    room = few.of(1)
    assert [room.take(size) for size in (60, 41, 40, 0, 0)] == [True, False, True, True, False]
    room.give_back(40)
    assert [room.take(size) for size in (41, 40, 0)] == [False, True, False]


def test_all_connections_share_what_there_is(few: KeptBytes) -> None:
    assert [few.of(connection).take(100) for connection in (1, 2, 3)] == [True, True, False]
    assert few.of(3).take(50)
    few.of(1).give_back(100)
    assert few.of(4).take(100)
    few.forget(2)
    assert few.of(5).take(100)
    assert few.in_all == 250
    few.forget(6)
    assert few.of(2).take(0)
    assert few.in_all == 250
