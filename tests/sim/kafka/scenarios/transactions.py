"""Transactions with data."""

from __future__ import annotations

from typing import Any

from tests.sim.kafka.batches import TRANSACTIONAL
from tests.sim.kafka.scenarios.common import known, listed, scenario, seen, settle
from tests.sim.kafka.talk import Talk


@scenario
def aborted_data(talk: Talk) -> list[Any]:
    return _with_data(talk, commit=False)


@scenario
def committed_data(talk: Talk) -> list[Any]:
    return _with_data(talk, commit=True)


def _with_data(talk: Talk, *, commit: bool) -> list[Any]:
    topic, name = talk.topic(), talk.unique("app")
    _, pid, epoch = talk.init(name)
    more = {"pid": pid, "epoch": epoch, "attributes": TRANSACTIONAL, "transactional_id": name}
    found: list[Any] = [talk.produce(topic, b"before"), talk.add(name, pid, epoch, topic)]
    found += [talk.produce(topic, b"a", seq=0, **more), talk.produce(topic, b"other")]
    found += [talk.produce(topic, b"plain", pid=pid, epoch=epoch, seq=1), known(talk, topic, pid, epoch)]
    found += [seen(talk, topic, isolation=1), seen(talk, topic), listed(talk, topic, -1, isolation=1)]
    found += [settle(talk, name, pid, epoch, commit=commit)]
    talk.pause(0.3)
    found += [seen(talk, topic, isolation=1), seen(talk, topic), listed(talk, topic, -1, isolation=1)]
    return [*found, known(talk, topic, pid, epoch)]


@scenario
def data_outside_of_the_transaction(talk: Talk) -> list[Any]:
    topic, name = talk.topic(2), talk.unique("app")
    _, pid, epoch = talk.init(name)
    more = {"pid": pid, "epoch": epoch, "attributes": TRANSACTIONAL, "transactional_id": name}
    found: list[Any] = [talk.produce(topic, b"a", seq=0, **more)]
    found += [talk.add(name, pid, epoch, topic, 0), talk.produce(topic, b"a", seq=0, **more)]
    return [*found, talk.produce(topic, b"a", seq=0, partition=1, **more)]
