"""Which policies a node says it applies, and when it takes them for applied everywhere."""

from __future__ import annotations

from contextlib import suppress
from itertools import pairwise
from types import MappingProxyType, SimpleNamespace
from typing import Any, cast
from unittest.mock import AsyncMock

import pytest

from metadata import LiveNodes
from metadata.ownership import AccessMode
from metadata.policies import Policy
from sidecar.changelog import Record
from sidecar.changelog.keys import Key, Kind
from sidecar.changelog.view import View
from sidecar.policy.catalog import PolicyCatalog, _written
from sidecar.policy.policies import PolicyFields
from sidecar.protocol.caller import FencedError
from sidecar.protocol.errors import ErrorCode
from sidecar.protocol.ids import Offset, ProducerEpoch, ProducerId, Stamp
from sidecar.v1 import state_pb2 as state


class Log:
    """What a node has read of policies: names with their versions, in the order of their records."""

    def __init__(self, **versions: int) -> None:
        self.versions = versions

    @property
    def position(self) -> int:
        return len(self.versions)

    def policies(self) -> list[Any]:
        return [
            SimpleNamespace(key=Key(Kind.POLICY, name), value=state.Policy(version=version), offset=offset)
            for offset, (name, version) in enumerate(self.versions.items())
        ]


def node_with(number: int, view: Any) -> Any:
    """What a node has for its catalog; nothing is asked of Kafka here."""
    return SimpleNamespace(node_id=number, cluster="paper", upstream=None, changelog=SimpleNamespace(view=view))


def catalog(number: int, log: Log) -> PolicyCatalog:
    found = PolicyCatalog(node_with(number, log))
    found.read()
    return found


def live(*others: PolicyCatalog, position: int | None = None) -> LiveNodes:
    """Other nodes as they announce themselves; `position`: what they say that they have read, whatever it is."""
    nodes = {
        number: SimpleNamespace(
            node_id=number,
            policy_version=each.version,
            position=cast(Any, each)._services.changelog.view.position - 1 if position is None else position,
        )
        for number, each in enumerate(others, 2)
    }
    return LiveNodes(MappingProxyType(cast(Any, nodes)), MappingProxyType({}), 0)


def test_a_node_that_started_behind_a_deleted_policy_applies_all_there_are() -> None:
    log = Log(orders=1, payments=2)
    old = catalog(1, log)
    del log.versions["payments"]
    old.read()
    old.heard(live(catalog(2, Log(orders=1))))
    assert old.is_applied_everywhere


def test_a_node_that_has_not_read_the_newest_policy_does_not_apply_it() -> None:
    node = catalog(1, Log(orders=1, payments=2))
    node.heard(live(catalog(2, Log(orders=1))))
    assert not node.is_applied_everywhere


def test_a_node_that_has_read_a_newer_version_may_lack_an_older_one_that_was_written_later() -> None:
    node = catalog(1, Log(payments=2, orders=1))
    node.heard(live(catalog(2, Log(payments=2))))
    assert not node.is_applied_everywhere
    node.heard(live(catalog(2, Log(payments=2, orders=1))))
    assert node.is_applied_everywhere


def test_a_node_that_has_read_as_far_in_a_log_that_lost_records_does_not_apply_what_came_after() -> None:
    node = catalog(1, Log(orders=1, payments=2))
    node.heard(live(catalog(2, Log(orders=1)), position=7))
    assert not node.is_applied_everywhere


def test_the_version_of_a_deleted_policy_is_not_given_again() -> None:
    log = Log(orders=1, payments=2)
    node = catalog(1, log)
    del log.versions["payments"]
    node.read()
    assert (node.version, node._known().version) == (1, 2)


async def test_where_only_operators_govern_a_client_that_asks_for_a_mode_is_refused_by_name() -> None:
    node = catalog(1, Log(orders=1))
    node.clients_govern = False
    assert await node.govern("orders") is None
    refused = await node.govern("payments")
    assert refused is not None
    assert refused.code == 44
    assert "sidecar topic set payments --access shared" in refused.message


@pytest.mark.parametrize(("log_append_time", "shortest"), [(None, 1.0), (True, 11.0)])
async def test_a_decision_is_left_to_its_node_as_long_as_that_may_ask_kafka_first(
    monkeypatch: pytest.MonkeyPatch, log_append_time: bool | None, shortest: float
) -> None:
    node, now, finished = catalog(1, Log()), [100.0], []
    loop = SimpleNamespace(time=lambda: now[0])
    monkeypatch.setattr("sidecar.policy.catalog.asyncio.get_running_loop", lambda: loop)
    monkeypatch.setattr(node._writer, "open", AsyncMock())
    monkeypatch.setattr(node, "_decide", AsyncMock(return_value=2))
    monkeypatch.setattr(node, "_write_down", AsyncMock(side_effect=lambda *_, **__: finished.append(now[0])))
    decided = Policy(PolicyFields(AccessMode.SHARED, log_append_time=log_append_time).body(), 1)
    while not finished:
        await node._finish("orders", decided)
        now[0] += 0.25
    assert shortest < finished[0] - 100.0 <= shortest + 0.25


async def test_nodes_that_fence_each_other_leave_a_decision_to_others_for_longer_and_longer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Each of them takes longer than a second here: with the same pause for all, none would ever be done."""
    node, now = catalog(1, Log()), [100.0]
    tries: list[float] = []

    async def open_writer(_: str) -> None:
        tries.append(now[0])
        raise FencedError(ErrorCode.PRODUCER_FENCED, Stamp(ProducerId(1), ProducerEpoch(0)), "another node was faster")

    monkeypatch.setattr("sidecar.policy.catalog.asyncio.get_running_loop", lambda: SimpleNamespace(time=lambda: now[0]))
    monkeypatch.setattr("sidecar.policy.catalog._RANDOM", SimpleNamespace(uniform=lambda _least, most: most))
    monkeypatch.setattr(node._writer, "open", open_writer)
    decided = Policy(PolicyFields(AccessMode.SHARED).body(), 1)
    while len(tries) < 5:
        with suppress(FencedError):
            await node._finish("orders", decided)
        now[0] += 0.25
    pauses = [round(after - before) for before, after in pairwise(tries)]
    assert pauses == [3, 9, 10, 10]


def test_a_policy_is_spelled_once_for_redis_however_often_changes_are_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """10,000 of them took a tenth of a second, in which the node did nothing else."""
    spelled: list[str] = []

    def written(entry: Any) -> Any:
        spelled.append(entry.key.topic)
        return _written(entry)

    monkeypatch.setattr("sidecar.policy.catalog._written", written)
    view = View()
    node = PolicyCatalog(node_with(1, view))
    changes = [("orders", 1), ("payments", 2), ("orders", 3), ("payments", None)]
    seen: list[dict[str, int]] = []
    for offset, (name, version) in enumerate(changes):
        value = None if version is None else PolicyFields(AccessMode.SHARED).to_record(version, 0)
        view.apply(Offset(offset), 0, None, Record(Key(Kind.POLICY, name), value).encode())
        for _ in range(2):
            node.read()
            seen.append({each: policy.version for each, policy in node._known().by_name.items()})
    assert seen[::2] == seen[1::2]
    assert seen[::2] == [{"orders": 1}, {"orders": 1, "payments": 2}, {"orders": 3, "payments": 2}, {"orders": 3}]
    assert spelled == ["orders", "payments", "orders"]
