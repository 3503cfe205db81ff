"""What a batch says of sequence ids, in every codec; what is refused with 87; and the batch without its duplicates."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from sidecar.dedup import batches
from sidecar.dedup.batches import Contents
from sidecar.dedup.content import Content, TooLargeAtOnceError, payload_of
from sidecar.dedup.marks import Mark, Marks, Pushed
from sidecar.protocol import limits
from sidecar.protocol.batch import HEADER_BYTES, crc_matches, read_header
from sidecar.protocol.errors import ErrorCode, KafkaError
from tests.unit.dedup.paper import HEADERS, Rec, batch, ids_of, read, recs

ME, OTHER = b"me", b"other"
CODECS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}
codecs = pytest.mark.parametrize("codec", CODECS.values(), ids=list(CODECS))


def content(found: list[Rec], codec: int = 0, name: bytes | None = ME) -> Content:
    return Content(batch(found, codec), len(found), HEADERS, name)


def known(**ids: int) -> Marks:
    """The log holds these ids by name."""
    marks = Marks()
    for name, sequence_id in ids.items():
        marks.learn(Mark(name.encode(), sequence_id, -1, 0))
    return marks


def kept(found: Content, marks: Marks) -> list[int | None] | None:
    records = found.kept(marks)
    return None if records is None else [record.sequence_id for record in records]


# What it says -------------------------------------------------------------------------------------------------------


@codecs
@pytest.mark.parametrize("name", [ME, None])
def test_a_batch_without_ids_says_nothing_and_needs_no_name(codec: int, name: bytes | None) -> None:
    found = content(recs(None, None), codec, name)
    assert (found.has_ids, found.marks, found.names, found.first, found.last) == (False, (), [], -1, -1)


@codecs
def test_rising_ids_are_told_by_the_first_and_the_last(codec: int) -> None:
    found = content(recs(5, 7, 1_000), codec)
    assert (found.first, found.last, found.has_ids) == (5, 1_000, True)
    assert found.marks == (Pushed(ME, 1_000, 2),)
    assert found.names == [ME]


@codecs
def test_ids_of_several_names_are_told_by_the_highest_of_each(codec: int) -> None:
    found = content([Rec(5, b"a"), Rec(9), Rec(3, b"b"), Rec(6, b"a"), Rec(8)], codec)
    assert (found.first, found.last) == (-1, -1)
    assert set(found.marks) == {Pushed(b"a", 6, 3), Pushed(ME, 9, 1), Pushed(b"b", 3, 2)}


def test_a_name_of_its_own_comes_before_the_sessions() -> None:
    found = content(recs(5, 6, name=OTHER))
    assert found.marks == (Pushed(OTHER, 6, 1),)
    assert content(recs(5, 6, name=OTHER), name=None).names == [OTHER]


def test_ids_that_do_not_rise_are_told_by_the_highest() -> None:
    assert content(recs(5, 9, 7)).marks == (Pushed(ME, 9, 1),)


# What is refused ----------------------------------------------------------------------------------------------------

REFUSED = {
    "an id is missing in the first record": ([Rec(None), Rec(1)], "record 0 of the batch has no sequence id"),
    "an id is missing in the last record": ([Rec(1), Rec(None)], "record 1 of the batch has no sequence id"),
    "an id is missing beside a name": ([Rec(1, OTHER), Rec(None, OTHER)], "record 1 of the batch has no sequence id"),
    "an id is negative": ([Rec(1), Rec(b"-1")], "record 1 of the batch: the sequence id '-1' is negative"),
    "an id is no number": ([Rec(b"x")], "record 0 of the batch: the sequence id 'x' is not a decimal integer"),
    "an id is too large": ([Rec(2**63)], "larger than"),
    "a name is empty": ([Rec(1, b"")], "record 0 of the batch: the producer name is empty"),
    "a name is too long": ([Rec(1, b"n" * 256)], "longer than 255 bytes"),
    "a name is not UTF-8": ([Rec(1, b"\xff")], "is not UTF-8"),
}


@codecs
@pytest.mark.parametrize(("found", "message"), REFUSED.values(), ids=list(REFUSED))
def test_a_batch_is_refused_where(codec: int, found: list[Rec], message: str) -> None:
    with pytest.raises(KafkaError, match=message) as refused:
        content(found, codec)
    assert refused.value.code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("found", [recs(1, 2), recs(2, 1), [Rec(1, OTHER), Rec(2)]], ids=str)
def test_ids_without_a_name_are_refused_and_the_client_is_told_what_to_set(found: list[Rec]) -> None:
    with pytest.raises(KafkaError, match=r"client\.id.*sidecar-producer-name") as refused:
        content(found, name=None)
    assert refused.value.code == ErrorCode.INVALID_RECORD


def test_records_with_a_name_and_no_ids_are_refused_without_a_word_of_others_that_have_some() -> None:
    with pytest.raises(KafkaError) as refused:
        content(recs(None, None, name=OTHER))
    assert refused.value.code == ErrorCode.INVALID_RECORD
    assert "others have" not in (refused.value.message or "")


@codecs
def test_records_that_do_not_parse_are_refused_for_good(codec: int) -> None:
    data = batch(recs(1, 2, 3), codec)
    with pytest.raises(KafkaError) as refused:
        Content(data, 2, HEADERS, ME)
    assert refused.value.code == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_bomb_is_too_large(monkeypatch: pytest.MonkeyPatch, codec: int) -> None:
    data = batch([Rec(1, value=bytes(10_000))] * 3, codec)
    assert len(payload_of(data)) > 30_000
    monkeypatch.setattr("sidecar.protocol.limits.BATCH_BYTES", 30_000)
    with pytest.raises(KafkaError) as refused:
        payload_of(data)
    assert refused.value.code == ErrorCode.MESSAGE_TOO_LARGE


def test_an_unknown_codec_is_told() -> None:
    data = batch(recs(1))
    data[22] = 5
    with pytest.raises(KafkaError) as refused:
        Content(data, 1, HEADERS, ME)
    assert refused.value.code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE


# Without duplicates -------------------------------------------------------------------------------------------------


def test_what_the_log_holds_is_left_out() -> None:
    """Pulsar drops 4 to 8 as a whole where it holds 5, and 6 to 8 are lost (issue 6273)."""
    found = content(recs(4, 5, 6, 7, 8))
    assert kept(found, known(me=5)) == [6, 7, 8]
    assert kept(found, known(me=8)) == []
    assert kept(found, known(me=3)) == [4, 5, 6, 7, 8]


def test_every_name_is_judged_by_itself() -> None:
    found = content([Rec(1, b"a"), Rec(1, b"b"), Rec(2, b"a"), Rec(2, b"b")])
    assert kept(found, known(a=2, b=1)) == [2]
    assert kept(found, known(a=1)) == [1, 2, 2]


def test_a_repeat_within_the_batch_is_left_out() -> None:
    assert kept(content(recs(5, 5, 6, 6)), Marks()) == [5, 6]
    assert kept(content(recs(5, 9, 7, 10)), Marks()) == [5, 9, 10]
    assert kept(content([Rec(5, b"a"), Rec(5, b"b"), Rec(5, b"a")]), Marks()) == [5, 5]


def test_nothing_is_told_while_one_record_is_unsettled() -> None:
    marks = known(me=3)
    marks.push((Pushed(ME, 5, 0),), 7)
    assert kept(content(recs(2, 3, 6)), marks) == [6]
    assert kept(content(recs(2, 4, 6)), marks) is None
    assert kept(content(recs(5)), marks) is None


@codecs
def test_what_is_left_goes_on_in_the_same_codec_dense_and_otherwise_as_it_was(codec: int) -> None:
    data = batch([Rec(4), Rec(1, OTHER), Rec(5), Rec(6), Rec(7, b"third")], codec)
    found = Content(data, 5, HEADERS, ME)
    records = found.kept(known(me=5, other=0))
    assert records is not None
    smaller, marks = found.without_duplicates(records)
    before, after = read(data), read(smaller)
    assert [record.offset for record in after] == [0, 1, 2]
    assert [record[1:] for record in after] == [before[index][1:] for index in (1, 3, 4)]
    assert set(marks) == {Pushed(OTHER, 1, 0), Pushed(ME, 6, 1), Pushed(b"third", 7, 2)}
    header = read_header(smaller, 0, len(smaller))
    assert (header.records, header.last_offset_delta, header.size) == (3, 2, len(smaller))
    assert (header.attributes & 7, header.base_timestamp) == (codec, read_header(data, 0, len(data)).base_timestamp)
    assert crc_matches(smaller, 0, len(smaller))
    assert Content(memoryview(smaller), 3, HEADERS, ME).marks == marks


def test_the_clients_own_batch_is_not_touched() -> None:
    data = batch(recs(4, 5, 6))
    before = bytes(data)
    found = Content(data, 3, HEADERS, ME)
    records = found.kept(known(me=4))
    assert records is not None
    smaller, _ = found.without_duplicates(records)
    assert bytes(data) == before
    assert ids_of(smaller) == [5, 6]
    assert len(payload_of(data)) == len(data) - HEADER_BYTES


# What it may cost ---------------------------------------------------------------------------------------------------


def test_more_names_than_a_partition_remembers_are_refused_before_they_are_kept() -> None:
    found = [Rec(1, b"%d" % number) for number in range(12)]
    with pytest.raises(KafkaError, match="more than 11 producer names") as caught:
        Content(batch(found), len(found), HEADERS, ME, names_limit=11)
    assert caught.value.code == ErrorCode.INVALID_RECORD
    assert len(Content(batch(found), len(found), HEADERS, ME, names_limit=12).names) == 12


@pytest.mark.parametrize("ids", [range(6), [5, 4, 3, 2, 1, 0]], ids=["rising", "falling"])
def test_more_records_with_ids_than_a_batch_may_have_are_refused(
    monkeypatch: pytest.MonkeyPatch, ids: range | list[int]
) -> None:
    monkeypatch.setattr(limits, "BATCH_RECORDS", 5)
    with pytest.raises(KafkaError, match="6 records with sequence ids in one batch, 5 at most"):
        content(recs(*ids))
    content(recs(*[None] * 6))


@pytest.mark.parametrize(("codec", "limit"), [(0, 100), (4, 100), (4, 10_000)])
def test_what_would_hold_the_event_loop_is_not_opened_at_once(
    monkeypatch: pytest.MonkeyPatch, codec: int, limit: int
) -> None:
    """Too many bytes, or too many records that have to be taken apart."""
    monkeypatch.setattr(limits, "BATCH_AT_ONCE_BYTES", limit)
    monkeypatch.setattr(limits, "RECORDS_AT_ONCE", 5)
    found = recs(6, 5, 4, 3, 2, 1)
    with pytest.raises(TooLargeAtOnceError):
        Content(batch(found, codec), len(found), HEADERS, ME, at_once=True)
    whole = Content(batch(found, codec), len(found), HEADERS, ME)
    assert whole.is_large
    whole.slim()
    assert whole.takes_long(Marks())
    whole.records()
    assert not whole.takes_long(Marks())


@pytest.mark.parametrize(("in_turn", "at_once"), [(True, True), (True, False), (False, True)])
def test_only_what_a_turn_opens_at_once_counts_for_it(
    monkeypatch: pytest.MonkeyPatch, in_turn: bool, at_once: bool
) -> None:
    turn = SimpleNamespace(running=in_turn, opened=0, elements=0)
    monkeypatch.setattr(batches, "TURN", turn)
    contents, data = Contents(HEADERS, b"me", 10), batch(recs(1, 2))
    content = contents.opened(data, 2, at_once=at_once)
    counts = in_turn and at_once
    assert turn.opened == (content.size if counts else 0)
    turn.opened = limits.OPENED_A_TURN
    contents.opened(data, 2, at_once=at_once)
    turn.opened = limits.OPENED_A_TURN + 1
    if counts:
        with pytest.raises(TooLargeAtOnceError):
            contents.opened(data, 2, at_once=at_once)
        assert contents.at_once(data, 2) is None
    else:
        contents.opened(data, 2, at_once=at_once)
