"""A sentence says who, what and when, and never fails."""

from __future__ import annotations

import json
from typing import Any

from tests.sim import wire
from tests.sim.behaviour.entries import Entry, Record, Teller, context, parse

REQUEST = (
    (wire.PRODUCE).to_bytes(2, "big") + b"\0\x08\0\0\0\x05\0\x01x"
    + wire.produce("owned", {1: wire.batch_of([wire.Writable(b"hello")], 0, 7, 2, 5)}, 100)
)  # fmt: skip
REFUSED = wire.Writer().i32(5).i32(1).text("owned").i32(1).i32(1).i16(90).i64(-1).i64(-1).i64(-1).i32(0).text("no")
MARKER = wire.with_crc(
    wire._BATCH.pack(3, 61 - 12 + 16, 0, 2, 0, 0x20, 0, 0, 0, 7, 2, -1, 1)
    + b"\x1e\0\0\0\x08\0\0\0\0\x0c\0\0\0\0\0\0\0"[:16]
)  # fmt: skip


def text(data: bytes) -> str:
    return data.decode("latin-1")


def record_of(*lines: Any) -> Record:
    head = {"history": ["seed 1: a world", "  0.250  freeze node      node=1"], "wrong": []}
    return parse("\n".join(map(json.dumps, [head, *lines])).encode())


def test_an_answer_is_told_with_its_request() -> None:
    record = record_of(
        [100, "asked", "client-a", 1, "node-1", text(REQUEST)],
        [200, "answer", "client-a", 1, "node-1", text(REFUSED.i32(0).done())],
    )
    tell = Teller(record)
    assert "1 records at 0 by producer 7 epoch 2 from sequence 5: hello" in tell.sentence(record.asked[0])
    told = tell.sentence(record.entries[0])
    assert told.startswith("node-1 answers client-a on connection 1: ")
    assert "error_code=90 PRODUCER_FENCED" in told
    assert told.endswith("to Produce v8 of 0.0001")
    assert tell.label(record.entries[0]) == "answer to Produce v8"
    assert tell.topics(record.entries[0], {"owned", "own"}) == {"owned"}


def test_a_marker_is_told_as_one() -> None:
    record = record_of([100, "record", "owned", 1, 3, text(MARKER)])
    assert (
        Teller(record).sentence(record.entries[0]) == "owned/1 gets at offset 3: an abort marker of producer 7 epoch 2"
    )
    assert Teller(record).label(record.entries[0]) == "record of a topic: an abort marker"


def test_a_script_is_told_without_its_keys() -> None:
    script = [
        100,
        "script",
        "node-1",
        "claim",
        ["1", "sidecar:{x}:k", "owned", ""],
        ["*2\r\n$1\r\n7\r\n$-1\r\n", [["SET", "sidecar:{x}:k", "1"]]],
    ]
    record = record_of(script)
    told = Teller(record).sentence(record.entries[0])
    assert told == "node-1 runs claim in Redis with owned '': it replies 7 nil, and writes SET k 1"


def test_what_cannot_be_decoded_is_told_as_bytes() -> None:
    record = record_of(
        [1, "asked", "client-a", 1, "node-1", text(REQUEST[:20])],
        [2, "answer", "client-a", 1, "node-1", text(b"\0\0\0\x05\xff")],
        [3, "answer", "client-a", 1, "node-1", None],
        [4, "record", "__sidecar_default", 0, 3, "\xff"],
    )
    for entry in (*record.asked, *record.entries):
        assert Teller(record).sentence(entry)
    assert [at for at, _ in record.steps] == [250_000]
    assert isinstance(record.entries[0], Entry)


def test_a_story_tells_that_a_connection_closed_and_no_look_for_leaders() -> None:
    look = (wire.METADATA).to_bytes(2, "big") + b"\0\x04\0\0\0\x06\0\x01x" + wire.metadata(["owned"])
    record = record_of(
        [40, "record", "other", 0, 0, text(MARKER)],
        [50, "asked", "client-a", 1, "node-1", None],
        [90, "asked", "client-a", 2, "node-1", text(look)],
        [100, "asked", "client-a", 2, "node-1", text(REQUEST)],
        [150, "script", "node-1", "queue", ["1", "k", "owned"], ["$-1\r\n", []]],
        [160, "answer", "client-b", 1, "node-1", None],
        [200, "record", "owned", 1, 3, text(MARKER)],
    )
    told = [line for _, line in context(Teller(record), record, record.entries[-1], record.entries[:-1], 10)]
    assert told[0] == "client-a closed connection 1 to node-1"
    assert told[1].startswith("client-a asks node-1 on connection 2: Produce v8")
    assert len(told) == 2
