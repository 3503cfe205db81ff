"""JSON of a node becomes facts: whole, or with a word on what is wrong."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from sidecar.client.facts import PartitionOwner, Shadow, Topic
from sidecar.client.rest import ShapeError, read

OWNER = {"name": "a", "session": "pid:1", "mode": "exclusive", "since": "2026-01-31T12:00:00.500Z", "client": "x"}
STATS = {
    "readers": 1,
    "bytes": 2,
    "last_read": None,
    "cursor_resets": 0,
    "groups": None,
    "total_lag": None,
    "max_lag": 7,
}
TOPIC: dict[str, Any] = {
    "topic": "orders",
    "policy": {"access_mode": "exclusive", "scope": "partition"},
    "generation": 4,
    "owner": None,
    "waiting": [{"name": "b", "session": "pid:2", "since": "2026-01-31T13:00:00+01:00"}],
    "producers": [{"name": "a", "last_sequence_id": 3, "last_sequence_ids": {"0": 3, "11": 9}}],
    "shadows": ["orders-audit"],
    "serving_node": 1,
    "partitions": 12,
    "owners": {"3": {**OWNER, "generation": 4}},
    "shadowReplication": {"orders-audit": STATS},
    "policies": {"orders": {"scope": "partition"}, "or*": {"access_mode": "exclusive"}},
}


def test_every_level_is_read() -> None:
    found = read(Topic, TOPIC, "answer")
    noon = datetime(2026, 1, 31, 12, tzinfo=UTC)
    assert found.owners == {
        3: PartitionOwner("a", "pid:1", "exclusive", noon.replace(microsecond=500_000), "x", generation=4)
    }
    assert found.waiting[0].since == noon
    assert found.producers[0].last_sequence_ids == {0: 3, 11: 9}
    assert found.shadow_stats is not None
    assert (found.shadow_stats["orders-audit"].max_lag, found.shadow_stats["orders-audit"].groups) == (7, None)
    assert found.policies is not None
    assert found.policies["or*"].access_mode == "exclusive"
    assert found.policy is not None
    assert (found.policy.scope, found.policy.deduplication, found.deduplication_state) == ("partition", None, None)


def test_what_a_newer_node_adds_is_passed_over() -> None:
    newer = {**TOPIC, "colour": "green", "policy": {"access_mode": "new", "shade": 1}}
    assert read(Topic, newer, "answer").policy == read(Topic, {**TOPIC, "policy": {"access_mode": "new"}}, "x").policy


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"generation": "4"}, r"answer\.generation is '4', no int"),
        ({"generation": True}, r"answer\.generation is True, no int"),
        ({"generation": None}, r"answer\.generation is None, no int"),
        ({"shadows": "x"}, r"answer\.shadows is 'x', no list"),
        ({"shadows": ["x", 1]}, r"answer\.shadows\[1\] is 1, no str"),
        ({"owners": {"x": OWNER}}, r"answer\.owners has the key 'x'"),
        ({"owners": {"3": OWNER}}, r"answer\.owners\.3 has no generation"),
        ({"owners": []}, r"answer\.owners is \[\], no object"),
        ({"owner": 5}, r"answer\.owner is 5, no object"),
        ({"owner": {**OWNER, "since": 5}}, r"answer\.owner\.since is 5, no time"),
        ({"owner": {**OWNER, "since": "2026-01-31"}}, r"answer\.owner\.since is '2026-01-31', no time with its zone"),
    ],
)
def test_what_is_wrong_is_named_by_its_path(change: dict[str, Any], said: str) -> None:
    with pytest.raises(ShapeError, match=said):
        read(Topic, {**TOPIC, **change}, "answer")


@pytest.mark.parametrize("missing", [name for name in TOPIC if name not in ("owners", "shadowReplication", "policies")])
def test_what_has_to_be_there_has_to_be_there(missing: str) -> None:
    with pytest.raises(ShapeError, match=f"answer has no {missing}"):
        read(Topic, {name: value for name, value in TOPIC.items() if name != missing}, "answer")


@pytest.mark.parametrize("found", [None, [], "x", 1])
def test_what_is_no_object_is_none(found: object) -> None:
    with pytest.raises(ShapeError, match="no object"):
        read(Shadow, found, "answer")
