"""What the matrix sees for itself: far ends of connections, batches in Kafka's log, workers that hang or die."""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder

from .outcome import Route
from .run import Target, strangers
from .sockets import Watch
from .stored import WITNESSES, Batch, read_headers
from .worker import Answered, Worker, WorkerError

BROKER, NODE = "127.0.0.1:9092", "127.0.0.1:19092"
TARGET = Target(Route.NODE, NODE, frozenset({NODE}), frozenset({BROKER}), secured=True)


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.create_server(("127.0.0.1", 0)) as server:
        yield server


def test_a_watch_sees_the_far_ends_of_a_process_and_no_listening_socket(listener: socket.socket) -> None:
    address = "{}:{}".format(*listener.getsockname())
    watch = Watch(os.getpid())
    assert address not in watch.look()
    with socket.create_connection(listener.getsockname()):
        assert address in watch.look()


def test_a_watch_sees_the_children_of_a_process(listener: socket.socket, tmp_path: Path) -> None:
    host, port = listener.getsockname()
    program = (
        "import json, socket, subprocess, sys\n"
        "child = 'import socket, sys; s = socket.create_connection((sys.argv[1], sys.argv[2])); sys.stdin.read()'\n"
        "run = subprocess.Popen([sys.executable, '-c', child, *sys.argv[1:]], stdin=subprocess.PIPE)\n"
        "print(json.dumps({'ready': 'x', 'features': []}), flush=True)\n"
        "sys.stdin.readline()\n"
        "print(json.dumps({'hold': True}), flush=True)\n"
        "sys.stdin.readline()\n"
        "print(json.dumps({'outcome': 'ok', 'detail': ''}), flush=True)\n"
        "run.communicate()\n"
    )
    worker = Worker([sys.executable, "-c", program, host, str(port)], tmp_path / "log")
    with listener.accept()[0]:
        answered = worker.run({}, 20.0)
    worker.close()
    assert answered.held == {f"{host}:{port}"}


def test_a_connection_to_the_broker_is_no_connection_to_a_node() -> None:
    assert strangers(Answered({}, {NODE}), TARGET, "acks-all") is None
    objection = strangers(Answered({}, {NODE, BROKER}), TARGET, "acks-all")
    assert objection is not None
    assert BROKER in objection
    assert "the broker itself" in objection


def test_a_client_that_was_to_stand_still_has_to_be_seen() -> None:
    assert strangers(Answered({}, {NODE}, held={NODE}), TARGET, "cluster") is None
    for held in (set[str](), None):
        assert strangers(Answered({}, {NODE}, held=held), TARGET, "cluster") is not None


def batch(codec: int, producer_id: int, *, transactional: bool = False) -> bytes:
    builder = DefaultRecordBatchBuilder(
        magic=2,
        compression_type=codec,
        is_transactional=transactional,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        batch_size=100_000,
    )
    for offset in range(3):
        assert builder.append(offset, timestamp=1, key=None, value=b"x" * 1000, headers=[])
    return bytes(builder.build())


def test_headers_of_stored_batches_tell_codec_producer_and_transaction() -> None:
    data = batch(0, -1) + batch(1, 7) + batch(4, 8, transactional=True)
    assert read_headers(data) == [
        Batch("none", transactional=False, control=False, producer_id=-1),
        Batch("gzip", transactional=False, control=False, producer_id=7),
        Batch("zstd", transactional=True, control=False, producer_id=8),
    ]


def test_a_batch_cut_off_at_the_end_of_an_answer_is_left_out() -> None:
    assert len(read_headers(batch(0, -1) + batch(1, 7)[:40])) == 1


@pytest.mark.parametrize(
    ("feature", "stored"),
    [
        ("compression-gzip", Batch("none", transactional=False, control=False, producer_id=3)),
        ("compression-none", Batch("lz4", transactional=False, control=False, producer_id=3)),
        ("idempotent", Batch("none", transactional=False, control=False, producer_id=-1)),
        ("acks-0", Batch("none", transactional=False, control=False, producer_id=3)),
        ("txn-commit", Batch("none", transactional=False, control=False, producer_id=3)),
        ("txn-commit", Batch("none", transactional=True, control=False, producer_id=3)),
    ],
)
def test_a_witness_objects_to_records_that_lie_otherwise_than_asked(feature: str, stored: Batch) -> None:
    assert not WITNESSES[feature][1]([stored])


READY = "import json, sys, time; print(json.dumps({'ready': 'x', 'features': []}), flush=True); sys.stdin.readline(); "


def test_a_worker_that_hangs_is_given_up_in_time_and_killed(tmp_path: Path) -> None:
    program = READY + "print('what it was doing', file=sys.stderr, flush=True); time.sleep(600)"
    worker = Worker([sys.executable, "-c", program], tmp_path / "log")
    with pytest.raises(WorkerError, match=r"no answer in time(.|\n)*what it was doing"):
        worker.run({}, 1.0)
    worker.kill()
    with pytest.raises(WorkerError):
        worker.run({}, 1.0)


def test_a_worker_that_dies_is_told_of_with_its_exit_code(tmp_path: Path) -> None:
    worker = Worker([sys.executable, "-c", READY + "sys.exit(3)"], tmp_path / "log")
    with pytest.raises(WorkerError, match="it ended with 3"):
        worker.run({}, 20.0)
    worker.kill()


def test_a_worker_that_never_gets_ready_is_told_of_with_its_log(tmp_path: Path) -> None:
    with pytest.raises(WorkerError, match="no such client"):
        Worker([sys.executable, "-c", "raise SystemExit('no such client')"], tmp_path / "log")
