"""Figures of shadow topics, their aims and tables; the subscribers that take them."""

from __future__ import annotations

import json
import struct
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from benchmarks.__main__ import main
from benchmarks.report import replace_between
from benchmarks.shadows import report
from benchmarks.shadows.crowd import Appended, Crowd, Order, Receipts
from benchmarks.shadows.fanout import Found, Load, lag_of, largest_lag
from benchmarks.shadows.reading import By, Read, Round
from benchmarks.shadows.run import QUICK, Results, Work
from benchmarks.shadows.subscriber import Limits, Subscriber
from sidecar.changelog.records import RawRecord, build_batch
from sidecar.protocol import fetch
from sidecar.protocol.primitives import Octets

ROOT = Path(__file__).parents[3]
AROUND: dict[str, Any] = {"cores": 2, "cpu": "a CPU", "kafka": "4.1.1", "java": 17, "python": "3.11.7"}


class Transport:
    """Remembers what is written."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    def write(self, data: bytes) -> None:
        self.written.append(data)


def asked(transport: Transport, version: int) -> int:
    """The offset of the last request."""
    frame = transport.written[-1]
    (part,) = fetch.walk(frame, 14 + len(b"subscriber"), len(frame), version).parts
    return struct.unpack_from(">q", frame, part.start + 8)[0]


def answer(version: int, *bases: int, error: int = 0, aborted: int = 0) -> bytes:
    """An answer of batches of two records each."""
    records = b""
    for base in bases:
        batch = build_batch([RawRecord(b"", b"x"), RawRecord(b"", b"y")], None)
        struct.pack_into(">q", batch, 0, base)
        records += batch
    element = struct.pack(">ihqqqi", 0, error, 9, 9, 0, aborted or -1) + bytes(16 * aborted)
    element += (struct.pack(">i", -1) if version >= 11 else b"") + struct.pack(">i", len(records)) + records
    parts: list[tuple[bytes, Octets]] = [(b"orders", element)]
    return b"".join(fetch.encode_answer(1, version, parts))


def connected(version: int) -> tuple[Subscriber, Transport, list[tuple[int, int]]]:
    came: list[tuple[int, int]] = []
    subscriber = Subscriber("orders", 3, Limits(version=version), lambda base, after: came.append((base, after)))
    transport = Transport()
    subscriber.connection_made(transport)  # pyright: ignore[reportArgumentType]
    return subscriber, transport, came


@pytest.mark.parametrize("version", [10, 11])
def test_a_subscriber_asks_for_what_comes_next(version: int) -> None:
    subscriber, transport, came = connected(version)
    assert asked(transport, version) == 3
    data = answer(version, 3, 5, aborted=2)
    subscriber.data_received(data[:50])
    assert len(transport.written) == 1
    subscriber.data_received(data[50:])
    assert came == [(3, 5), (5, 7)]
    assert asked(transport, version) == subscriber.offset == 7
    assert subscriber.faults == []


@pytest.mark.parametrize(("base", "error"), [(4, 0), (1, 0), (3, 6)], ids=["gap", "again", "error"])
def test_a_subscriber_tells_of_what_should_not_be(base: int, error: int) -> None:
    subscriber, _, _ = connected(11)
    subscriber.data_received(answer(11, base, error=error))
    assert len(subscriber.faults) == 1


def test_receipts_count_who_has_everything_and_how_long_it_took() -> None:
    crowd = Crowd(Order(1, ["orders"], 3, 0, 500, 11))
    for number, subscriber in enumerate(crowd.subscribers):
        subscriber.connection_made(Transport())  # pyright: ignore[reportArgumentType]
        if number < 2:
            subscriber.data_received(answer(11, 0))
    crowd.subscribers[1].faults.append("a gap")
    found = crowd.receipts(Appended(0, [crowd.times[0][0] - 0.25, crowd.times[0][0] - 0.5]))
    assert (found.complete, found.deliveries, found.faults) == (1, 4, ["a gap"])
    assert found.p50_ms == pytest.approx(250, abs=50)
    assert found.most_ms == pytest.approx(500, abs=50)


def test_the_largest_lag_is_the_bound_that_every_timer_kept() -> None:
    page = "\n".join(
        f'sidecar_event_loop_lag_seconds_bucket{{le="{bound}"}} {count}.0'
        for bound, count in (("0.001", 5), ("0.01", 9), ("0.1", 10), ("+Inf", 10))
    )
    before = {0.001: 5.0, 0.01: 8.0, 0.1: 9.0, float("inf"): 9.0}
    assert largest_lag(before, lag_of(page)) == 0.01
    assert largest_lag(dict.fromkeys(before, 0.0), lag_of(page)) == 0.1


def results(shadow: float = 400.0, complete: int = 5_000) -> Results:
    rounds = [
        Round({By.DIRECT: Read(500, 0), By.SOURCE: Read(450, 0.4), By.SHADOW: Read(shadow + add, 0.5)}, 0.1)
        for add in (-10, 0, 10)
    ]
    receipts = Receipts(complete, 1_000_000, 20.0, 2.0, 1_000_000, 12.0, 80.0, 140.0)
    found = Found(receipts, 200, 0.8, 0.3, 0.4, 0.1, 60.0, 109.0, 110.0, 7, 6, 0.05, 0.2)
    return Results(rounds, {Load(5_000): found, Load(5_000, direct=True): found}, 70.0)


def test_tables_hold_the_shares_of_direct_and_what_each_crowd_took() -> None:
    rows = report.document(results(), AROUND).splitlines()
    assert "| node, a shadow | 400 | 0.80 | 0.50 |" in rows
    assert (
        "| 5,000, 500 ms, node | 50,000 | all | 12 / 80 / 140 | 0.80 (0.10) | 0.30 | 7 (6) | 60 + 49 + 1 | ≤ 50 ms |"
    ) in rows
    assert "took 10.0 KiB of the node's memory" in report.terminal(results(), AROUND)
    assert "other programs took 10% to 20% of the machine" in report.terminal(results(), AROUND)


def test_aims_are_missed_below_their_limits() -> None:
    assert [row[2] for row in report.aims(results())[1:]] == ["kept"] * 3
    assert [row[2] for row in report.aims(results(shadow=300, complete=4_999))[1:]] == ["missed", "kept", "missed"]


def test_the_file_of_figures_holds_every_round_and_crowd(tmp_path: Path) -> None:
    report.write_json(tmp_path / "made" / "figures.json", results(), AROUND)
    found = json.loads((tmp_path / "made" / "figures.json").read_text())
    assert [one["reads"]["shadow"]["mb_per_s"] for one in found["rounds"]] == [390, 400, 410]
    assert [one["found"]["connections"] for one in found["crowds"]] == [7, 7]


def test_the_document_has_a_place_for_the_tables_of_its_own() -> None:
    text = (ROOT / "docs" / "performance.md").read_text()
    assert f"{report.BEGIN}\n\nnew\n\n{report.END}" in replace_between(text, "new", (report.BEGIN, report.END))


@pytest.mark.parametrize(
    "wrong",
    [
        ["--only", "shadows,latency"],
        ["--only", "shadows", "--rounds", "2"],
        ["--only", "latency", "--subscribers", "5"],
        ["--only", "shadows", "--subscribers", "0"],
        ["--only", "shadows", "--subscribers", "many"],
    ],
    ids=" ".join,
)
def test_shadows_are_a_run_of_their_own(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(wrong)
    assert refused.value.code == 2


def test_a_run_compares_with_what_cannot_be_shared_and_with_the_broker() -> None:
    loads = replace(Work(), subscribers=(7, 3), waits_ms=(100, 200)).loads
    assert [(load.subscribers, load.wait_ms) for load in loads[:4]] == [(7, 100), (7, 200), (3, 100), (3, 200)]
    assert [(load.subscribers, load.version, load.direct) for load in loads[4:]] == [(3, 10, False), (3, 11, True)]


def test_quick_does_the_same_in_less() -> None:
    whole = Work()
    assert 0 < QUICK.records < whole.records
    assert 0 < QUICK.rounds < whole.rounds
    assert max(QUICK.subscribers) < max(whole.subscribers)
    assert 0 < QUICK.seconds < whole.seconds
