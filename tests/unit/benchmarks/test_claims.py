"""Figures of claims by request and their tables; the claims that wait and the clients that take the figures."""

from __future__ import annotations

import asyncio
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from google.protobuf.message import Message

from benchmarks.__main__ import main
from benchmarks.claims import report
from benchmarks.claims.caller import Caller
from benchmarks.claims.calls import NotAnsweredError, expect, new_token, own, strings
from benchmarks.claims.crowd import Claim, Order, Passed
from benchmarks.claims.run import QUICK, Results, Work
from benchmarks.claims.together import Round
from benchmarks.claims.waiting import Found, Load, waiting_of
from benchmarks.report import replace_between
from sidecar.protocol.caller import decode_frame, encode_frame
from sidecar.v1 import control_pb2 as control

ROOT = Path(__file__).parents[3]
AROUND: dict[str, Any] = {"cores": 2, "cpu": "a CPU", "kafka": "4.1.1", "java": 17, "python": "3.11.7"}


def framed(body: Message) -> bytes:
    data = body.SerializeToString()
    return struct.pack(">ii", 4 + len(data), 0) + data


class Transport:
    """A node that answers each request with what it was told to, in pieces."""

    def __init__(self, caller: Caller, *answers: bytes) -> None:
        self.written: list[bytes] = []
        self._caller = caller
        self._answers = list(answers)

    def write(self, data: bytes) -> None:
        self.written.append(data)
        answer = self._answers.pop(0)
        for piece in (answer[:3], answer[3:9], answer[9:]):
            asyncio.get_running_loop().call_soon(self._caller.data_received, piece)


def connected(*answers: bytes) -> tuple[Caller, Transport]:
    caller = Caller()
    transport = Transport(caller, *answers)
    caller.connection_made(transport)  # pyright: ignore[reportArgumentType]
    return caller, transport


def test_an_own_request_is_framed_as_the_nodes_read_it() -> None:
    token = new_token()
    frame = encode_frame(own(strings("leader"), token, control.WAIT_FOR_EXCLUSIVE, wait_ms=7, session=5), 0, "bench")
    size, key, version, _, name = struct.unpack_from(">ihhih", frame)
    assert (size, key, version) == (len(frame) - 4, 1000, 0)
    asked = control.OwnRequest.FromString(frame[14 + name :])
    assert [claim.resource.name for claim in asked.claims] == ["leader"]
    assert (asked.token, asked.mode, asked.wait_ms, asked.producer_id) == (token, control.WAIT_FOR_EXCLUSIVE, 7, 5)


async def test_answers_come_whole_however_the_network_cuts_them() -> None:
    told = control.OwnResponse(error=control.HELD, message="billing owns it", producer_name="bench")
    caller, _ = connected(framed(told), framed(told))
    request = own(strings("leader"), new_token())
    assert await caller.ask(request) == told
    answer = await caller.exchange(b"again")
    assert decode_frame(request, 0, answer, 4, len(answer)) == told


async def test_a_connection_that_ends_fails_what_is_under_way_on_it() -> None:
    caller, _ = connected(b"")
    asked = asyncio.ensure_future(caller.exchange(b"request"))
    await asyncio.sleep(0)
    caller.connection_lost(None)
    with pytest.raises(ConnectionResetError):
        await asked
    with pytest.raises(ConnectionResetError):
        await caller.exchange(b"another")


async def test_a_claim_is_kept_by_the_same_request_and_ends_the_run_where_it_is_not_waiting() -> None:
    claim = Claim(Order(1, "leader", 3, 1, 1, apart=True), 2)
    caller, transport = connected(
        framed(control.OwnResponse(error=control.TIMED_OUT)), framed(control.OwnResponse(error=control.QUEUE_FULL))
    )
    await claim.keep(caller)
    with pytest.raises(NotAnsweredError, match="QUEUE_FULL"):
        await claim.keep(caller)
    assert transport.written[0] == transport.written[1]
    assert claim.string == "leader-2"


def test_an_answer_with_another_error_ends_the_run_with_its_message() -> None:
    expect("Own", control.TIMED_OUT, "", control.TIMED_OUT)
    with pytest.raises(NotAnsweredError, match=r"Own was answered HELD \(billing owns it\), not NONE"):
        expect("Own", control.HELD, "billing owns it")


def test_claims_share_connections_but_for_those_that_are_listened_for() -> None:
    order = Load(10_000, each=20, handovers=200).order(9, "x")
    assert (order.listeners, order.connections, order.claims) == (210, 490, 10_000)
    alone = Load(10_000, each=0).order(9, "x")
    assert (alone.listeners, alone.connections) == (10_000, 0)
    assert {order.string(number) for number in range(3)} == {"x"}


def test_how_many_wait_is_read_from_the_metrics() -> None:
    assert waiting_of("# TYPE sidecar_claims_waiting gauge\nsidecar_claims_waiting 9790.0\n") == 9_790
    with pytest.raises(ValueError, match="sidecar_claims_waiting"):
        waiting_of("sidecar_claims_held 1.0\n")


def results() -> Results:
    found = Found(
        Passed(handovers=[1.0, 2.0, 30.0], repeats=[0.5, 0.75], late=2),
        *(60.0, 62.0, 109.0, 110.0, 9.5, 0.45, 0.3, 0.5, 0.05, 0.01, 0.005, 0.1, 0.2),
    )
    other = Found(
        Passed(handovers=[3.0]), *(60.0, 62.0, 119.0, 110.0, 10.5, 0.55, 0.3, 0.5, 0.025, 0.01, 0.01, 0.05, 0.3)
    )
    return Results(
        {"append": [1.0, 1.0, 2.0], "own": [2.5, 2.5, 9.0], "repeat": [0.25]},
        [Round(500.0, 2_000.0), Round(600.0, 3_000.0), Round(400.0, 1_000.0)],
        {Load(10_000): [found, other]},
        [0.1, 0.3],
        70.0,
    )


def test_tables_set_claims_against_a_plain_append_of_the_same_run() -> None:
    rows = report.document(results(), AROUND).splitlines()
    assert "| append of 100 B straight to Kafka, acks=all | 1.00 | 2.00 | 2.00 | 3 |  |" in rows
    assert "| Own of a free string | 2.50 | 9.00 | 9.00 | 3 | ×2.5 |" in rows
    assert "| Own again with the same token | 0.25 | 0.25 | 0.25 | 1 | ×0.2 |" in rows
    told = report.terminal(results(), AROUND)
    assert "500 claims/s (two appends each)" in told
    assert "2,000 appends/s. Median of the rounds' own ratios: 0.25." in told
    assert "other programs took 10% to 30% of the machine. 2 repeats came later than a place is kept for." in told


def test_a_crowds_row_holds_medians_of_its_repeats_and_the_worst_of_the_event_loop() -> None:
    rows = report.document(results(), AROUND).splitlines()
    assert (
        "| 10,000, one string, 20 to a connection, asked every 4 s | 10.0 | 5.5 (0.2) | 0.50 | 0.5 / 0.8 "
        "| 2.0 / 30.0 / 30.0 | ≤ 50 ms, ≤ 10 ms, ≤ 10 ms, ≤ 100 ms |"
    ) in rows


def test_the_file_of_figures_holds_every_sample(tmp_path: Path) -> None:
    report.write_json(tmp_path / "made" / "figures.json", results(), AROUND)
    found = json.loads((tmp_path / "made" / "figures.json").read_text())
    assert found["samples_ms"]["own"] == [2.5, 2.5, 9.0]
    assert [one["passed"]["handovers"] for one in found["crowds"][0]["found"]] == [[1.0, 2.0, 30.0], [3.0]]


def test_the_document_has_a_place_for_the_tables_of_its_own() -> None:
    text = (ROOT / "docs" / "performance.md").read_text()
    assert f"{report.BEGIN}\n\nnew\n\n{report.END}" in replace_between(text, "new", (report.BEGIN, report.END))


@pytest.mark.parametrize(
    "wrong",
    [["--only", "claims,latency"], ["--only", "claims", "--rounds", "2"], ["--only", "claims", "--subscribers", "5"]],
    ids=" ".join,
)
def test_claims_are_a_run_of_their_own(wrong: list[str]) -> None:
    with pytest.raises(SystemExit) as refused:
        main(wrong)
    assert refused.value.code == 2


def test_quick_does_the_same_in_less() -> None:
    whole = Work()
    assert 0 < QUICK.blocks < whole.blocks
    assert 0 < QUICK.takeovers < whole.takeovers
    assert 0 < QUICK.thousands < whole.thousands
    assert 0 < QUICK.seconds < whole.seconds
    assert {(load.apart, bool(load.each)) for load in QUICK.loads} == {
        (load.apart, bool(load.each)) for load in whole.loads
    }
    assert max(load.claims for load in QUICK.loads) < min(load.claims for load in whole.loads)
