"""Policies by topic and prefix: nearest wins, field by field; what is written down is what is read again."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata.ownership import AccessMode
from sidecar.policy.policies import PolicyBook, PolicyFields, Scope, is_by_client
from sidecar.v1 import state_pb2 as state

flags = st.none() | st.booleans()
policies = st.builds(
    PolicyFields,
    access_mode=st.none() | st.sampled_from(AccessMode),
    deduplication=flags,
    exclusive_reader=flags,
    scope=st.none() | st.sampled_from(Scope),
    log_append_time=flags,
)
names = st.text(alphabet="ab.", min_size=1, max_size=5)
books = st.dictionaries(st.builds(lambda name, star: name + star, names, st.sampled_from(["", "*"])), policies)
DEFAULT = PolicyFields(AccessMode.SHARED, False, False, Scope.TOPIC, False)


def book(**by_name: PolicyFields) -> PolicyBook:
    return PolicyBook({name.replace("_", ".").replace("STAR", "*"): policy for name, policy in by_name.items()})


def test_an_exact_name_wins_over_a_prefix_field_by_field() -> None:
    found = book(
        payments_orders=PolicyFields(deduplication=True),
        payments_STAR=PolicyFields(AccessMode.EXCLUSIVE, deduplication=False, scope=Scope.PARTITION),
    ).effective("payments.orders")
    assert found == PolicyFields(AccessMode.EXCLUSIVE, True, False, Scope.PARTITION, False)


def test_the_longest_prefix_wins_over_shorter_ones() -> None:
    found = book(
        STAR=PolicyFields(AccessMode.WAIT_FOR_EXCLUSIVE, exclusive_reader=True),
        pay_STAR=PolicyFields(AccessMode.EXCLUSIVE_WITH_FENCING),
        payments_STAR=PolicyFields(deduplication=True),
    )
    wide, wider = found.effective("pay.x"), found.effective("orders")
    assert wide == PolicyFields(AccessMode.EXCLUSIVE_WITH_FENCING, False, True, Scope.TOPIC, False)
    assert wider == PolicyFields(AccessMode.WAIT_FOR_EXCLUSIVE, False, True, Scope.TOPIC, False)


def test_the_policies_that_cover_a_topic_stand_nearest_first_under_their_names() -> None:
    own, long, short = PolicyFields(deduplication=True), PolicyFields(AccessMode.SHARED), PolicyFields()
    found = PolicyBook({"pay*": short, "pay.eu*": long, "pay.eu.x": own, "other": own}, DEFAULT)
    assert found.covering("pay.eu.x") == [("pay.eu.x", own), ("pay.eu*", long), ("pay*", short)]
    assert found.covering("pay.eu*") == [("pay.eu*", long), ("pay*", short)]
    assert found.covering("pay") == [("pay*", short)]
    assert PolicyBook({"*": own}).covering("__consumer_offsets") == []


def test_a_false_is_an_answer_and_not_a_silence() -> None:
    found = book(a_b=PolicyFields(deduplication=False), a_STAR=PolicyFields(deduplication=True)).effective("a.b")
    assert found is not None
    assert found.deduplication is False


def test_a_star_alone_covers_everything_but_internal_topics() -> None:
    everything = book(STAR=PolicyFields(AccessMode.EXCLUSIVE))
    assert everything.effective("orders") is not None
    assert everything.effective("__consumer_offsets") is None
    assert everything.effective("__sidecar_default") is None


def test_a_topic_that_no_policy_covers_is_not_governed() -> None:
    assert book(orders=PolicyFields(AccessMode.EXCLUSIVE), pay_STAR=PolicyFields()).effective("orders2") is None


def test_a_name_and_a_prefix_are_told_apart() -> None:
    found = book(orders=PolicyFields(AccessMode.EXCLUSIVE), pay_STAR=PolicyFields())
    assert (found.topics, found.prefixes) == (["orders"], ["pay."])
    assert found.exact("pay.*") == PolicyFields()
    assert found.exact("pay.") is None


@given(books, names)
def test_every_field_comes_from_the_nearest_policy_that_decides_it(
    by_name: dict[str, PolicyFields], topic: str
) -> None:
    found = PolicyBook(by_name).effective(topic)
    covering = [name for name in by_name if name == topic or (name.endswith("*") and topic.startswith(name[:-1]))]
    covering.sort(key=lambda name: (name != topic, -len(name)))
    if not covering:
        assert found is None
        return
    for field in fields(PolicyFields):
        decided = [getattr(by_name[name], field.name) for name in covering]
        expected = next((value for value in decided if value is not None), getattr(DEFAULT, field.name))
        assert getattr(found, field.name) == expected


@given(policies, st.integers(1, 2**62), st.integers(0, 2**41))
def test_what_is_recorded_is_what_is_read_again(policy: PolicyFields, version: int, at_ms: int) -> None:
    record = state.Policy.FromString(policy.to_record(version, at_ms).SerializeToString())
    assert PolicyFields.of_record(record) == policy
    assert (record.version, record.at_ms) == (version, at_ms)


@given(policies)
def test_redis_is_told_what_is_decided_and_nothing_else(policy: PolicyFields) -> None:
    body = json.loads(policy.body())
    assert None not in body.values()
    assert body == {
        field.name: value for field in fields(PolicyFields) if (value := getattr(policy, field.name)) is not None
    }


@given(policies, policies)
def test_a_change_replaces_the_fields_that_it_names(policy: PolicyFields, change: PolicyFields) -> None:
    merged = policy.merged(change)
    for field in fields(PolicyFields):
        named = getattr(change, field.name)
        assert getattr(merged, field.name) == (named if named is not None else getattr(policy, field.name))


@pytest.mark.parametrize("number", [0, 99])
def test_a_mode_or_scope_of_a_newer_node_leaves_the_decision_to_wider_policies(number: int) -> None:
    record = state.Policy()
    record.ParseFromString(state.Policy(deduplication=True).SerializeToString() + bytes([0x08, number, 0x20, number]))
    assert PolicyFields.of_record(record) == PolicyFields(deduplication=True)


@given(policies)
def test_what_redis_keeps_is_what_is_read_again(policy: PolicyFields) -> None:
    assert PolicyFields.of_body(policy.body()) == policy


@pytest.mark.parametrize("by_client", [False, True])
def test_who_made_a_policy_is_told_to_redis_and_recorded(by_client: bool) -> None:
    policy = PolicyFields(AccessMode.SHARED)
    body = policy.body(by_client=by_client)
    assert is_by_client(body) is by_client
    assert PolicyFields.of_body(body) == policy
    record = policy.to_record(1, 0, by_client=by_client)
    assert (record.by_client, PolicyFields.of_record(record)) == (by_client, policy)


def test_what_a_newer_version_tells_redis_is_ignored() -> None:
    assert PolicyFields.of_body('{"access_mode": "exclusive", "colour": "red"}') == PolicyFields(AccessMode.EXCLUSIVE)


def test_a_default_governs_what_no_policy_covers_and_decides_what_policies_leave_open() -> None:
    default = PolicyFields(deduplication=True)
    found = PolicyBook({"orders": PolicyFields(AccessMode.EXCLUSIVE), "pay.*": PolicyFields()}, default)
    assert found.effective("orders") == PolicyFields(AccessMode.EXCLUSIVE, True, False, Scope.TOPIC, False)
    assert found.effective("any") == PolicyFields(AccessMode.SHARED, True, False, Scope.TOPIC, False)
    assert found.effective("__consumer_offsets") is None
    assert found.governed_prefixes == ["pay.", ""]
    assert PolicyBook({"pay.*": PolicyFields()}).governed_prefixes == ["pay."]
    assert found.scope("any") is Scope.TOPIC
    assert PolicyBook({"a": PolicyFields(scope=Scope.PARTITION)}).scope("a") is Scope.PARTITION


def test_names_longer_than_any_topic_are_not_kept() -> None:
    found = book(STAR=PolicyFields(AccessMode.EXCLUSIVE))
    sizes: list[int] = []
    for length in (249, 250):
        assert found.effective("a" * length) is not None
        sizes.append(found._known.cache_info().currsize)
    assert sizes == [1, 1]


@pytest.mark.parametrize("body", ["[]", "7", '"shared"', "{", '{"access_mode": "none"}', '{"scope": "?"}'])
def test_what_is_no_policy_is_an_error(body: str) -> None:
    with pytest.raises(ValueError, match=r".+"):
        PolicyFields.of_body(body)
