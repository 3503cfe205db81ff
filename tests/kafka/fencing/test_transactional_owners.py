"""Whether InitProducerId alone fences a transactional producer: why nodes write a marker to every partition, and why a
governed topic takes no transactions (docs/internals/transactional-ids.md has the results as a table).
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from sidecar.protocol.errors import ErrorCode
from tests.conftest import Unique
from tests.raw import api_versions
from tests.services import Services
from tests.transactional import FIRST, SECOND, Dialect, Past, Wire, depose

OFF = {"transaction.partition.verification.enable": "false"}
VERSIONS = ["3.9.1", "4.1.1", "4.3.1"]
DIALECTS = [FIRST, SECOND]


@pytest.fixture
def wire(services: Services) -> Iterator[Wire]:
    with Wire(services.kafka_bootstrap) as opened:
        yield opened


def serves(wire: Wire, dialect: Dialect) -> bool:
    """Whether these brokers understand a dialect."""
    told = wire.any().ask(api_versions(3)).finalized_features
    return dialect is FIRST or any(
        found.name == "transaction.version" and found.max_version_level >= 2 for found in told
    )


def spoken(wire: Wire) -> Iterator[Dialect]:
    return (dialect for dialect in DIALECTS if serves(wire, dialect))


@pytest.mark.parametrize("past", Past)
def test_a_verified_batch_of_a_deposed_producer_is_refused_whatever_it_wrote(
    wire: Wire, unique: Unique, past: Past
) -> None:
    """Also where neither epoch has ever written: the leader asks the coordinator."""
    for dialect in spoken(wire):
        topic = wire.create(unique("orders"))
        late = depose(wire, topic, unique("txn"), dialect, past)
        before = wire.log(topic)
        assert late.arrives() == ErrorCode.INVALID_PRODUCER_EPOCH, dialect
        assert wire.log(topic) == before


def test_only_what_ends_a_transaction_leaves_an_epoch_in_the_log(wire: Wire, unique: Unique) -> None:
    """InitProducerId writes to partitions of a transaction that it aborts, and to no other."""
    ended = {FIRST: ("txn 0", "marker 0"), SECOND: ("txn 0", "marker 1")}
    for dialect in spoken(wire):
        logs = {past: wire.create(unique("orders")) for past in (Past.NEVER, Past.OPEN, Past.COMMITTED)}
        for past, topic in logs.items():
            depose(wire, topic, unique("txn"), dialect, past)
        assert wire.log(logs[Past.NEVER]).entries == ()
        assert wire.log(logs[Past.OPEN]).entries == ("txn 0", "marker 1")
        assert wire.log(logs[Past.COMMITTED]).entries == ended[dialect]


def test_what_is_not_in_a_transaction_is_not_verified(wire: Wire, unique: Unique) -> None:
    topic = wire.create(unique("orders"))
    late = depose(wire, topic, unique("txn"), FIRST, Past.NEVER)
    assert late.arrives(transactional=False, transactional_id=None) == ErrorCode.NONE


@pytest.mark.parametrize("acks", [1, -1])
def test_a_batch_is_verified_whatever_its_acks_and_under_its_own_id_alone(
    wire: Wire, unique: Unique, acks: int
) -> None:
    topic = wire.create(unique("orders"))
    late = depose(wire, topic, unique("txn"), FIRST, Past.NEVER)
    assert late.arrives(acks=acks) == ErrorCode.INVALID_PRODUCER_EPOCH
    unnamed, unknown = (
        late.arrives(acks=acks, transactional_id=None),
        late.arrives(acks=acks, transactional_id=unique("other")),
    )
    assert unnamed == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert unknown == ErrorCode.INVALID_PRODUCER_ID_MAPPING
    assert wire.log(topic).entries == ()


def test_a_deposed_producer_gets_no_epoch_by_naming_its_own(wire: Wire, unique: Unique) -> None:
    """KIP-360; without naming one it deposes its successor, as any process that begins does."""
    late = depose(wire, wire.create(unique("orders")), unique("txn"), FIRST, Past.NEVER)
    assert late.deposed.init_once(late.deposed.stamp) == ErrorCode.PRODUCER_FENCED
    assert late.deposed.init_once() == ErrorCode.NONE
    assert late.holder.init_once(late.holder.stamp) == ErrorCode.PRODUCER_FENCED
