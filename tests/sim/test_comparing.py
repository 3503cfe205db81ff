"""The comparison of answers to Fetch: it asks and reads as brokers do, and finds what a node answers otherwise."""

from __future__ import annotations

import pytest

from tests.sim import flexible
from tests.sim.flexible import Place, Row
from tests.sim.history import History, Step
from tests.sim.kafka.tables import FETCH, SERVED
from tests.sim.mutants.edits import Edit
from tests.sim.worker import Worker
from tests.sim.world import Shape

VERSIONS = range(SERVED[1][0], SERVED[1][1] + 1)
ID = b"the id of orders"
ROWS = {
    0: Row(0, 9, 8, 2, ((7, 3), (8, 4)), b"records"),
    1: Row(1, -1, -1, -1, None, b""),
    5: Row(0, 9, 9, 2, (), b""),
}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_fetch_is_one_to_a_broker(version: int) -> None:
    topic = ID if version >= 13 else "orders"
    body = flexible.fetch(version, topic, {3: Place(5, 7, 99), 4: Place(6)}, max_wait_ms=250, isolation=1)
    asked = FETCH.decode_request(body, 0, len(body), version)
    assert (asked["max_wait_ms"], asked["min_bytes"], asked["isolation_level"]) == (250, 1, 1)
    (found,) = asked["topics"]
    assert found["topic_id" if version >= 13 else "topic"] == topic
    parts = [(each["partition"], each["fetch_offset"], each["partition_max_bytes"]) for each in found["partitions"]]
    assert parts == [(3, 5, 99), (4, 6, 1 << 20)]
    assert [each.get("current_leader_epoch") for each in found["partitions"]] == (
        [7, -1] if version >= 9 else [None] * 2
    )


@pytest.mark.parametrize("version", VERSIONS)
def test_an_answer_is_read_as_a_broker_writes_it(version: int) -> None:
    rows = [
        {
            "partition_index": index,
            "error_code": row.error,
            "high_watermark": row.high_watermark,
            "last_stable_offset": row.last_stable_offset,
            "log_start_offset": row.start,
            "aborted_transactions": row.aborted
            and [{"producer_id": producer, "first_offset": offset} for producer, offset in row.aborted],
            "preferred_read_replica": -1,
            "records": row.records,
        }
        for index, row in ROWS.items()
    ]
    rows[2]["aborted_transactions"] = []
    topic = {"topic_id": ID} if version >= 13 else {"topic": "orders"}
    answer = FETCH.encode_answer(version, 7, {"responses": [topic | {"partitions": rows}]})
    expected = ROWS if version >= 5 else {index: row._replace(start=-1) for index, row in ROWS.items()}
    assert flexible.fetched(version, answer[8:]) == expected


EDITS = {
    "an id that nobody has": Edit(
        "sidecar/gateway/plan.py",
        "REFUSED[ErrorCode.UNKNOWN_TOPIC_ID]",
        "REFUSED[ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]",
    ),
    "what is committed": Edit(
        "sidecar/gateway/whole_fetch.py",
        "limits = (fields.max_wait_ms, fields.min_bytes, fields.max_bytes, fields.isolation)",
        "limits = (fields.max_wait_ms, fields.min_bytes, fields.max_bytes, 0)",
    ),
}


def test_an_answer_that_a_node_gives_by_itself_is_found() -> None:
    """The same histories with nothing wrong in the product are right."""
    work = {
        "app": "app0", "topic": "owned", "library": "java", "mode": "", "ids": False, "every": 0.05, "batches": 10,
        "burst": 1, "partitions": 2,
    }  # fmt: skip
    histories = [
        History(seed, Shape(nodes=2), 1.0, (Step(0.1, "produce", work),), {}, compares=True) for seed in range(6)
    ]
    with Worker() as right:
        outcomes = [right.play(each) for each in histories]
    assert [each.wrong for each in outcomes] == [[]] * len(histories)
    assert all(each.effects["answers compared"] > 10 for each in outcomes)
    for edit in EDITS.values():
        with Worker((edit,)) as wrong:
            assert any("a Fetch is answered otherwise" in said for each in histories for said in wrong.play(each).wrong)
