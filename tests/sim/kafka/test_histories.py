"""Random histories: whatever breaks, min.insync.replicas=2 and acks=all lose nothing that was acknowledged.

An idempotent producer that repeats itself writes nothing twice, and a fenced one nothing behind its fence.
"""

import time

import pytest

from tests.sim.kafka.harness import Pending, Simulated
from tests.sim.kafka.records import parse

_SEEDS = range(30)


def _break_something(s: Simulated, topic: str) -> None:
    rng, cluster = s.heap.rng, s.cluster
    brokers = list(cluster.brokers.values())
    broker = rng.choice(brokers)
    well = sum(each.reachable and each.listening for each in brokers) == len(brokers) and not cluster.cuts
    match rng.randrange(9):
        case 0 if well:
            broker.kill()
        case 1 if well:
            broker.freeze()
        case 2 if well:
            cluster.cut(broker.id)
        case 3 if well:
            cluster.cut(broker.id, rng.choice([each.id for each in brokers if each is not broker]))
        case 4:
            cluster.elect(topic, 0, broker.id)
        case 5:
            cluster.move_coordinator("slot")
        case 6 if well:
            broker.stop()
        case 7:
            broker.metadata_lag(rng.choice((0.0, 0.0, 3.0)))
        case _:
            for each in brokers:
                each.thaw()
                each.start()
            cluster.heal_all()


def _mend(s: Simulated) -> None:
    for each in s.cluster.brokers.values():
        each.thaw()
        each.start()
        each.metadata_lag(0)
    s.cluster.heal_all()
    s.pause(60)


class _Producer:
    """Sends value n with sequence n until it is acknowledged, to whomever the controller calls the leader."""

    def __init__(self, s: Simulated, topic: str, pid: int, epoch: int) -> None:
        self.s, self.topic, self.pid, self.epoch = s, topic, pid, epoch
        self.sequence = 0
        self.acknowledged: dict[bytes, int] = {}
        self.errors: list[int] = []

    def step(self) -> None:
        s = self.s
        leader = s.cluster.leader(self.topic, 0)
        value = b"%d:%d" % (self.epoch, self.sequence)
        fields = s.produce_fields(
            self.topic, [value], pid=self.pid, epoch=self.epoch, seq=self.sequence, timeout_ms=1000
        )
        if leader < 0 or not s.cluster.brokers[leader].listening:
            s.pause(0.5)
            return
        pending: Pending = s.begin(leader, 0, 8, fields)
        if not s.heap.run(3, lambda: pending.answer is not None or pending.ended) or pending.answer is None:
            return
        row = pending.answer["responses"][0]["partition_responses"][0]
        if row["error_code"]:
            self.errors.append(row["error_code"])
            s.pause(0.2)
        else:
            self.acknowledged[value] = row["base_offset"]
            self.sequence += 1


@pytest.mark.parametrize("seed", _SEEDS)
def test_what_was_acknowledged_is_in_the_log_once_and_in_order(seed: int):
    s = Simulated(seed)
    topic = s.topic(min_insync_replicas="2")
    pid, epoch = s.fence("slot", topic)
    first = _Producer(s, topic, pid, epoch)
    for _ in range(40):
        if s.heap.rng.random() < 0.25:
            _break_something(s, topic)
        first.step()
    _mend(s)
    again, newer = s.fence("slot", topic)
    assert again == pid
    fenced = s.latest(topic)[1]
    second = _Producer(s, topic, pid, newer)
    for _ in range(20):
        if s.heap.rng.random() < 0.25:
            _break_something(s, topic)
        second.step()
        first.step()
    _mend(s)
    for _ in range(5):
        second.step()
    s.pause(2)
    log = [
        (batch.base, value)
        for batch in s.cluster.committed(topic, 0)
        if not batch.control
        for _, _, _, value, _ in parse(batch)
    ]
    values = [value for _, value in log]
    assert len(values) == len(set(values))
    assert {value: base for base, value in log}.items() >= {**first.acknowledged, **second.acknowledged}.items()
    for each in (epoch, newer):
        own = [int((value or b"").split(b":")[1]) for value in values if (value or b"").startswith(b"%d:" % each)]
        assert own == list(range(len(own)))
    assert all(base < fenced for base, value in log if (value or b"").startswith(b"%d:" % epoch))
    assert len(second.acknowledged) > 3
    replicas = [s.cluster.replica(topic, 0, each) for each in s.cluster.brokers]
    assert len({b"".join(batch.data for batch in each.log.batches) for each in replicas if each}) == 1


def test_a_history_costs_little():
    began = time.process_time()
    s = Simulated(5)
    topic = s.topic(2)
    for _ in range(3):
        pid, epoch = s.fence("slot", topic, 0, 1)
        for number in range(100):
            assert s.produce(topic, b"v" * 100, pid=pid, epoch=epoch, seq=number)[0] == 0
    s.pause(600)
    assert time.process_time() - began < 1.0
