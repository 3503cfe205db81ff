"""The synchronous twins on a real node, and what becomes of them when their program is interrupted or just ends."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading
from contextlib import closing
from itertools import islice

import pytest

from sidecar.client import ProducerBusyError, ProducerFencedError, SidecarError
from sidecar.client.sync import AdminClient, ExclusiveProducer, Leadership, ShadowReader
from tests.conftest import Unique
from tests.kafka.client.conftest import Topic
from tests.logs import read_log
from tests.nodes import NodeProcess
from tests.own import OwnClient, string
from tests.rest import Rest
from tests.services import Services
from tests.wait import wait_for

WAITS = """
import sys
from sidecar.client.sync import Leadership
print("waits", flush=True)
try:
    with Leadership(sys.argv[1], sys.argv[2], name="b"):
        print("leads", flush=True)
except KeyboardInterrupt:
    print("interrupted", flush=True)
"""
LEFT_OPEN = """
import sys
from sidecar.client.sync import ExclusiveProducer, Leadership
lead = Leadership(sys.argv[1], sys.argv[2], name="a", silence=100)
lead.start()
producer = ExclusiveProducer(sys.argv[1], topic=sys.argv[3], name="a")
producer.start()
print(producer.send(b"sent").sequence_id, flush=True)
"""


def waiting(node: NodeProcess, resource: str) -> list[str]:
    with OwnClient(node.bootstrap) as observer:
        return [each.name for each in observer.owners(string(resource)).waiting]


def test_a_program_that_blocks_writes_reads_and_looks_after_topics(
    services: Services, node: NodeProcess, rest: Rest, new_topic: Topic, unique: Unique
) -> None:
    topic, shadow = new_topic(rest), unique("audit")
    with AdminClient(node.admin_url) as admin:
        policy = admin.set_policy(topic, access_mode="exclusive", deduplication=True).policy
        assert policy is not None
        assert policy.deduplication
        admin.create_shadow(topic, shadow, allow=["User:*"])
        with ExclusiveProducer(node.bootstrap, topic=topic, name="a", mode="exclusive") as producer:
            assert [producer.send(value).sequence_id for value in (b"0", b"1", b"2")] == [0, 1, 2]
            assert (producer.generation, producer.last_sequence_id, producer.partitions) == (1, 2, (0,))
            with pytest.raises(ProducerBusyError, match="a"):
                ExclusiveProducer(node.bootstrap, topic=topic, name="b", mode="exclusive").start()
            with closing(admin.events(topic, after=-1)) as events:
                assert "claimed" in [each.kind for each in islice(events, 2)]
            assert not producer.lost(timeout=0)
            admin.fence(topic)
            assert producer.lost(timeout=5)
            with pytest.raises(ProducerFencedError):
                producer.send(b"late")
        with ShadowReader(node.bootstrap, shadow=shadow, group=unique("g")) as reader:
            assert [each.value for each in islice(reader, 3)] == [b"0", b"1", b"2"]
            reader.seek(0, 0)
            assert next(iter(reader)).value == b"0"
            reader.commit()
            assert reader.partitions == {0}
        assert topic in {each.topic for each in admin.topics(governed=True)}
        with pytest.raises(SidecarError):
            admin.topic("not-there")
    assert read_log(services.kafka_bootstrap, topic) == [b"0", b"1", b"2"]
    assert not [each.name for each in threading.enumerate() if each.name.startswith("sidecar-")]


def test_many_threads_send_by_one_producer(services: Services, node: NodeProcess, rest: Rest, new_topic: Topic) -> None:
    topic = new_topic(rest, deduplication=True)
    with ExclusiveProducer(node.bootstrap, topic=topic, name="a") as producer:
        threads = [threading.Thread(target=lambda: [producer.send(b"v") for _ in range(20)]) for _ in range(5)]
        for each in threads:
            each.start()
        for each in threads:
            each.join(60)
        assert producer.last_sequence_id == 99
    assert len(read_log(services.kafka_bootstrap, topic)) == 100


def test_ctrl_c_while_it_waits_gives_up_its_place(node: NodeProcess, unique: Unique) -> None:
    resource = unique("scheduler")
    with Leadership(node.bootstrap, resource, name="a"):
        program = [sys.executable, "-W", "error", "-c", WAITS, node.bootstrap, resource]
        with subprocess.Popen(program, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
            wait_for(lambda: waiting(node, resource) == ["b"], "the place", 30)
            process.send_signal(signal.SIGINT)
            told, errors = process.communicate(timeout=30)
        assert (process.returncode, told, errors) == (0, "waits\ninterrupted\n", "")
        wait_for(lambda: not waiting(node, resource), "the place to be given up")


def test_what_is_left_open_ends_with_the_program(
    services: Services, node: NodeProcess, rest: Rest, new_topic: Topic, unique: Unique
) -> None:
    topic, resource = new_topic(rest, deduplication=True), unique("scheduler")
    program = [sys.executable, "-W", "error", "-c", LEFT_OPEN, node.bootstrap, resource, topic]
    done = subprocess.run(program, capture_output=True, text=True, timeout=60, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "0\n", "")
    with (
        Leadership(node.bootstrap, resource, name="b", mode="exclusive"),
        ExclusiveProducer(node.bootstrap, topic=topic, name="b") as producer,
    ):
        assert producer.generation == 2
    assert read_log(services.kafka_bootstrap, topic) == [b"sent"]
